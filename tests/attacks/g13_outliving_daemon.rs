//! Attack g13: a daemon detaches with a new session and keeps the output open. It must neither
//! outlive the command that started it nor delay its end.

use std::time::Duration;

use serde_json::json;
use tests::support::host;
use tests::support::payload::Payload;
use tests::support::scratch::token;

use crate::probe::{Context, Probe, Verdict, comes, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g13", title: "a daemon that outlives its command", run };

/// The daemon reports when it has detached, and the command ends after that. The daemon would run for ten minutes.
const DETACH: &str = r"
reader, writer = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.chdir('/')
    if DATA['quiet']:
        null = os.open('/dev/null', os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
    os.write(writer, str(os.getpid()).encode())
    os.close(writer)
    signal.alarm(600)
    while True:
        signal.pause()
os.close(writer)
answer(int(os.read(reader, 64)))
";

fn run(context: &Context) -> Verdict {
    let mark = format!("mark-{}", token()?);
    let payload = |quiet: bool| Payload::new(DETACH).with(json!({ "quiet": quiet, "mark": mark }));
    let outside = context.outside(&payload(true))?;
    // No parent waits for the daemon, so its end may take a moment longer.
    let alone = comes(|| host::marked(&mark).is_ok_and(|daemons| daemons.len() == 1));
    for number in host::marked(&mark)? {
        host::end(number)?;
    }
    control(alone, || format!("the daemon did not live on outside: {outside}"))?;

    let mut notes = Vec::new();
    for quiet in [true, false] {
        let mark = format!("mark-{}", token()?);
        let payload = Payload::new(DETACH).with(json!({ "quiet": quiet, "mark": mark }));
        let outcome = context.boxed().run_payload(&payload)?;
        let left = host::marked(&mark)?;
        control(outcome.code() == Some(0), || outcome.describe())?;
        held(left.is_empty(), || format!("the daemon lives on as {left:?}"))?;
        held(outcome.elapsed < Duration::from_secs(60), || {
            format!("the daemon held up the end: {}", outcome.describe())
        })?;
        notes.push(format!(
            "{} output: ended after {} ms",
            if quiet { "without" } else { "with" },
            outcome.elapsed.as_millis()
        ));
    }
    Ok(notes.join(", "))
}
