//! Attack g25: a box takes epoll watches and unreceived descriptors, which the kernel counts per user id.
//!
//! A rootless box has the uid of the user who runs Ringwall. It is ended when it holds more than its cap, also when it
//! hides its descriptors from PID 1 with `PR_SET_DUMPABLE`. As root the boxes of an agent have a uid that is not the
//! server's, and keep what they took.
//! The control takes the same outside. In both modes the report says for each counter whether it is the box's own, and
//! `--require` refuses a box that shares it.

use serde_json::{Value, json};
use tests::support::actor::Mode;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g25", title: "take counters of the user who runs Ringwall", run };

/// Takes, reports it, and waits until it is killed; gives up after a while.
const TAKE: &str = r"
import ctypes, resource, select, socket, threading, time
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
if DATA['how'] == 'hidden':
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
held = []
def take():
    taken, wanted = 0, DATA['watches']
    if wanted:
        files = [os.eventfd(0) for _ in range(200)]
        while taken < wanted:
            held.append((select.epoll(), files))
            for file in files:
                held[-1][0].register(file, select.EPOLLIN)
            taken += len(files)
    else:
        wanted = min(1024, limit // 4) * 5 // 4
        null = os.open('/dev/null', os.O_RDONLY)
        while taken < wanted:
            if taken % 200 == 0:
                held.append(socket.socketpair())
            socket.send_fds(held[-1][0], [b'x'], [null] * 20)
            taken += 20
    time.sleep(DATA['seconds'])
    answer({'taken': taken, 'wanted': wanted})
    sys.stdout.flush()
    os._exit(0)
if DATA['how'] == 'crowded':
    each, fillers, (ready, tell) = min(limit - 50, 2200), [], os.pipe()
    for _ in range(50_000 // each + 2):
        fillers.append(os.fork())
        if fillers[-1] == 0:
            for _ in range(each):
                os.dup(0)
            os.write(tell, b'x')
            signal.pause()
    for _ in fillers:
        os.read(ready, 1)
    taker = os.fork()
    if taker == 0:
        take()
    os.waitpid(taker, 0)
    for filler in fillers:
        os.kill(filler, signal.SIGKILL)
        os.waitpid(filler, 0)
    os._exit(0)
if DATA['how'] == 'leaderless':
    threading.Thread(target=take).start()
    libc.syscall(ctypes.c_long(60 if MACHINE == 0 else 93), 0)
take()
";

/// The resource and number to take, and how the process hides it: with `PR_SET_DUMPABLE`, from a
/// thread after the first thread of the process has ended, or behind processes with more than
/// 50,000 descriptors, which one count does not read.
///
/// The number of descriptors is 5/4 of what a rootless box may hold, a quarter of its
/// RLIMIT_NOFILE. A fixed number fails: that limit is `fs.file-max` / 4 / processes, and 1,201 for
/// the 512 processes of the suite's server on a machine with 24 GB.
const WAYS: [(u64, &str); 5] =
    [(100_000, "open"), (100_000, "hidden"), (100_000, "leaderless"), (100_000, "crowded"), (0, "hidden")];
const COUNTERS: [&str; 6] =
    ["epoll_watches", "inotify_instances", "pending_signals", "pipe_pages", "passed_descriptors", "user_processes"];
/// The kernel charges these to the user who made the box's user namespace: as root to root.
const NEVER_ITS_OWN: [&str; 2] = ["inotify_instances", "pending_signals"];

fn run(context: &Context) -> Verdict {
    let take = |(watches, how): (u64, &str), seconds: u32| {
        Payload::new(TAKE).with(json!({ "watches": watches, "how": how, "seconds": seconds }))
    };
    let has_taken = |answer: &Value| answer["taken"].as_u64() >= answer["wanted"].as_u64() && answer["taken"].is_u64();
    for way in WAYS {
        let outside = context.outside(&take(way, 0))?;
        control(has_taken(&outside), || format!("{way:?} is refused outside too: {outside}"))?;
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
                held(has_taken(&answer), || format!("{way:?} of the box's own uid were refused: {answer}"))?;
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
