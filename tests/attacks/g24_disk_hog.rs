//! Attack g24: a box keeps a disk busy with fsync loops, which delays the writes of others.
//!
//! The limits are read outside, from the box's cgroup while it lives. Their effect is the time of
//! the box for more writes than it may make in a second; the control makes as many without a box in
//! less time. Without a cgroup limit the report must say so, and `--require io` must refuse.

use std::fs;

use serde_json::{Value, json};
use tests::support::actor::Skip;
use tests::support::host;
use tests::support::payload::Payload;

use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g24", title: "disk hog: fsync loops", run };

/// Writes and syncs a number of times, prints the time it took, and waits until its input ends.
const SYNC: &str = r"
import time
os.chdir(DATA['directory'])
file = os.open('synced', os.O_RDWR | os.O_CREAT, 0o600)
begun = time.monotonic()
for number in range(DATA['times']):
    os.pwrite(file, os.urandom(4096), number % 64 * 4096)
    os.fsync(file)
answer({'seconds': time.monotonic() - begun})
os.unlink('synced')
sys.stdin.read()
";

/// Writes per disk and second that a box may make.
const WRITES: u64 = 500;
const TIMES: u64 = 4 * WRITES;
/// The kernel allows a short burst to an idle cgroup.
const MIN_SECONDS: f64 = 3.0;

fn run(context: &Context) -> Verdict {
    let report = context.boxed().report(&["/bin/true"])?;
    let protections = report.protections("io_limit");
    let Some((_, state, why)) = protections.first() else {
        return Err(Fault::Broken("the report does not list io_limit".into()));
    };
    // On cgroup version 1 it is partial, and holds for fsync.
    if state == "not_available" {
        held(!why.is_empty(), || format!("io_limit is {state} without a reason"))?;
        context.not_served("a served exec has no word for --require")?;
        let refused = context.boxed().option("--require", "io").run(&["/bin/echo", "ran"])?;
        held(refused.code() == Some(2) && refused.text().is_empty(), || refused.describe())?;
        return Ok(format!("{state} ({why}), and --require io refuses"));
    }

    let free = context.scratch.directory("free")?;
    let work = context.workspace("work")?;
    let payload = |directory: &str| Payload::new(SYNC).with(json!({ "directory": directory, "times": TIMES }));
    let outside = context.outside(&payload(&free.to_string_lossy()))?;
    let run = context.boxed().workspace(&work).option("--timeout", "120");
    let mut live = run.start_payload(&payload(context.place()))?;
    let inside: Value = serde_json::from_str(&live.line()?).unwrap_or_default();
    let limits = limits_of_box(context.above(&live))?;
    live.finish()?;

    held(limits.iter().any(|line| line.ends_with(&format!(" {WRITES}")) || line.contains("wiops=500")), || {
        format!("no write limit in the box's cgroup: {limits:?}")
    })?;
    let seconds = |answer: &Value| answer["seconds"].as_f64().unwrap_or_default();
    held(seconds(&inside) >= MIN_SECONDS, || format!("{TIMES} fsyncs in {:.1} s", seconds(&inside)))?;
    if seconds(&outside) >= MIN_SECONDS {
        let why = format!("this disk does {TIMES} fsyncs in {:.1} s without a limit", seconds(&outside));
        return Err(Fault::Skipped(Skip::Impossible(why)));
    }
    control(seconds(&inside) > seconds(&outside), || format!("{inside} inside, {outside} outside"))?;
    Ok(format!("{TIMES} fsyncs: {:.1} s outside, {:.1} s inside", seconds(&outside), seconds(&inside)))
}

/// The disk limits of the cgroups that the processes of a box are in and this test is not.
fn limits_of_box(above: u32) -> Result<Vec<String>, Fault> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let mut found = Vec::new();
    for number in host::descendants(above)? {
        let lines = fs::read_to_string(format!("/proc/{number}/cgroup")).unwrap_or_default();
        for line in lines.lines().filter(|line| !own.lines().any(|mine| mine == *line)) {
            let Some((controllers, path)) = line.split_once(':').and_then(|(_, rest)| rest.split_once(':')) else {
                continue;
            };
            let file = match controllers {
                "" => format!("/sys/fs/cgroup{path}/io.max"),
                "blkio" => format!("/sys/fs/cgroup/blkio{path}/blkio.throttle.write_iops_device"),
                _ => continue,
            };
            let text = fs::read_to_string(file).unwrap_or_default();
            found.extend(text.lines().map(str::to_owned));
        }
    }
    Ok(found)
}
