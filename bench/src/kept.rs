//! A cell in a warm context, alternating with a cell in a warm Jupyter kernel, and the memory of an
//! idle session box.
//!
//! The kernel is driven by its own client (`jupyter.py`), which measures its own time. Ours is an
//! HTTP request that is answered when intent and outcome are recorded.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::error::Error;
use crate::memory::{children, private_of};
use crate::samples::{STREAK, Samples, UNCOUNTED};
use crate::server::Server;

/// Made by `scripts/setup bench`.
const INTERPRETER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/jupyter/bin/python");
const SCRIPT: &str = include_str!("jupyter.py");
const CELL: &str = "1+1";

#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) context: Samples,
    /// Or the reason why it was not measured.
    pub(crate) jupyter: Result<Samples, String>,
    /// kB of an idle session box: init and agent, and the interpreter of a context.
    pub(crate) home: u64,
    pub(crate) interpreter: u64,
}

pub(crate) fn measure(ringwall: &Path, rounds: usize) -> Result<Kept, Error> {
    let server = Server::start(ringwall, None)?;
    let mut connection = server.connect()?;
    // No session box is replaced during the measurement, and there are no warm boxes.
    let settings = json!({ "pool": { "max_use_count": 1_000_000, "min_instances": 0 } });
    connection.exchange(&server.request("PUT", "/settings", &settings))?;
    let cell = json!({ "session_id": "bench", "context_id": "bench", "code": CELL });
    let request = server.request("POST", "/api/run", &cell);
    let mut kernel = Kernel::start();
    let (mut context, mut jupyter) = (Samples::default(), Samples::default());
    connection.run(&request)?;
    for _ in 0..rounds.div_ceil(STREAK - UNCOUNTED) {
        context.streak(|| connection.run(&request))?;
        if let Ok(kernel) = &mut kernel {
            jupyter.streak(|| kernel.run())?;
        }
    }
    let jupyter = kernel.map(|_| jupyter).map_err(|error| crate::error::chain(&error));
    // The text of a program that runs once counts as private memory, so a second one is started.
    let another = json!({ "session_id": "another", "context_id": "bench", "code": CELL });
    connection.run(&server.request("POST", "/api/run", &another))?;
    let (home, interpreter) = idle(&server)?;
    Ok(Kept { context, jupyter, home, interpreter })
}

/// Init, its agent and the agent's interpreter, below the server's one child.
fn idle(server: &Server) -> Result<(u64, u64), Error> {
    let missing = || Error::Process { process: server.id(), what: "the box of its session" };
    let only = |process: u32| children(process).first().copied().ok_or_else(missing);
    let init = only(only(server.id())?)?;
    let agent = only(init)?;
    let interpreter = only(agent)?;
    Ok((private_of(init)? + private_of(agent)?, private_of(interpreter)?))
}

#[derive(Debug)]
struct Kernel {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Kernel {
    fn start() -> Result<Self, Error> {
        let mut command = Command::new(INTERPRETER);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let failed =
            |source| Error::Start { program: format!("{INTERPRETER}, which scripts/setup bench makes,"), source };
        let mut process = command.spawn().map_err(failed)?;
        let missing = || failed(std::io::ErrorKind::BrokenPipe.into());
        let (input, output) = (process.stdin.take(), process.stdout.take().ok_or_else(missing)?);
        let mut kernel = Self { process, input, output: BufReader::new(output) };
        match kernel.hear()?.as_str() {
            "ready" => Ok(kernel),
            other => Err(Error::ShellSaid(other.to_owned())),
        }
    }

    fn run(&mut self) -> Result<Duration, Error> {
        if let Some(input) = &mut self.input {
            input.write_all(b"\n").map_err(Error::Speaking)?;
        }
        let said = self.hear()?;
        said.parse().map(Duration::from_nanos).map_err(|_| Error::ShellSaid(said))
    }

    fn hear(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(Error::Speaking)?;
        Ok(line.trim().to_owned())
    }
}

impl Drop for Kernel {
    /// The script ends itself and its kernel at the end of its input.
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.process.wait();
    }
}
