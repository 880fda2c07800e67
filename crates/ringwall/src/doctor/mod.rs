//! `ringwall doctor`: starts a probe box and reports which protections work on this machine.
//!
//! `probe` and `backends` collect facts and `probe_box.rs` starts the box. The rest is pure:
//! `protections` and `machine` turn the facts into rows, `remedy` finds the fix of a failure, `report`
//! and `table` format the result. Apart from the probe box, the doctor only reads.

mod backends;
mod cgroups;
mod facts;
mod machine;
mod probe;
mod probe_box;
mod protections;
mod remedy;
mod report;
mod table;

use std::path::Path;
use std::process::ExitCode;

use clap::Args;

use crate::message::{Message, print};
use crate::runtime;
use facts::Facts;
use report::Report;
use table::Style;

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Print a JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Exits with 0 if the probe box has every required protection, otherwise with 1.
pub(crate) fn run(arguments: &DoctorArguments, data: &Path) -> Result<ExitCode, Message> {
    let report = Report::new(&examine(data)?);
    let text = if arguments.json {
        let json = serde_json::to_string_pretty(&report);
        json.map_err(|error| Message::new(format!("could not write the report: {error}")))? + "\n"
    } else {
        table::draw(&report, &Style::of_this_process())
    };
    print(&text)?;
    Ok(if report.can_make_boxes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn examine(data: &Path) -> Result<Facts, Message> {
    let host = ringwall_executor::Host::probe();
    let seen = probe::probe(&host);
    runtime::current_thread()?.block_on(async {
        let docker = backends::docker(&backends::sockets_of_this_process()).await;
        let aio = backends::aio(data).await;
        let probe_box = probe_box::start(host, data).await;
        Ok(Facts { docker, aio, probe_box, ..seen })
    })
}
