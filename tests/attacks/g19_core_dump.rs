//! A program that crashes writes no core file: not in its workspace, not where the product was started. The limit is
//! one byte, too little for any core (zero would still start a host's core handler), and cannot be raised again.

use std::fs;

use serde_json::json;
use tests::support::actor::Skip;
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
    raised = 'ok'
except (OSError, ValueError) as error:
    raised = 'refused'
    attempt(lambda: resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1])))
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSEGV)
    signal.pause()
status = os.waitpid(child, 0)[1]
answer({'limit': before, 'raised': raised, 'dumped': os.WCOREDUMP(status), 'signal': os.WTERMSIG(status),
        'files': os.listdir('.')})
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
    held(inside["raised"] == "refused", || "the limit could be raised".into())?;
    held(inside["dumped"] == false, || "a core was dumped".into())?;
    held(fs::read_dir(&work)?.count() == 0, || format!("files in the workspace: {}", inside["files"]))?;
    let crashed = context.boxed().workspace(&work).report(&["/bin/sh", "-c", "kill -SEGV $$"])?;
    held(crashed.outcome.code() == Some(128 + 11) || crashed.value["signal"] == 11, || crashed.summary())?;
    held(fs::read_dir(&work)?.count() == 0, || "a crash of the command itself left a file".into())?;
    let listed = bare_as(context.mode.identity(), &["ls", "/"])?.text();
    held(!listed.lines().any(|name| name.starts_with("core")), || "a core lies where the product was started".into())?;
    Ok(format!("dumped outside ({}), not inside; limit {}", pattern.trim(), inside["limit"]))
}
