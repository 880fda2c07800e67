//! Attack g12: a program ignores SIGTERM, as do its children, and one child has stopped itself. All
//! must be gone soon after the timeout, and the exit code says 124.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tests::support::boxed::Report;
use tests::support::host;
use tests::support::payload::Payload;
use tests::support::process::{LiveProcess, Outcome};
use tests::support::scratch::token;

use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g12", title: "ignore SIGTERM past the timeout", run };

/// A box must be gone two seconds after its deadline; the rest is for a busy machine.
const LATEST: Duration = Duration::from_secs(1 + 2 + 3);
const TRIES: u32 = 5;

const STAY: &str = r"
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
for child in range(3):
    if os.fork() == 0:
        if child == 0:
            os.setsid()
        if child == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        while DATA['for ever']:
            signal.pause()
        os._exit(0)
answer('staying')
while DATA['for ever']:
    signal.pause()
for line in sys.stdin:
    answer('still here')
";

fn run(context: &Context) -> Verdict {
    let words = Payload::new(STAY.replace("if child == 1", "if False").as_str())
        .with(serde_json::json!({ "for ever": false }))
        .arguments();
    let mut command = context.mode.identity().command(&words[0]);
    command.args(&words[1..]);
    let mut bare = LiveProcess::start(command)?;
    bare.line()?;
    let pid =
        i32::try_from(bare.id()).ok().and_then(Pid::from_raw).ok_or_else(|| Fault::Inconclusive("no pid".into()))?;
    kill_process(pid, Signal::TERM)?;
    bare.send(b"are you there?\n")?;
    let lives = bare.line()?;
    control(lives.contains("still here"), || format!("SIGTERM ended it outside: {lives}"))?;
    bare.finish()?;

    let mark = format!("mark-{}", token()?);
    let payload = Payload::new(STAY).with(serde_json::json!({ "for ever": true, "mark": mark }));
    let plain = undisturbed(
        |plain: &Outcome| plain.elapsed < LATEST && plain.text().contains("staying"),
        || {
            let plain = context.boxed().option("--timeout", "1").run_payload(&payload)?;
            held(plain.code() == Some(124), || plain.describe())?;
            let left = host::marked(&mark)?;
            held(left.is_empty(), || format!("left behind: {left:?}"))?;
            Ok(plain)
        },
    )?;
    held(plain.text().contains("staying"), || format!("it never came to stay: {}", plain.describe()))?;
    held(plain.elapsed < LATEST, || format!("gone only after {} ms", plain.elapsed.as_millis()))?;
    let report = undisturbed(
        |report: &Report| report.outcome.elapsed < LATEST,
        || {
            let report = context.boxed().option("--timeout", "1").report_payload(&payload)?;
            held(report.is_set("timed_out") && report.outcome.code() == Some(124), || report.summary())?;
            Ok(report)
        },
    )?;
    held(report.outcome.elapsed < LATEST, || format!("gone only after {} ms", report.outcome.elapsed.as_millis()))?;
    Ok(format!(
        "gone {} ms after the start; signal reported {}",
        plain.elapsed.as_millis(),
        Value::clone(&report.value["signal"])
    ))
}

/// Retries on a busy machine: one try in time is enough. Returns the first that succeeds, or the last.
fn undisturbed<T>(is_prompt: impl Fn(&T) -> bool, attempt: impl Fn() -> Result<T, Fault>) -> Result<T, Fault> {
    let mut last = attempt()?;
    for _ in 1..TRIES {
        if is_prompt(&last) {
            break;
        }
        last = attempt()?;
    }
    Ok(last)
}
