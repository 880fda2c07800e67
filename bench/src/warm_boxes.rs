//! Code over HTTP in warm boxes: one run at a time with all warm boxes ready, and many at a time with none left.
//!
//! The same line runs in `/usr/bin/python3` without a box for comparison. The memory of a waiting box is read while
//! nothing runs.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::contestant::{Field, time};
use crate::error::Error;
use crate::memory::{children, private_of};
use crate::samples::Samples;
use crate::server::{Connection, Server};
use crate::throughput::at_once;

pub(crate) const CONCURRENCY: usize = 4;
pub(crate) const CODE: &str = "import json,re,os; print(1)";
const PYTHON: &str = "/usr/bin/python3";
/// The number of warm boxes that the server keeps.
const READY: u64 = 2;
const WITHIN: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(10);
/// The runs are made in this many blocks, the contestants taking turns.
const BLOCKS: usize = 4;

#[derive(Debug)]
pub(crate) struct WarmBoxes {
    pub(crate) run: Samples,
    pub(crate) bare: Samples,
    pub(crate) runs: usize,
    pub(crate) rate: f64,
    pub(crate) bare_rate: f64,
    /// Private kB of a warm box: its init, and its interpreter.
    pub(crate) init: u64,
    pub(crate) interpreter: u64,
}

pub(crate) fn measure(field: &Field, rounds: usize, runs: usize) -> Result<WarmBoxes, Error> {
    let server = Server::start(field.ringwall(), None)?;
    let request = server.python(0, CODE);
    let mut connection = server.connect()?;
    // The first request finds no warm box.
    connection.run(&request)?;
    let (mut run, mut bare) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        await_ready(&server, &mut connection)?;
        run.push(connection.run(&request)?);
        bare.push(time(&mut python())?);
    }
    let post = |agent| {
        let mut connection = server.connect()?;
        let request = server.python(agent, CODE);
        Ok(move || connection.run(&request).map(drop))
    };
    let plain = |_| Ok(|| time(&mut python()).map(drop));
    let mut seconds = [0.0; 2];
    let block = runs.div_ceil(BLOCKS);
    for _ in 0..BLOCKS {
        seconds[0] += at_once(CONCURRENCY, block, post)?;
        seconds[1] += at_once(CONCURRENCY, block, plain)?;
    }
    let [rate, bare_rate] = seconds.map(|seconds| (block * BLOCKS) as f64 / seconds);
    // The server has closed the first connection, which was idle for too long.
    await_ready(&server, &mut server.connect()?)?;
    let (init, interpreter) = waiting(&server)?;
    Ok(WarmBoxes { run, bare, runs: block * BLOCKS, rate, bare_rate, init, interpreter })
}

fn python() -> Command {
    let mut command = Command::new(PYTHON);
    command.args(["-c", CODE]).stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Waits until all warm boxes are ready and none is being made.
fn await_ready(server: &Server, connection: &mut Connection) -> Result<(), Error> {
    let began = Instant::now();
    loop {
        let text = connection.fetch(&server.request_without_body("GET", "/metrics"))?;
        let text = String::from_utf8_lossy(&text);
        let gauge = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        let ready = gauge("ringwall_spares_idle ").is_some_and(|idle| idle >= READY);
        if ready && gauge("ringwall_spares_being_made ") == Some(0) {
            return Ok(());
        }
        if began.elapsed() > WITHIN {
            return Err(Error::Process { process: server.id(), what: "its warm boxes" });
        }
        std::thread::sleep(GLANCE);
    }
}

/// A warm box is an init with one child, below the server's one child.
fn waiting(server: &Server) -> Result<(u64, u64), Error> {
    let inits = children(server.id()).into_iter().flat_map(children);
    let found = inits.filter_map(|init| Some((init, children(init).first().copied()?))).next();
    let (init, interpreter) = found.ok_or(Error::Process { process: server.id(), what: "its warm boxes" })?;
    Ok((private_of(init)?, private_of(interpreter)?))
}
