//! Attack g21: a box hides memory from a limit that PID 1 enforces: it lowers its own limits, ends
//! the first thread of a hog, uses page tables instead of pages, and floods PID 1 with signals.
//! With a limit in the kernel none of this has an effect either.

use serde_json::json;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g21", title: "blind the memory meter", run };

/// Holds 400 MB in the given way until it is killed, or gives up after a while and prints so.
const HOLD: &str = r"
import mmap, resource, threading, time
how, megabytes = DATA['how'], 400
def hold():
    return bytearray(b'x') * (megabytes << 20)
def sit():
    kept = hold()
    time.sleep(DATA['seconds'])
    answer({'outcome': 'ok'})
    os._exit(0)
if how == 'lowered limits':
    outcome = attempt(lambda: resource.prlimit(DATA['victim'] or os.getpid(), resource.RLIMIT_NOFILE, (3, 3)))
    sit()
elif how == 'dead leader':
    threading.Thread(target=sit).start()
    libc.syscall(60, 0)
elif how == 'page tables':
    area = mmap.mmap(-1, 220 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, mmap.PROT_READ)
    area.madvise(mmap.MADV_NOHUGEPAGE)
    for place in range(0, 220 << 30, 2 << 20):
        area[place]
    time.sleep(DATA['seconds'])
    answer({'outcome': 'ok'})
elif how == 'signal flood':
    for _ in range(3):
        if os.fork() == 0:
            while True:
                for number in range(34, 65):
                    try:
                        os.kill(DATA['victim'], number)
                    except OSError:
                        pass
    sit()
";

const WAYS: [&str; 4] = ["lowered limits", "dead leader", "page tables", "signal flood"];

fn run(context: &Context) -> Verdict {
    let hold = |how: &str, victim: u32, seconds: u32| {
        Payload::new(HOLD).with(json!({ "how": how, "victim": victim, "seconds": seconds }))
    };
    for how in ["lowered limits", "dead leader", "page tables"] {
        let outside = context.outside(&hold(how, 0, 0))?;
        control(outside["outcome"] == "ok", || format!("{how} fails outside too: {outside}"))?;
    }
    for how in WAYS {
        let run = context.boxed().option("--memory-mb", "128").option("--timeout", "30");
        let report = run.report_payload(&hold(how, 1, 20))?;
        held(report.is_set("oom_killed"), || format!("{how}: held 400 MB of 128: {}", report.summary()))?;
    }
    Ok(format!("{}: each ended for memory", WAYS.join(", ")))
}
