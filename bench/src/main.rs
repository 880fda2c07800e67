//! Measures boxes side by side with bare processes, bubblewrap, docker and Jupyter.
//!
//! One run produces every figure of docs/promises.md. Contestants run in shuffled rounds, so that
//! other load affects all of them, and figures are ratios within one run. A missed bar fails only
//! with `--strict`, because the machine may be loaded.
//!
//! Like the product's binary, this program becomes a jail process when started under the jail's
//! name.

mod agent_files;
mod arguments;
mod bars;
mod boxes;
mod contestant;
mod docker;
mod error;
mod interfaces;
mod kept;
mod latency;
mod machine;
mod memory;
mod pictures;
mod records;
mod report;
mod samples;
mod server;
mod serving;
mod session;
mod shell;
mod steps;
mod table;
mod throughput;
mod warm_boxes;

use std::process::ExitCode;

use crate::arguments::{Arguments, USAGE};
use crate::error::Error;
use crate::report::{Measured, Report};

const BAD_INPUT: u8 = 2;
/// A round takes some tenths of a second.
const FILE_ROUNDS: usize = 10;
/// More runs than there are warm boxes.
const WARM_RUNS: usize = 5;

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == ringwall_jail::PROCESS_NAME) {
        return ringwall_jail::main();
    }
    let arguments = match Arguments::read(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(problem) => {
            tell(&format!("{problem}\n{USAGE}"));
            return ExitCode::from(BAD_INPUT);
        }
    };
    let measured = measure(&arguments);
    server::remove_what_is_left();
    match measured {
        Ok(report) => {
            print(&report.to_text());
            if arguments.strict && report.has_missed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            tell(&error::chain(&error));
            ExitCode::from(BAD_INPUT)
        }
    }
}

/// Every measurement, in the order of the report.
fn measure(arguments: &Arguments) -> Result<Report, Error> {
    let machine = machine::look();
    let contestants = contestant::Field::gather()?;
    tell(&format!("latency: {} rounds of each contestant", arguments.rounds));
    let latency = latency::measure(&contestants, arguments.rounds)?;
    tell(&format!("throughput: {} runs of each contestant", arguments.runs));
    let throughput = throughput::measure(&contestants, arguments.runs)?;
    tell("memory");
    let memory = memory::measure(contestants.ringwall()).map_err(|error| error::chain(&error));
    tell(&format!("server: {} rounds, then {} execs in a row", arguments.rounds, arguments.execs));
    let serving = serving::measure(&contestants, arguments.rounds, arguments.runs, arguments.execs)?;
    tell(&format!("warm boxes: {} rounds, then {} runs", arguments.rounds, arguments.runs * WARM_RUNS));
    let warm_boxes = warm_boxes::measure(&contestants, arguments.rounds, arguments.runs * WARM_RUNS)
        .map_err(|error| error::chain(&error));
    tell("HTTP and MCP");
    let interfaces = interfaces::measure(contestants.ringwall(), arguments.rounds)?;
    tell("session boxes");
    let kept = kept::measure(contestants.ringwall(), arguments.rounds).map_err(|error| error::chain(&error));
    tell(&format!("screenshots: {} rounds", arguments.rounds));
    let pictures = pictures::measure(contestants.ringwall(), arguments.rounds).map_err(|error| error::chain(&error));
    tell(&format!("files: {} reads, {} rounds of lists and zips", arguments.reads, FILE_ROUNDS));
    let files = agent_files::measure(contestants.ringwall(), arguments.reads, FILE_ROUNDS)?;
    tell(&format!("records: {} execs", arguments.records));
    let records = records::measure(arguments.records)?;
    tell("docker: starting a daemon of our own");
    let docker = docker::measure(&contestants, arguments.docker_rounds);
    let no_cgroups = contestants.boxes.no_cgroups.clone();
    let report = Report::new(Measured {
        machine,
        latency,
        throughput,
        memory,
        serving,
        interfaces,
        warm_boxes,
        kept,
        pictures,
        files,
        records,
        docker,
        no_cgroups,
    });
    if let Some(file) = &arguments.json {
        let json = format!("{:#}\n", report.to_json());
        std::fs::write(file, json).map_err(|source| Error::WriteReport { file: file.clone(), source })?;
    }
    Ok(report)
}

#[expect(clippy::print_stdout, reason = "the report goes to standard output")]
fn print(text: &str) {
    print!("{text}");
}

#[expect(clippy::print_stderr, reason = "progress and errors go to standard error")]
fn tell(text: &str) {
    eprintln!("bench: {text}");
}
