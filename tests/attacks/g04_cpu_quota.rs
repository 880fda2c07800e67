//! Attack g04: a box spins on more threads than the machine has CPUs. It must use no more than its
//! quota, half a CPU; outside, even a busy machine gives more. If the kernel cannot enforce the
//! quota, the protections must say so.

use std::thread::available_parallelism;

use serde_json::json;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g04", title: "spin on every processor under a quota of half of one", run };

/// Spins for two seconds in the given number of children and prints CPU time divided by wall time.
const SPIN: &str = r"
import time
start = time.monotonic()
for _ in range(DATA):
    if os.fork() == 0:
        while time.monotonic() - start < 2:
            pass
        os._exit(0)
used = 0
for _ in range(DATA):
    usage = os.wait3(0)[2]
    used += usage.ru_utime + usage.ru_stime
answer(used / (time.monotonic() - start))
";

fn run(context: &Context) -> Verdict {
    let processors = available_parallelism()?.get();
    let payload = Payload::new(SPIN).with(json!(2 * processors));
    let report = context.boxed().option("--cpus", "0.5").option("--timeout", "60").report_payload(&payload)?;
    let states = report.protections("cpu");
    control(!states.is_empty(), || format!("no protection tells of cpu: {}", report.value["protections"]))?;
    if states.iter().all(|(_, state, _)| state == "not_available") {
        held(states.iter().all(|(_, _, why)| !why.is_empty()), || "no reason is given for the missing quota".into())?;
        return Ok(format!("not held, and said so: {states:?}"));
    }
    // On a busy machine the control may get less; one good try is enough.
    let mut free = 0.0_f64;
    for _ in 0..10 {
        free = free.max(context.outside(&payload)?.as_f64().unwrap_or_default());
        if free > 0.9 {
            break;
        }
    }
    control(free > 0.9, || format!("outside it used only {free:.2} processors"))?;
    let inside: f64 = report.stdout().trim().parse().unwrap_or(f64::MAX);
    held(inside < 0.7, || format!("used {inside:.2} processors under a quota of half of one; {}", report.summary()))?;
    let used = report.number("/usage/cpu_ms").unwrap_or_default();
    let passed = report.number("/duration_ms").unwrap_or_default();
    held(used <= passed * 7 / 10 + 300, || format!("{used} ms of processor in {passed} ms"))?;
    Ok(format!("{inside:.2} processors inside, {free:.2} outside; reported {used} ms in {passed} ms"))
}
