//! Attack c06: a command in a box kills host processes by `kill(-1)` and by PID: a process of the
//! same user, a sibling box, and the product itself.

use serde_json::json;
use tests::support::host;
use tests::support::payload::{PYTHON, Payload};
use tests::support::process::LiveProcess;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "c06", title: "kill everything, kill host processes by number", run };

const HOLD: &str = "import sys; print('here', flush=True); sys.stdin.read(); print('unharmed', flush=True)";

const KILL: &str = r"
seen = {}
for number in DATA:
    seen[str(number)] = attempt(lambda: os.kill(number, signal.SIGKILL))
    seen['group %d' % number] = attempt(lambda: os.killpg(number, signal.SIGKILL))
    try:
        signal.pidfd_send_signal(os.pidfd_open(number), signal.SIGKILL)
        seen['pidfd %d' % number] = 'ok'
    except OSError as error:
        seen['pidfd %d' % number] = name_of(error.errno)
if len(DATA) > 1:
    seen['parent'] = attempt(lambda: os.kill(os.getppid(), signal.SIGKILL))
    seen['everyone'] = attempt(lambda: os.kill(-1, signal.SIGKILL))
    seen['own group'] = attempt(lambda: os.kill(0, 0))
answer(seen)
";

fn start(context: &Context) -> Result<LiveProcess, crate::probe::Fault> {
    let mut command = context.mode.identity().command(PYTHON);
    command.args(["-I", "-c", HOLD]);
    let mut live = LiveProcess::start(command)?;
    live.line()?;
    Ok(live)
}

fn run(context: &Context) -> Verdict {
    let target = start(context)?;
    let number = target.id();
    let outside = context.outside(&Payload::new(KILL).with(json!([number])))?;
    let ended = target.finish()?;
    control(outside[number.to_string()] == "ok" && !ended.text().contains("unharmed"), || {
        format!("the control's victim lived: {}", ended.describe())
    })?;

    let victim = start(context)?;
    let mut sibling = context.boxed().start(&[PYTHON, "-I", "-c", HOLD])?;
    sibling.line()?;
    let mut numbers = vec![victim.id(), context.above(&sibling), std::process::id()];
    numbers.extend(host::descendants(context.above(&sibling))?);
    // PIDs that also exist in the box are its own processes, which it may kill.
    numbers.retain(|number| *number > 100);
    let inside = context.inside(&context.boxed(), &Payload::new(KILL).with(json!(numbers)))?;
    let (victim, sibling) = (victim.finish()?, sibling.finish()?);
    held(victim.text().contains("unharmed"), || format!("a host process was killed: {}", victim.describe()))?;
    held(sibling.text().contains("unharmed") && sibling.code() == Some(0), || {
        format!("a sibling box was killed: {}", sibling.describe())
    })?;
    for number in &numbers {
        let outcome = &inside[number.to_string()];
        held(outcome == "ESRCH" || outcome == "EPERM", || format!("kill({number}) → {outcome}"))?;
    }
    Ok(format!("{} numbers tried, parent: {}, everyone: {}", numbers.len(), inside["parent"], inside["everyone"]))
}
