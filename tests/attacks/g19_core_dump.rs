//! Attack g19: a program that crashes writes a core file, or starts the host's core handler, outside the box.
//!
//! The limit is one byte: too little for a core file, and unlike zero it keeps the kernel from starting a piped handler.
//! A box can neither raise nor lower it. Setting it succeeds without effect, because programs that hold secrets set it to
//! zero and refuse to run where that fails. The limit of the living process is read from outside.

use std::fs;

use serde_json::{Value, json};
use tests::support::actor::Skip;
use tests::support::host;
use tests::support::payload::Payload;

use crate::probe::{Context, Fault, Probe, Verdict, bare_as, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g19", title: "core dump", run };

const CRASH: &str = r"
import resource
os.chdir(DATA)
before = resource.getrlimit(resource.RLIMIT_CORE)
def raise_limit():
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
try:
    raise_limit()
except (OSError, ValueError) as error:
    attempt(lambda: resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1])))
raised = resource.getrlimit(resource.RLIMIT_CORE)
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSEGV)
    signal.pause()
status = os.waitpid(child, 0)[1]
answer({'limit': before, 'raised': raised, 'dumped': os.WCOREDUMP(status), 'signal': os.WTERMSIG(status),
        'files': os.listdir('.')})
";

/// Lowers the limit in every way and waits until its input ends.
const LOWER: &str = r"
import resource
zero = ctypes.create_string_buffer(16)
old = ctypes.create_string_buffer(16)
CORE = resource.RLIMIT_CORE
ways = {
    'setrlimit': call('setrlimit', CORE, zero),
    'prlimit64': call('prlimit64', 0, CORE, zero, None),
    'prlimit64 with high bits': call('prlimit64', 0, CORE | 1 << 32, zero, None),
    'prlimit64 that reads': call('prlimit64', 0, CORE, zero, old),
    'prlimit64 by number': call('prlimit64', os.getpid(), CORE, zero, None),
}
read = call('prlimit64', 0, CORE, None, old)
answer({'ways': ways, 'limit': resource.getrlimit(CORE), 'read': [read, *struct.unpack('QQ', old.raw)]})
sys.stdin.read()
";

fn run(context: &Context) -> Verdict {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern")?;
    let free = context.scratch.directory("free")?;
    let outside = context.outside(&Payload::new(CRASH).with(json!(free)))?;
    let dumps = outside["dumped"] == true;
    if !dumps && pattern.trim().is_empty() {
        return Err(Fault::Skipped(Skip::Impossible("core dumps are switched off on this machine".into())));
    }
    control(dumps, || format!("no core is dumped outside either (pattern {pattern:?}): {outside}"))?;

    let work = context.workspace("work")?;
    let inside =
        context.inside(&context.boxed().workspace(&work), &Payload::new(CRASH).with(json!(context.place())))?;
    control(inside["signal"] == 11, || format!("nothing crashed inside: {inside}"))?;
    held(inside["limit"] == json!([1, 1]), || format!("the limit is {}", inside["limit"]))?;
    held(inside["raised"] == json!([1, 1]), || format!("the limit was raised to {}", inside["raised"]))?;
    held(inside["dumped"] == false, || "a core was dumped".into())?;
    held(fs::read_dir(&work)?.count() == 0, || format!("files in the workspace: {}", inside["files"]))?;
    let crashed = context.boxed().workspace(&work).report(&["/bin/sh", "-c", "kill -SEGV $$"])?;
    held(crashed.outcome.code() == Some(128 + 11) || crashed.value["signal"] == 11, || crashed.summary())?;
    held(fs::read_dir(&work)?.count() == 0, || "a crash of the command itself left a file".into())?;
    let listed = bare_as(context.mode.identity(), &["ls", "/"])?.text();
    held(!listed.lines().any(|name| name.starts_with("core")), || {
        "a core file is in the directory where the box was started".into()
    })?;
    let ways = lower(context)?;
    Ok(format!("dumped outside ({}), not inside; limit {} after {ways}", pattern.trim(), inside["limit"]))
}

/// True if the limit is unchanged after the box has tried to lower it.
fn lower(context: &Context) -> Result<Value, Fault> {
    let outside = context.outside(&Payload::new(LOWER))?;
    control(outside["limit"] == json!([0, 0]), || format!("the limit is not lowered outside: {outside}"))?;
    let mut live = context.boxed().start_payload(&Payload::new(LOWER))?;
    let inside: Value = serde_json::from_str(&live.line()?).unwrap_or_default();
    let limits: Vec<String> = host::descendants(context.above(&live))?
        .into_iter()
        .filter(|number| host::field(*number, "Seccomp").as_deref() == Some("2"))
        .filter_map(|number| fs::read_to_string(format!("/proc/{number}/limits")).ok())
        .filter_map(|text| text.lines().find(|line| line.starts_with("Max core file size")).map(str::to_owned))
        .collect();
    live.finish()?;
    control(limits.len() >= 2, || format!("the box's PID 1 and its command are not both seen: {limits:?}"))?;
    for line in &limits {
        let values: Vec<&str> = line.split_ascii_whitespace().skip(4).take(2).collect();
        held(values == ["1", "1"], || format!("a process of the box has {line:?} after {inside}"))?;
    }
    held(inside["limit"] == json!([1, 1]), || format!("the limit became {}", inside["limit"]))?;
    held(inside["read"] == json!(["ok", 1, 1]), || format!("reading the limit → {}", inside["read"]))?;
    held(inside["ways"]["setrlimit"] == "ok" && inside["ways"]["prlimit64"] == "ok", || {
        format!("a program that sets the limit to 0 would refuse to run: {}", inside["ways"])
    })?;
    Ok(inside["ways"].clone())
}
