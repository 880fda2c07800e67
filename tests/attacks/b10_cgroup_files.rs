//! Attack b10: a box writes cgroup files. With `release_agent` of version 1 the host's kernel would
//! run a program as root. No hierarchy may be visible.

use serde_json::{Value, json};
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "b10", title: "write release_agent, notify_on_release, cgroup.procs", run };

const FIND: &str = r"
names = ('release_agent', 'notify_on_release', 'cgroup.procs', 'tasks', 'cgroup.controllers')
found = []
for start in DATA:
    for top, directories, files in os.walk(start):
        if top == '/':
            directories[:] = [name for name in directories if name not in ('proc', 'usr')]
        found += [os.path.join(top, name) for name in files if name in names]
        if len(found) > 500:
            break
mounts = [line.split() for line in open('/proc/self/mountinfo')]
types = sorted({words[words.index('-') + 1] for words in mounts})
answer({'found': len(found), 'examples': found[:5], 'types': types, 'sys': os.path.exists('/sys'),
        'lines': [line.strip() for line in open('/proc/self/cgroup')]})
";

fn run(context: &Context) -> Verdict {
    let outside = context.outside(&Payload::new(FIND).with(json!(["/sys/fs/cgroup"])))?;
    control(outside["found"].as_u64() > Some(0), || format!("the host shows no cgroup files: {outside}"))?;
    let inside = context.inside(&context.boxed(), &Payload::new(FIND).with(json!(["/"])))?;
    held(inside["found"] == json!(0), || format!("cgroup files in the box: {}", inside["examples"]))?;
    held(inside["sys"] == Value::Bool(false), || "/sys exists in the box".into())?;
    let types = inside["types"].to_string();
    held(!types.contains("cgroup") && !types.contains("sysfs"), || format!("mounted in the box: {types}"))?;
    // The box has a cgroup namespace, so it sees itself at the root of every hierarchy.
    for line in inside["lines"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        held(line.ends_with(":/"), || format!("/proc/self/cgroup tells of the host: {line}"))?;
    }
    Ok(format!("none in the box, {} outside; file systems inside: {types}", outside["found"]))
}
