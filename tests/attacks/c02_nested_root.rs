//! Attack c02: the steps by which an unprivileged process makes a new root: user and mount
//! namespace, tmpfs, `pivot_root`, detaching the old root. Each way of the first step must fail.

use serde_json::json;
use tests::support::actor::Identity;
use tests::support::canary::Canary;
use tests::support::payload::Payload;
use tests::support::scratch::Scratch;

use crate::probe::{Context, Probe, Verdict, control, held, outside_as, untouched};

pub(crate) const PROBE: Probe = Probe { id: "c02", title: "unshare, mount, pivot_root, detach", run };

const CHAIN: &str = r"
NEWUSER, NEWNS = 0x10000000, 0x20000
def chain():
    steps = []
    os.chdir(DATA)
    outer = os.getuid(), os.getgid()
    steps.append(('unshare', call('unshare', NEWUSER | NEWNS)))
    if steps[-1][1] == 'ok':
        open('/proc/self/setgroups', 'w').write('deny')
        open('/proc/self/uid_map', 'w').write('0 %d 1' % outer[0])
        open('/proc/self/gid_map', 'w').write('0 %d 1' % outer[1])
    steps.append(('private', call('mount', b'none', b'/', None, (1 << 18) | (1 << 14), None)))
    steps.append(('tmpfs', call('mount', b'none', DATA.encode(), b'tmpfs', 0, None)))
    steps.append(('mkdir', attempt(lambda: os.mkdir(DATA + '/old'))))
    steps.append(('pivot_root', call('pivot_root', DATA.encode(), DATA.encode() + b'/old')))
    steps.append(('detach', call('umount2', b'/old', 2)))
    return json.dumps(steps)
def cloned(flags):
    result, number = raw(NUMBERS['clone'], flags | signal.SIGCHLD, 0, 0, 0, 0)
    if result == 0:
        os._exit(0)
    if result > 0:
        os.waitpid(result, 0)
    return 'ok' if result != -1 else name_of(number)
others = {}
kinds = {'user': 0x10000000, 'mnt': 0x20000, 'cgroup': 0x2000000, 'uts': 0x4000000, 'ipc': 0x8000000, 'pid': 0x20000000,
         'net': 0x40000000, 'user and time': 0x10000080}
for name, flag in kinds.items():
    others['unshare ' + name] = isolated(lambda: call('unshare', flag))
    if flag & 0x80 == 0:
        others['clone ' + name] = isolated(lambda: cloned(flag))
        others['clone user and ' + name] = isolated(lambda: cloned(flag | 0x10000000))
area = ctypes.create_string_buffer(struct.pack('8Q', 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0))
def third():
    result, number = raw(NUMBERS['clone3'], area, 64)
    if result == 0:
        os._exit(0)
    return 'ok' if result != -1 else name_of(number)
others['clone3 user'] = isolated(third)
answer({'chain': json.loads(isolated(chain)), 'others': others})
";

fn run(context: &Context) -> Verdict {
    let free = Scratch::new(Identity::Unprivileged)?;
    let outside = outside_as(Identity::Unprivileged, &Payload::new(CHAIN).with(json!(free.path())))?;
    for step in outside["chain"].as_array().into_iter().flatten() {
        control(step[1] == "ok", || format!("the chain fails outside too: {}", outside["chain"]))?;
    }
    for act in ["unshare user", "clone user", "clone user and net", "clone3 user"] {
        control(outside["others"][act] == "ok", || format!("{act} fails outside too: {}", outside["others"]))?;
    }
    let canary = Canary::plant(&context.scratch, "file")?;
    let inside = context.inside(&context.boxed(), &Payload::new(CHAIN).with(json!("/tmp")))?;
    let first = &inside["chain"][0];
    held(*first == json!(["unshare", "EPERM"]), || format!("the first step gave {first}"))?;
    for step in ["private", "tmpfs", "pivot_root", "detach"] {
        let refused = inside["chain"].as_array().into_iter().flatten().any(|pair| *pair == json!([step, "EPERM"]));
        held(refused, || format!("{step} was not refused: {}", inside["chain"]))?;
    }
    for (act, outcome) in inside["others"].as_object().into_iter().flatten() {
        // A C library falls back from clone3 to clone only on ENOSYS.
        let expected = if act.starts_with("clone3") { "ENOSYS" } else { "EPERM" };
        held(outcome == expected, || format!("{act} → {outcome}, expected {expected}"))?;
    }
    untouched(&canary)?;
    Ok(format!(
        "refused at the first step and on {} other ways",
        inside["others"].as_object().map_or(0, serde_json::Map::len)
    ))
}
