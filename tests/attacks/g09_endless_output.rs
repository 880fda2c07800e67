//! Attack g09: a box prints without end. Ringwall's memory must not grow, the box is not killed,
//! the truncation is flagged and every byte counted. With a reader that never reads the timeout
//! still applies.

use tests::support::boxed::Report;
use tests::support::payload::MEASURED;

use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g09", title: "gigabytes of output, read or unread", run };

const PEAK_KIB: u64 = 64 * 1024;

/// Starts a child and never reads its standard output. If the child still runs after a minute, far beyond its timeout, it
/// is killed and the exit code is 99.
const UNREAD: &str = r"
import os, signal, sys
def late(*_):
    os.kill(child, signal.SIGKILL)
    os._exit(99)
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    os.dup2(writer, 1)
    os.close(reader)
    os.close(writer)
    os.execvp(sys.argv[1], sys.argv[1:])
os.close(writer)
signal.signal(signal.SIGALRM, late)
signal.alarm(60)
status = os.waitpid(child, 0)[1]
sys.exit(os.waitstatus_to_exitcode(status) % 256)
";

fn run(context: &Context) -> Verdict {
    context.not_served("s05 floods a server and measures that")?;
    let bytes: u64 = context.effort.choose(1, 10) << 30;
    let script = format!("yes 0123456789abcdef | head -c {bytes}; echo finished >&2");
    let outside = context.bare(&["/bin/sh", "-c", &format!("({script}) | wc -c")])?;
    control(outside.text().trim() == bytes.to_string(), || outside.describe())?;

    let run = context.boxed().option("--timeout", "230").flag("--json").through(MEASURED, &[]);
    let outcome = run.run(&["/bin/sh", "-c", &script])?;
    let peak = outcome
        .errors()
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("peak_kib=")?.parse::<u64>().ok())
        .ok_or_else(|| Fault::Inconclusive(format!("no peak was measured: {}", outcome.describe())))?;
    let report = Report::read(outcome)?;
    held(report.is_set("stdout_truncated"), || format!("truncation is not flagged: {}", report.summary()))?;
    held(report.number("/stdout_bytes") == Some(bytes), || format!("miscounted: {}", report.summary()))?;
    held(report.value["exit_code"] == 0 && report.stderr().contains("finished"), || {
        format!("ended early: {}", report.summary())
    })?;
    held(!report.is_set("stderr_truncated"), || "the other stream is flagged as well".into())?;
    held(peak < PEAK_KIB, || format!("peak resident size {peak} KiB"))?;
    let kept = report.stdout().len();

    let unread = context.boxed().option("--timeout", "2").through(UNREAD, &[]).run(&["/usr/bin/yes"])?;
    held(unread.code() == Some(124), || format!("with a reader that never reads: {}", unread.describe()))?;
    Ok(format!(
        "{} GiB, kept {kept} bytes, peak {peak} KiB; unread: ended after {} ms",
        bytes >> 30,
        unread.elapsed.as_millis()
    ))
}
