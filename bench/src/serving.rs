//! An exec over HTTP: one after another, eight at a time, ten thousand in a row.
//!
//! The server is warm, the connection is kept, and the answer comes when intent and outcome are recorded. The command
//! is the contract's form, a login shell that runs `true`. Compared with a persistent shell that runs `bwrap … true`, and
//! with bubblewrap started directly with `true` and with the login shell.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::contestant::{Field, time};
use crate::error::Error;
use crate::latency::Shuffle;
use crate::samples::{STREAK, Samples, UNCOUNTED};
use crate::server::{Backend, Holdings, Server};
use crate::shell::Shell;
use crate::throughput::{CONCURRENCY, at_once};

const TRUE: [&str; 1] = ["/bin/true"];
const LOGIN_SHELL: [&str; 3] = ["/bin/bash", "-lc", "true"];
const WARM_UP: usize = 20;
/// The runs are made in this many blocks, the contestants taking turns.
const BLOCKS: usize = 4;
/// How much of the long run counts as its beginning and as its end.
const PART: usize = 10;

#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) exec: Samples,
    pub(crate) bwrap: Samples,
    pub(crate) shell_bwrap: Samples,
    pub(crate) bwrap_shell: Samples,
    pub(crate) rate: f64,
    pub(crate) bwrap_rate: f64,
    pub(crate) shell_bwrap_rate: f64,
    pub(crate) bwrap_shell_rate: f64,
    pub(crate) endurance: Endurance,
}

/// The beginning and the end of many execs in a row.
#[derive(Debug)]
pub(crate) struct Endurance {
    pub(crate) execs: usize,
    pub(crate) first: Samples,
    pub(crate) last: Samples,
    pub(crate) before: Holdings,
    pub(crate) after: Holdings,
}

pub(crate) fn measure(field: &Field, rounds: usize, runs: usize, endurance: usize) -> Result<Serving, Error> {
    let server = Server::start(field.ringwall(), None)?;
    let exec = server.exec(0, Backend::Native);
    let mut connection = server.connect()?;
    let mut from_a_shell = Shell::for_command(&field.bubblewrap(&TRUE))?;
    let mut samples = [const { Samples::new() }; 4];
    let mut shuffle = Shuffle::default();
    (0..WARM_UP).try_for_each(|_| connection.run(&exec).map(drop))?;
    for _ in 0..rounds.div_ceil(STREAK - UNCOUNTED) {
        for turn in shuffle.order(samples.len()) {
            samples[turn].streak(|| match turn {
                0 => connection.run(&exec),
                1 => time(&mut field.bubblewrap(&TRUE)),
                2 => from_a_shell.run(),
                _ => time(&mut field.bubblewrap(&LOGIN_SHELL)),
            })?;
        }
    }
    let [exec_samples, bwrap, shell_bwrap, bwrap_shell] = samples;
    let post = |agent| {
        let mut connection = server.connect()?;
        let exec = server.exec(agent, Backend::Native);
        Ok(move || connection.run(&exec).map(drop))
    };
    let plain = |_| Ok(|| time(&mut field.bubblewrap(&TRUE)).map(drop));
    let from_shells = |_| {
        let mut shell = Shell::for_command(&field.bubblewrap(&TRUE))?;
        Ok(move || shell.run().map(drop))
    };
    let login_shell = |_| Ok(|| time(&mut field.bubblewrap(&LOGIN_SHELL)).map(drop));
    let mut seconds = [0.0; 4];
    let block = runs.div_ceil(BLOCKS);
    for _ in 0..BLOCKS {
        seconds[0] += at_once(CONCURRENCY, block, post)?;
        seconds[1] += at_once(CONCURRENCY, block, plain)?;
        seconds[2] += at_once(CONCURRENCY, block, from_shells)?;
        seconds[3] += at_once(CONCURRENCY, block, login_shell)?;
    }
    let [rate, bwrap_rate, shell_bwrap_rate, bwrap_shell_rate] =
        seconds.map(|seconds| (block * BLOCKS) as f64 / seconds);
    Ok(Serving {
        exec: exec_samples,
        bwrap,
        shell_bwrap,
        bwrap_shell,
        rate,
        bwrap_rate,
        shell_bwrap_rate,
        bwrap_shell_rate,
        endurance: endure(&server, endurance)?,
    })
}

/// The same exec on docker and on the native backend of one server, in turns.
pub(crate) fn beside_docker(ringwall: &Path, client: &Path, rounds: usize) -> Result<(Samples, Samples), Error> {
    let server = Server::start(ringwall, Some(client))?;
    let (native, docker) = (server.exec(0, Backend::Native), server.exec(0, Backend::Docker));
    let mut connection = server.connect()?;
    let (mut native_samples, mut docker_samples) = (Samples::default(), Samples::default());
    for round in 0..=rounds {
        let (one, other) = (connection.run(&docker)?, connection.run(&native)?);
        if round > 0 {
            docker_samples.push(one);
            native_samples.push(other);
        }
    }
    Ok((native_samples, docker_samples))
}

/// Eight agents at a time, each with its own connection, so latencies at the beginning and the end have the same load.
/// Memory and descriptors are compared between the middle and the end, because bounded caches fill during the first
/// hundreds of execs.
fn endure(server: &Server, execs: usize) -> Result<Endurance, Error> {
    let part = execs.div_ceil(PART);
    let run = |count: usize| -> Result<Samples, Error> {
        let taken = AtomicUsize::new(0);
        let work = |agent: usize| -> Result<Vec<_>, Error> {
            let mut connection = server.connect()?;
            let exec = server.exec(agent, Backend::Native);
            let mut times = Vec::new();
            while taken.fetch_add(1, Ordering::Relaxed) < count {
                times.push(connection.run(&exec)?);
            }
            Ok(times)
        };
        let mut samples = Samples::default();
        std::thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..CONCURRENCY).map(|agent| scope.spawn(move || work(agent))).collect();
            threads.into_iter().try_for_each(|thread| {
                let times = thread.join().map_err(|_| Error::Thread)??;
                times.into_iter().for_each(|time| samples.push(time));
                Ok::<(), Error>(())
            })
        })?;
        Ok(samples)
    };
    let first = run(part)?;
    run((execs / 2).saturating_sub(part))?;
    let before = server.holdings()?;
    run((execs / 2).saturating_sub(part))?;
    let last = run(part)?;
    Ok(Endurance { execs, first, last, before, after: server.holdings()? })
}
