//! Attack g15: thousands of orphans exit at once under a small process limit. The box's init must
//! reap them, so that the limit is not used up.

use serde_json::json;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g15", title: "zombie storm", run };

/// Each round orphans one process that ends at once. Every orphan holds the pipe, so its end shows
/// that all are dead; processes still in the table are zombies.
const STORM: &str = r"
import time
if DATA['adopt']:
    libc.prctl(36, 1, 0, 0, 0)
reader, writer = os.pipe()
made, refused = 0, 0
# Sixty seconds without a single success mean that the table is full for good; a slow machine only takes longer.
last = time.monotonic()
while made < DATA['orphans'] and time.monotonic() < last + 60:
    try:
        child = os.fork()
    except BlockingIOError:
        refused += 1
        os.sched_yield()
        continue
    if child == 0:
        try:
            os.fork()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    made += 1
    last = time.monotonic()
os.close(writer)
os.read(reader, 1)
def zombies():
    count = 0
    for name in os.listdir('/proc'):
        if name.isdigit():
            try:
                with open('/proc/%s/stat' % name) as file:
                    fields = file.read().rsplit(')', 1)[1].split()
            except OSError:
                continue
            count += fields[0] == 'Z' and int(fields[1]) == (os.getpid() if DATA['adopt'] else 1)
    return count
remaining = zombies()
while remaining and not DATA['adopt'] and time.monotonic() < last + 60:
    os.sched_yield()
    remaining = zombies()
answer({'made': made, 'refused': refused, 'zombies': remaining})
";

fn run(context: &Context) -> Verdict {
    let storm = |adopt: bool, orphans: u32| Payload::new(STORM).with(json!({ "adopt": adopt, "orphans": orphans }));
    // Outside, a parent that adopts orphans and never waits collects them as zombies.
    let outside = context.outside(&storm(true, 100))?;
    control(outside["zombies"].as_u64() >= Some(90), || format!("no zombies gather outside: {outside}"))?;
    let orphans = context.effort.choose(3000, 30_000);
    let inside =
        context.inside(&context.boxed().option("--pids", "32").option("--timeout", "230"), &storm(false, orphans))?;
    held(inside["made"] == orphans, || format!("the table filled up: {inside}"))?;
    held(inside["zombies"] == 0, || format!("zombies remain: {inside}"))?;
    Ok(format!("{inside} under a limit of 32"))
}
