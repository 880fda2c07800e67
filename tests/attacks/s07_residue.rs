//! Attack s07: boxes of a server are clones in copies of one base rootfs. Changes of one box (files
//! in memory, mounts, devices) must not be in a later box, which must look exactly like the first.

use serde_json::{Value, json};
use tests::support::payload::Payload;
use tests::support::scratch::token;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "s07", title: "changes of the base root file system of all boxes", run };

/// Lists everything in a box except PIDs, times and the exec's own names, which always differ.
const LOOK: &str = r"
import re
names, sizes = [], {}
for top in ('/', '/dev', '/etc', '/home', '/tmp', '/var', '/workspace'):
    for place, directories, files in os.walk(top):
        directories[:] = [name for name in directories if place != '/' or name not in ('proc', 'usr')]
        for name in directories + files:
            path = os.path.join(place, name)
            status = os.lstat(path)
            if '/pts/' not in path and '/inputs/' not in path:
                names.append([path, status.st_mode, status.st_uid, status.st_rdev, status.st_nlink])
mounts = [re.sub(r'e_[0-9a-f]+|probe-\d+', 'ID', line.split(' ', 3)[3]) for line in open('/proc/self/mountinfo')]
for place in ('/tmp', '/dev/shm', '/var/tmp', '/home/sandbox', '/'):
    usage = os.statvfs(place)
    sizes[place] = [usage.f_blocks - usage.f_bfree, usage.f_files - usage.f_ffree]
answer({'names': sorted(names), 'mounts': sorted(re.sub(r'0:\d+', '0:N', mount) for mount in mounts), 'sizes': sizes})
";

/// Tries to leave changes everywhere, with every call that a box may make.
const LEAVE: &str = r"
left = {}
for place in ('/', '/dev', '/dev/shm', '/dev/pts', '/etc', '/home', '/home/sandbox', '/tmp', '/var', '/var/tmp', '/var/empty', '/proc', '/usr'):
    for kind, act in (('file', lambda path: open(path, 'w').close()), ('directory', os.mkdir),
                      ('link', lambda path: os.symlink('x', path)), ('fifo', os.mkfifo)):
        left[place + ' ' + kind] = attempt(lambda: act(place + '/' + DATA + kind))
    left[place + ' mode'] = attempt(lambda: os.chmod(place, 0o777))
    left[place + ' time'] = attempt(lambda: os.utime(place, (1, 1)))
    left[place + ' attribute'] = attempt(lambda: os.setxattr(place, 'user.mark', b'1'))
for device in ('null', 'zero', 'full', 'random', 'urandom', 'tty'):
    left[device + ' mode'] = attempt(lambda: os.chmod('/dev/' + device, 0))
    left[device + ' time'] = attempt(lambda: os.utime('/dev/' + device, (1, 1)))
    left[device + ' gone'] = attempt(lambda: os.unlink('/dev/' + device))
for name in ('passwd', 'group', 'hosts', 'nsswitch.conf'):
    left[name] = attempt(lambda: open('/etc/' + name, 'a').close())
answer(left)
";

fn run(context: &Context) -> Verdict {
    let server = context.server()?;
    let tenant = context.tenant("tidy")?;
    let look = || context.inside(&tenant.run, &Payload::new(LOOK));
    let first = look()?;
    control(first["mounts"].as_array().map_or(0, Vec::len) > 10, || format!("it sees little: {first}"))?;
    let mark = format!("mark-{}", token()?);
    let left = context.inside(&context.boxed(), &Payload::new(LEAVE).with(json!(mark)))?;
    for place in ["/tmp file", "/dev/shm directory", "/var/tmp fifo", "/home/sandbox link"] {
        control(left[place] == "ok", || format!("nothing can be left at {place}: {left}"))?;
    }
    let shared = ["/ ", "/dev ", "/etc ", "/home ", "/var ", "/var/empty ", "/proc ", "/usr "];
    let outcomes = left.as_object().into_iter().flatten();
    let written: Vec<String> = outcomes
        .filter(|(act, outcome)| {
            *outcome == "ok" && (shared.iter().any(|place| act.starts_with(place)) || !act.starts_with('/'))
        })
        .map(|(act, _)| act.clone())
        .collect();
    held(written.is_empty(), || format!("what all boxes share was changed: {written:?}"))?;
    let second = look()?;
    for part in ["names", "mounts", "sizes"] {
        held(first[part] == second[part], || format!("{part} differ: {}", difference(&first[part], &second[part])))?;
    }
    held(!second.to_string().contains(&mark), || "a mark was found".into())?;
    let own = std::fs::read_to_string(format!("/proc/{}/mounts", server.id()))?;
    held(!own.contains("/workspace/"), || "the server itself has a box's mounts".into())?;
    Ok(format!("{} names and {} mounts, the same before and after", count(&first["names"]), count(&first["mounts"])))
}

fn count(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

fn difference(one: &Value, other: &Value) -> String {
    let only = |this: &Value, that: &Value| -> Vec<String> {
        let that = that.as_array().cloned().unwrap_or_default();
        this.as_array().into_iter().flatten().filter(|entry| !that.contains(entry)).map(Value::to_string).collect()
    };
    format!("gone {:?}, new {:?} ({one} {other})", only(one, other), only(other, one)).chars().take(900).collect()
}
