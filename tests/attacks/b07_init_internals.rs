//! Attack b07: a box opens the memory, environment, root, working directory and descriptors of its
//! PID 1, which is our init and runs as the same user.

use serde_json::Value;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe =
    Probe { id: "b07", title: "open memory, environment, root and descriptors of PID 1", run };

const OPEN: &str = r"
child = 0
number = 1
if DATA == 'a child':
    reader, writer = os.pipe()
    number = os.fork()
    if number == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
base = '/proc/%d/' % number
seen = {}
for name in ('mem', 'environ', 'maps', 'smaps', 'pagemap', 'auxv', 'stack', 'syscall', 'personality', 'io'):
    def act():
        descriptor = os.open(base + name, os.O_RDONLY)
        if name not in ('mem', 'pagemap'):
            os.read(descriptor, 64)
    seen[name] = attempt(act)
seen['mem for write'] = attempt(lambda: os.close(os.open(base + 'mem', os.O_RDWR)))
for name in ('root', 'cwd', 'exe', 'ns/mnt', 'ns/user', 'ns/net'):
    seen[name] = attempt(lambda: os.close(os.open(base + name, os.O_RDONLY)))
    seen['readlink ' + name] = attempt(lambda: os.readlink(base + name))
seen['fd list'] = attempt(lambda: os.listdir(base + 'fd'))
for index in range(64):
    outcome = attempt(lambda: os.close(os.open(base + 'fd/%d' % index, os.O_RDONLY)))
    if outcome not in ('ENOENT', 'EACCES', 'EPERM'):
        seen['fd/%d' % index] = outcome
seen['map_files'] = attempt(lambda: os.listdir(base + 'map_files'))
answer(seen)
";

fn run(context: &Context) -> Verdict {
    let outside = context.outside(&Payload::new(OPEN).with(Value::from("a child")))?;
    for name in ["mem", "environ", "root", "fd list", "exe"] {
        control(outside[name] == "ok", || format!("{name} of a child is closed outside too: {outside}"))?;
    }
    let inside = context.inside(&context.boxed(), &Payload::new(OPEN))?;
    let faults: Vec<String> = inside
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, outcome)| !["EACCES", "EPERM", "ENOENT", "EROFS"].iter().any(|errno| *outcome == errno))
        .map(|(name, outcome)| format!("{name} → {outcome}"))
        .collect();
    held(faults.is_empty(), || faults.join("; "))?;
    Ok(format!("{} doors closed", inside.as_object().map_or(0, serde_json::Map::len)))
}
