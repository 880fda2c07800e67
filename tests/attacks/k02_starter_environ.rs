//! Attack k02: a box reads the environment of our process on the host, by PID and through the
//! visible init.

use serde_json::json;
use tests::support::payload::Payload;
use tests::support::scratch::token;

use crate::probe::{Context, Probe, Verdict, bare_as, control, held};

pub(crate) const PROBE: Probe = Probe { id: "k02", title: "/proc/<product>/environ from the box", run };

/// Reads the PIDs to try from its input, because they are known only when the box runs.
const READ: &str = r"
answer('ready')
numbers = [1, os.getppid()] + json.loads(sys.stdin.readline())
seen, leaked = {}, []
for number in numbers:
    for start in ('/proc/%d' % number, '/proc/%d/task/%d' % (number, number), '/proc/1/root/proc/%d' % number):
        path = start + '/environ'
        try:
            with open(path, 'rb') as file:
                text = file.read().decode('latin-1')
            seen[path] = 'ok'
            if DATA in text:
                leaked.append(path)
        except OSError as error:
            seen[path] = name_of(error.errno)
answer({'seen': seen, 'leaked': leaked})
";

fn run(context: &Context) -> Verdict {
    let secret = format!("secret-{}", token()?);
    // The server was started before the variable was set; the control is that its environment is readable.
    let run = match context.is_served() {
        true => context.boxed(),
        false => context.boxed().host_variable("STARTER_SECRET", &secret),
    };
    let mut live = run.start_payload(&Payload::new(READ).with(json!(secret)))?;
    live.line()?;
    let starter = context.above(&live);
    let mut numbers = vec![starter];
    numbers.extend(tests::support::host::descendants(starter)?);
    // The control reads it on the host as the same user while the box runs.
    let path = format!("/proc/{starter}/environ");
    let outside = bare_as(context.mode.identity(), &["cat", &path])?;
    live.send(format!("{}\n", json!(numbers)).as_bytes())?;
    let inside: serde_json::Value = serde_json::from_str(&live.line()?).unwrap_or_default();
    live.finish()?;
    // An undumpable process hides its environment from its own user too, which is fine.
    let closed = outside.errors().contains("Permission denied");
    let known = if context.is_served() { "PATH=" } else { &secret };
    control(outside.text().contains(known) || closed, || format!("not readable outside: {}", outside.describe()))?;
    held(inside["leaked"] == json!([]), || format!("read from the box: {}", inside["leaked"]))?;
    for (path, outcome) in inside["seen"].as_object().into_iter().flatten() {
        held(outcome != "ok", || format!("{path} could be read"))?;
    }
    Ok(format!(
        "{} paths closed; outside {}",
        inside["seen"].as_object().map_or(0, serde_json::Map::len),
        if closed { "closed too" } else { "readable" }
    ))
}
