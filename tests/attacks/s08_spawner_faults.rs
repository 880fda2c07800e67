//! Fault s08: the spawner of a server is killed or stopped. No box may outlive it or run without
//! it, and waiting callers get an error.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tests::support::host;
use tests::support::payload::Payload;
use tests::support::scratch::token;

use crate::probe::{Context, Fault, Probe, Verdict, boxes, comes, control, held};

pub(crate) const PROBE: Probe = Probe { id: "s08", title: "the spawner is killed or stopped", run };

const HOLD: &str = "answer('here')\nsys.stdin.read()\nanswer('unharmed')";

/// The server's child that is not in a box. A replaced one may take a moment to end.
fn spawner(server: u32) -> Result<Pid, Fault> {
    let own = fs::read_link("/proc/self/ns/pid")?;
    let is_outside = |number: &u32| fs::read_link(format!("/proc/{number}/ns/pid")).is_ok_and(|id| id == own);
    let look = || host::descendants(server).map(|all| all.into_iter().filter(is_outside).collect::<Vec<u32>>());
    comes(|| look().is_ok_and(|found| found.len() == 1));
    let found = look()?;
    let [number] = found[..] else { return Err(Fault::Inconclusive(format!("spawners: {found:?}"))) };
    i32::try_from(number).ok().and_then(Pid::from_raw).ok_or_else(|| Fault::Inconclusive("no number".into()))
}

fn run(context: &Context) -> Verdict {
    let server = context.server()?;
    let hold = Payload::new(HOLD).with(json!(token()?));
    let mut live = context.boxed().start_payload(&hold)?;
    live.line()?;
    let control_run = context.boxed().run(&["/bin/echo", "runs"])?;
    control(control_run.text() == "runs\n", || control_run.describe())?;
    // By PID, because boxes have no parent once the spawner has ended.
    let doomed = boxes(server)?;
    control(!doomed.is_empty(), || "the box of the probe is not there".into())?;
    kill_process(spawner(server.id())?, Signal::KILL)?;
    held(comes(|| !doomed.iter().any(|number| host::is_alive(*number))), || "a box outlives its spawner".into())?;
    let ended = live.finish()?;
    held(ended.code() != Some(0) && !ended.text().contains("unharmed"), || ended.describe())?;
    let killed = ended.code();
    let next = context.boxed().run(&["/bin/echo", "again"])?;
    held(next.text() == "again\n", || format!("after a killed spawner: {}", next.describe()))?;

    // No box may be left, so that one seen while the spawner is stopped is new.
    held(comes(|| boxes(server).is_ok_and(|left| left.is_empty())), || "a box outlives its command".into())?;
    let stopped = spawner(server.id())?;
    kill_process(stopped, Signal::STOP)?;
    let seen = stand_still(context);
    // The replaced spawner must be gone.
    let _ = kill_process(stopped, Signal::CONT);
    seen?;
    held(spawner(server.id())? != stopped, || "the parent that stood still was kept".into())?;
    let next = context.boxed().run(&["/bin/echo", "again"])?;
    held(next.text() == "again\n", || format!("after a stopped spawner: {}", next.describe()))?;
    Ok(format!("its box ended with {killed:?}, nothing runs without it, the next one does"))
}

/// While the spawner is stopped the server answers, a waiting exec can be cancelled, and one that is not is given up;
/// then the next exec runs.
fn stand_still(context: &Context) -> Result<(), Fault> {
    let server = context.server()?;
    let authorization = format!("Bearer {}", server.token);
    let headers = [("authorization", authorization.as_str()), ("prefer", "respond-async")];
    let body =
        json!({ "project_id": "still", "exec": { "kind": "shell", "command": "bash", "args": ["-lc", "echo ran"] } });
    let begin = || {
        let answer = server.ask_with("POST", "/sandbox/execs", &headers, Some(&body)).expect(202);
        answer["exec_id"].as_str().unwrap_or_default().to_owned()
    };
    let (given_up, waiting) = (begin(), begin());
    held(server.ask("GET", "/healthz", None).status == 200, || "the server does not answer".into())?;
    let cancelled = server.ask("DELETE", &format!("/sandbox/execs/{given_up}"), None);
    held(cancelled.status == 202, || format!("cannot be cancelled: {}", cancelled.status))?;
    held(boxes(server)?.is_empty(), || "a box came to be without the spawner".into())?;
    // The events end with the exec.
    let events = server.ask("GET", &format!("/sandbox/execs/{waiting}/events"), None);
    let told = String::from_utf8_lossy(&events.bytes).into_owned();
    held(told.contains("FAILED") && told.contains("RUNTIME_ERROR"), || format!("not given up: {told}"))?;
    let next = context.boxed().run(&["/bin/echo", "replaced"])?;
    held(next.text() == "replaced\n", || format!("while the spawner stands still: {}", next.describe()))
}
