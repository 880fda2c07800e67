//! Attack s13: boxes of a rootless server use up the RLIMIT_NPROC of the server's user.
//!
//! Processes in a box also count for the user who made its user namespace. The server runs as a user whom nothing else
//! uses, with a limit of 400. Boxes that fork until they are refused must leave a part to the server: the verdict is
//! how many processes a program of that user, under the same limit, can still start outside. In the control another
//! program outside has forked as the boxes do, and none is left.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::actor::{Identity, Mode};
use tests::support::asked::Asked;
use tests::support::boxed::BoxRun;
use tests::support::payload::Payload;
use tests::support::process::LiveProcess;
use tests::support::scratch::Scratch;
use tests::support::server::{Server, Starter};

use crate::g01_fork_bomb::FORK;
use crate::probe::{Context, Fault, Probe, Verdict, comes, control, held, need_root};

pub(crate) const PROBE: Probe = Probe { id: "s13", title: "boxes take all processes of the server's user", run };

const LIMIT: u64 = 400;
/// A quarter of the limit is reserved for the server, which itself uses some of it.
const LEFT: u64 = 40;
/// Each forks up to 200 times.
const BOXES: usize = 3;

fn run(context: &Context) -> Verdict {
    if context.mode != Mode::Rootless {
        return Err(Fault::Senseless("root is exempt from RLIMIT_NPROC".into()));
    }
    need_root("it needs a user whom nothing else uses")?;
    let mut greedy = Vec::new();
    for _ in 0..BOXES {
        let mut live = outside()?;
        live.line()?;
        greedy.push(live);
    }
    let (count, refusal) = forks(outside()?)?;
    control(count < LEFT && refusal == "EAGAIN", || format!("{count} processes are left outside: {refusal}"))?;
    for live in greedy {
        live.finish()?;
    }
    control(comes(|| running() == 0), || format!("{} processes stay outside", running()))?;

    let home = Scratch::new(Identity::Alone)?;
    let starter = Starter { identity: Identity::Alone, binary: limited(&home, &context.binary)? };
    let server = Server::start_as(&starter, TempDir::with_prefix("rw-counters-")?, &[]);
    let limits = json!({ "limits": { "pids": 512 }, "max_concurrent_execs": 8, "max_concurrent_execs_per_user": 8 });
    server.ask("PUT", "/settings", Some(&json!({ "sandbox": limits }))).expect(200);
    let asked = Asked::of(&server, &server.token, "default");
    let (mut boxes, mut refusals) = (Vec::new(), Vec::new());
    for _ in 0..BOXES {
        // The client of the server, which runs as the tester.
        let run = BoxRun::new(Mode::Root, &context.binary).asked(asked.clone()).option("--pids", "300");
        let mut live = run.start_payload(&Payload::new(FORK))?;
        match live.line() {
            Ok(answer) => boxes.push((live, answer)),
            // No process was left for the box itself.
            Err(_) => refusals.push(live.finish()?.describe()),
        }
    }
    let refused = boxes.iter().any(|(_, answer)| answer.contains("EAGAIN"));
    control(refused, || format!("the boxes met no limit: {refusals:?}"))?;
    let (left, _) = forks(outside()?)?;
    held(left >= LEFT, || format!("boxes left {left} of {LIMIT} processes to the server's user"))?;
    let health = server.ask("GET", "/healthz", None);
    held(health.status == 200, || format!("the server answers {health:?}"))?;
    for (live, _) in boxes {
        live.finish()?;
    }
    comes(|| running() < LEFT);
    let after = server.shell("echo well");
    held(after["status"] == "SUCCEEDED", || format!("no box starts after them: {after}"))?;
    Ok(format!("{left} of {LIMIT} processes left to the server's user"))
}

/// Forks as the boxes do, as the server's user and under its limit.
fn outside() -> Result<LiveProcess, Fault> {
    let limit = format!("ulimit -u {LIMIT}; exec \"$@\"");
    let mut words: Vec<OsString> = ["-c", &limit, "sh"].map(OsString::from).into();
    words.extend(Payload::new(FORK).arguments());
    let mut command = Identity::Alone.command("/bin/bash");
    command.args(words);
    Ok(LiveProcess::start(command)?)
}

/// How many processes it could start, and what refused the next.
fn forks(mut live: LiveProcess) -> Result<(u64, String), Fault> {
    let answer: Value = serde_json::from_str(&live.line()?).unwrap_or_default();
    live.finish()?;
    Ok((answer["count"].as_u64().unwrap_or(0), answer["refusal"].as_str().unwrap_or_default().to_owned()))
}

/// Processes of the server's user.
fn running() -> u64 {
    let own = Identity::Alone.id().0;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_own = |entry: &std::fs::DirEntry| entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own);
    entries.filter(is_own).count() as u64
}

/// The product under the limit.
fn limited(home: &Scratch, binary: &Path) -> Result<PathBuf, Fault> {
    let script = format!("#!/bin/bash\nulimit -u {LIMIT}\nexec '{}' \"$@\"\n", binary.display());
    Ok(home.file("ringwall", script.as_bytes(), 0o755)?)
}
