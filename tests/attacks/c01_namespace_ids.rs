//! Check c01: seen from the host, all threads of all processes in the box share namespaces that are
//! not the host's, and none has a capability.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use serde_json::Value;
use tests::support::actor::tester_is_root;
use tests::support::host;
use tests::support::payload::Payload;
use tests::support::process::LiveProcess;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "c01", title: "namespaces differ from the host's, on every thread", run };

/// Three threads and a child that all wait for the end of input.
const WAIT: &str = r"
import threading
gate = threading.Event()
for _ in range(3):
    threading.Thread(target=gate.wait).start()
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
answer('waiting')
sys.stdin.read()
gate.set()
os.waitpid(child, 0)
";

fn run(context: &Context) -> Verdict {
    let payload = Payload::new(WAIT);
    let words = payload.arguments();
    let mut command = context.mode.identity().command(&words[0]);
    command.args(&words[1..]);
    let mut bare = LiveProcess::start(command)?;
    bare.line()?;
    let own = host::thread_namespaces("self")?;
    let shared = host::thread_namespaces(&bare.id().to_string())?;
    control(shared.len() == 4 && shared.iter().all(|ids| *ids == own[0]), || {
        format!("an unboxed process has {} threads in {shared:?}", shared.len())
    })?;
    bare.finish()?;

    let mut live = context.boxed().start_payload(&payload)?;
    live.line()?;
    let mut seen = BTreeSet::new();
    let mut threads = 0;
    let mut processes = 0;
    let mut closed = 0;
    let mut faults = Vec::new();
    for number in host::descendants(context.above(&live))? {
        let ids = match host::thread_namespaces(&number.to_string()) {
            // Only root can inspect init; the other processes are visible.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && !tester_is_root() => {
                closed += 1;
                continue;
            }
            other => other?,
        };
        // A helper of ours that stays on the host is not in the box.
        if ids.iter().all(|one| one["pid"] == own[0]["pid"]) {
            continue;
        }
        processes += 1;
        for one in ids {
            threads += 1;
            faults.extend(
                one.iter()
                    .filter(|(kind, id)| own[0].get(*kind) == Some(*id))
                    .map(|(kind, _)| format!("process {number} shares the {kind} namespace")),
            );
            seen.insert(one);
        }
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            let value = host::field(number, set).unwrap_or_default();
            let is_init = host::field(number, "NSpid").is_some_and(|numbers| numbers.ends_with("\t1"));
            if !value.trim_start_matches('0').is_empty() && !is_init {
                faults.push(format!("process {number} has {set} {value}"));
            }
        }
    }
    let ended = live.finish()?;
    control(ended.code() == Some(0) && ended.text().contains("waiting"), || ended.describe())?;
    control(processes >= 2 && threads >= 5, || format!("only {processes} processes, {threads} threads were found"))?;
    control(closed <= 2, || format!("{closed} processes cannot be looked at"))?;
    held(faults.is_empty(), || faults.join("; "))?;
    held(seen.len() == 1, || format!("the threads are in {} different sets: {seen:?}", seen.len()))?;
    Ok(format!(
        "{processes} processes, {threads} threads, {} namespaces of their own",
        Value::from(host::NAMESPACES.len())
    ))
}
