//! Attack a04: symbolic links in the workspace, planted before and during the run, lead to host
//! files: absolute, relative, chained, to a directory, and dangling ones. They must resolve inside
//! the box.

use std::os::unix::fs::symlink;

use serde_json::json;
use tests::support::canary::Canary;
use tests::support::payload::Payload;
use tests::support::scratch::give;

use crate::probe::{Context, Probe, Verdict, control, held, untouched};

pub(crate) const PROBE: Probe = Probe { id: "a04", title: "symlinks in the workspace to host files", run };

const FOLLOW: &str = r"
where, target, dangling = DATA['where'], DATA['target'], DATA['dangling']
os.chdir(where)
own = {'absolute': target, 'relative': '../' * 12 + target[1:], 'dangling': dangling + '-own'}
for name, to in (('own-' + name, to) for name, to in own.items()):
    if not os.path.lexists(name):
        os.symlink(to, name)
seen = {}
names = sorted(os.listdir('.'))
for name in names:
    try:
        with open(name + '/secret' if name == 'directory' else name) as file:
            seen[name] = file.read()
    except OSError as error:
        seen[name] = name_of(error.errno)
for name in names:
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND if 'dangling' in name else os.O_WRONLY | os.O_APPEND
    seen['write ' + name] = attempt(lambda: os.write(os.open(name, flags, 0o644), b'through'))
answer(seen)
";

fn run(context: &Context) -> Verdict {
    let scratch = &context.scratch;
    let mut canaries = Vec::new();
    let mut answers = Vec::new();
    for place in ["free", "work"] {
        let secrets = scratch.directory(&format!("{place}-secrets"))?;
        let mut canary = Canary::plant(scratch, &format!("{place}-secrets/secret"))?;
        let inside = place == "work";
        let workspace = if inside { context.workspace(place)? } else { scratch.directory(place)? };
        let target = canary.text();
        let dangling = secrets.join("made-through-a-link");
        let relative = format!("{}{}", "../".repeat(12), &target[1..]);
        let plant = |to: &str, name: &str| {
            symlink(to, workspace.join(name)).and_then(|()| give(&workspace.join(name), context.mode.identity()))
        };
        plant(&target, "absolute")?;
        plant(&relative, "relative")?;
        plant("absolute", "chained-once")?;
        plant("chained-once", "chained-twice")?;
        plant(&secrets.to_string_lossy(), "directory")?;
        plant("../".repeat(12).as_str(), "upwards")?;
        plant(&dangling.to_string_lossy(), "dangling")?;
        canary.settle()?;
        let payload = Payload::new(FOLLOW).with(json!({
            "where": if inside { context.place().into() } else { workspace.to_string_lossy() },
            "target": target, "dangling": dangling,
        }));
        answers.push(if inside {
            context.inside(&context.boxed().workspace(&workspace), &payload)?
        } else {
            context.outside(&payload)?
        });
        canaries.push(canary);
    }
    for name in ["absolute", "relative", "chained-twice", "directory", "own-absolute", "own-relative"] {
        control(answers[0][name] == canaries[0].secret(), || {
            format!("{name} did not lead to the canary outside: {}", answers[0])
        })?;
        held(answers[1][name] != canaries[1].secret(), || format!("{name} led to the host's canary"))?;
    }
    control(answers[0]["write dangling"] == "ok" && canaries[0].changed().is_some(), || {
        "nothing was written outside".into()
    })?;
    untouched(&canaries[1])?;
    Ok(format!("inside: {}", answers[1]))
}
