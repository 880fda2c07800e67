//! Attack a05: a hard link in the workspace would be a writable alias of a read-only file on the
//! same file system. It is tried by path, through a descriptor and through the links of `/proc`.

use serde_json::json;
use tests::support::canary::Canary;
use tests::support::payload::Payload;

use crate::probe::{Context, Fault, Guarded, Probe, Verdict, control, held, surprises, untouched};

pub(crate) const PROBE: Probe = Probe { id: "a05", title: "hard-link a read-only file into the workspace", run };

const LINK: &str = r"
os.chdir(DATA['where'])
seen = {}
def link_at(directory, path, name, flags):
    if libc.linkat(directory, path, -100, name.encode(), flags) != 0:
        raise OSError(ctypes.get_errno(), 'linkat')
for index, target in enumerate(DATA['targets']):
    descriptor = os.open(target, os.O_RDONLY)
    handle = os.open(target, os.O_PATH)
    ways = {
        'path': lambda name: os.link(target, name),
        'proc': lambda name: link_at(-100, b'/proc/self/fd/%d' % descriptor, name, 0x400),
        'proc O_PATH': lambda name: link_at(-100, b'/proc/self/fd/%d' % handle, name, 0x400),
        'empty path': lambda name: link_at(descriptor, b'', name, 0x1000),
    }
    for way, act in ways.items():
        name = 'alias-%d-%s' % (index, way.replace(' ', '-'))
        seen[target + ' by ' + way] = attempt(lambda: act(name))
        attempt(lambda: os.write(os.open(name, os.O_WRONLY | os.O_APPEND), b'through the alias'))
answer(seen)
";

fn run(context: &Context) -> Verdict {
    let scratch = &context.scratch;
    let free = scratch.directory("free")?;
    let free_work = scratch.directory("free-work")?;
    let victim = Canary::plant(scratch, "free/file")?;
    let outside =
        context.outside(&Payload::new(LINK).with(json!({ "where": free_work, "targets": [free.join("file")] })))?;
    let by_path = format!("{} by path", victim.text());
    let by_proc = format!("{} by proc", victim.text());
    control(outside[&by_path] == "ok" && outside[&by_proc] == "ok", || outside.to_string())?;
    control(victim.changed().is_some(), || "writing the alias outside changed nothing".into())?;

    let work = context.workspace("work")?;
    let Guarded { canary, inside, run } = context.guarded()?;
    let inside = context.inside(
        &run.workspace(&work),
        &Payload::new(LINK).with(json!({
            "where": context.place(), "targets": [inside, "/usr/bin/env", "/etc/passwd"],
        })),
    )?;
    untouched(&canary)?;
    // With an empty path the kernel requires CAP_DAC_READ_SEARCH and otherwise returns ENOENT.
    let faults = surprises(&inside, &["EXDEV", "EPERM", "EROFS", "EACCES", "ENOENT"]);
    held(faults.is_empty(), || faults.join("; "))?;
    let count = inside.as_object().map_or(0, serde_json::Map::len);
    if count < 12 {
        return Err(Fault::Inconclusive(format!("only {count} ways were tried")));
    }
    Ok(format!("{count} ways refused"))
}
