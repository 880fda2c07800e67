//! Attack g25: a box takes epoll watches and unreceived descriptors, which the kernel counts per user id.
//!
//! A rootless box has the uid of the user who runs Ringwall. It is ended when it holds more than its cap, also when it
//! hides its descriptors from PID 1 with `PR_SET_DUMPABLE`. As root the boxes of an agent have a uid that is not the
//! server's, and keep what they took.
//! The control takes the same outside. In both modes the report says for each counter whether it is the box's own, and
//! `--require` refuses a box that shares it.

use serde_json::json;
use tests::support::actor::Mode;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g25", title: "take counters of the user who runs Ringwall", run };

/// Takes, says so, and waits to be ended; gives up after a while.
const TAKE: &str = r"
import ctypes, resource, select, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
if DATA['hidden']:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
taken = 0
if DATA['what'] == 'watches':
    files, instances = [os.eventfd(0) for _ in range(1000)], []
    while taken < DATA['count']:
        instances.append(select.epoll())
        for file in files:
            instances[-1].register(file, select.EPOLLIN)
        taken += len(files)
else:
    null, pairs = os.open('/dev/null', os.O_RDONLY), []
    while taken < DATA['count']:
        pairs.append(socket.socketpair())
        for _ in range(10):
            socket.send_fds(pairs[-1][0], [b'x'], [null] * 20)
            taken += 20
time.sleep(DATA['seconds'])
answer({'taken': taken})
";

/// What is taken, how much, and whether a process hides it. 1,200 is above the 1,024 descriptors of a rootless box; boxes
/// of one agent share a uid as root, so an earlier box can still be charged for some.
const WAYS: [(&str, u64, bool); 3] = [("watches", 100_000, false), ("watches", 100_000, true), ("passed", 1200, true)];
const COUNTERS: [&str; 6] =
    ["epoll_watches", "inotify_instances", "pending_signals", "pipe_pages", "passed_descriptors", "user_processes"];
/// The user who made a box's user namespace is charged for these, which is root as root.
const NEVER_ITS_OWN: [&str; 2] = ["inotify_instances", "pending_signals"];

fn run(context: &Context) -> Verdict {
    let take = |(what, count, hidden): (&str, u64, bool), seconds: u32| {
        Payload::new(TAKE).with(json!({ "what": what, "count": count, "hidden": hidden, "seconds": seconds }))
    };
    for way in WAYS {
        let outside = context.outside(&take(way, 0))?;
        control(outside["taken"] == way.1, || format!("{way:?} is refused outside too: {outside}"))?;
    }
    for way in WAYS {
        let run = context.boxed().option("--timeout", "60");
        match context.mode {
            Mode::Rootless => {
                let report = run.report_payload(&take(way, 50))?;
                held(report.number("/signal") == Some(9) && !report.is_set("timed_out"), || {
                    format!("{way:?} of the user were kept: {}", report.summary())
                })?;
            }
            Mode::Root => {
                let answer = context.inside(&run, &take(way, 3))?;
                held(answer["taken"] == way.1, || format!("{way:?} of the box's own uid were refused: {answer}"))?;
            }
        }
    }
    let report = context.boxed().report(&["true"])?;
    for counter in COUNTERS {
        let is_own = context.mode == Mode::Root && !NEVER_ITS_OWN.contains(&counter);
        let state = if is_own { "enforced" } else { "partial" };
        let found = report.protections(counter);
        held(found.len() == 1 && found[0].1 == state, || format!("{counter} is not {state}: {found:?}"))?;
        if context.is_served() {
            continue;
        }
        let required = context.boxed().option("--require", counter).run(&["true"])?;
        held((required.code() == Some(0)) == is_own, || format!("--require {counter}: {}", required.describe()))?;
    }
    Ok(match context.mode {
        Mode::Rootless => format!("{} ways ended, all counters partial", WAYS.len()),
        Mode::Root => format!("{} ways at the box's own cost", WAYS.len()),
    })
}
