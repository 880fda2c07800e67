//! Inventory a12: `/dev` contains exactly the documented nodes, and each is the device of its name.

use serde_json::{Value, json};
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "a12", title: "/dev holds the documented nodes and nothing else", run };

const LIST: &str = r"
import stat
found = {}
for name in sorted(os.listdir('/dev')):
    path = '/dev/' + name
    facts = os.lstat(path)
    if stat.S_ISLNK(facts.st_mode):
        found[name] = 'link ' + os.readlink(path)
    elif stat.S_ISDIR(facts.st_mode):
        found[name] = 'directory ' + ' '.join(sorted(os.listdir(path)))
    elif stat.S_ISCHR(facts.st_mode):
        found[name] = 'character %d:%d' % (os.major(facts.st_rdev), os.minor(facts.st_rdev))
    else:
        found[name] = 'other %o' % facts.st_mode
hidden = {}
for name in ('kvm', 'fuse', 'vsock', 'mem', 'kmem', 'port', 'kmsg', 'loop-control', 'mapper/control', 'net/tun',
             'vhost-net', 'vhost-vsock', 'uinput', 'autofs', 'userfaultfd', 'console', 'vda', 'sda', 'hpet', 'rtc0'):
    hidden[name] = attempt(lambda: os.close(os.open('/dev/' + name, os.O_RDONLY)))
answer({'found': found, 'hidden': hidden})
";

fn run(context: &Context) -> Verdict {
    let payload = Payload::new(LIST);
    let outside = context.outside(&payload)?;
    let count = |answer: &Value| answer["found"].as_object().map_or(0, serde_json::Map::len);
    let inside = context.inside(&context.boxed(), &payload)?;
    control(count(&outside) > 13, || format!("the host's /dev is as small: {}", outside["found"]))?;

    let expected = json!({
        "null": "character 1:3", "zero": "character 1:5", "full": "character 1:7",
        "random": "character 1:8", "urandom": "character 1:9", "tty": "character 5:0",
        "pts": "directory ptmx", "shm": "directory ", "ptmx": "link pts/ptmx",
        "fd": "link /proc/self/fd", "stdin": "link /proc/self/fd/0",
        "stdout": "link /proc/self/fd/1", "stderr": "link /proc/self/fd/2",
    });
    held(inside["found"] == expected, || difference(&expected, &inside["found"]))?;
    for (name, outcome) in inside["hidden"].as_object().into_iter().flatten() {
        held(outcome == "ENOENT", || format!("/dev/{name}: {outcome}"))?;
    }
    Ok(format!("{} entries exactly; the host has {}", count(&inside), count(&outside)))
}

fn difference(expected: &Value, found: &Value) -> String {
    let empty = serde_json::Map::new();
    let (wanted, seen) = (expected.as_object().unwrap_or(&empty), found.as_object().unwrap_or(&empty));
    let mut parts: Vec<String> = seen
        .iter()
        .filter(|(name, value)| wanted.get(*name) != Some(*value))
        .map(|(name, value)| format!("unexpected {name}: {value}"))
        .collect();
    parts.extend(wanted.keys().filter(|name| !seen.contains_key(*name)).map(|name| format!("missing {name}")));
    parts.join("; ")
}
