//! Tenants one after another: the second finds nothing that the first left.

use ringwall_executor::warm::WarmKind;

use super::fixture::{Fixture, UIDS};

/// Leaves traces in files, environment, interpreter, umask, keyring, shared memory and processes.
const LEAVE: &str = r#"
import os, sys, builtins, json, ctypes, subprocess, tempfile
open('/tmp/residue', 'w').write('secret-of-the-first')
open('/home/sandbox/.python_history', 'w').write('secret-of-the-first')
open('/dev/shm/residue', 'w').write('secret-of-the-first')
open('residue', 'w').write('secret-of-the-first')
os.environ['RESIDUE'] = 'secret-of-the-first'
builtins.residue = json.residue = 'secret-of-the-first'
os.umask(0o77)
os.chdir('/tmp')
libc = ctypes.CDLL(None)
libc.syscall(248, b'user', b'residue', b'secret', 6, -3)
libc.shmget(0x5ee5, 4096, 0o1600)
subprocess.Popen(['sleep', '1000'], start_new_session=True)
print('left')
"#;

/// Looks for all these traces.
const LOOK: &str = r#"
import os, builtins, json, ctypes, glob, re
found = []
for top in ('/tmp', '/var/tmp', '/home', '/dev/shm', '/workspace'):
    for directory, names, files in os.walk(top):
        found += [os.path.join(directory, name) for name in files]
found += [key for key in os.environ if 'RESIDUE' in key]
found += [name for name in ('residue',) if hasattr(builtins, name) or hasattr(json, name)]
found += [line for line in open('/proc/sysvipc/shm').read().splitlines()[1:]]
found += [pid for pid in os.listdir('/proc') if pid.isdigit() and pid not in ('1', str(os.getpid()))]
libc = ctypes.CDLL(None)
found += ['key'] if libc.syscall(249, b'user', b'residue', 0, 0) != -1 else []
print(found, oct(os.umask(0)), os.getcwd())
"#;

pub(crate) fn next_tenant_finds_no_traces() {
    let fixture = Fixture::new();
    for kind in [WarmKind::Python, WarmKind::Plain] {
        let first = fixture.warm(kind, fixture.grant_of(UIDS[0], &["python3", "-c", LEAVE], &[], &[]));
        assert_eq!((first.stdout.as_str(), first.stderr.as_str()), ("left\n", ""));
        let second = fixture.warm(kind, fixture.grant_of(UIDS[1], &["python3", "-c", LOOK], &[], &[]));
        assert_eq!((second.stdout.as_str(), second.stderr.as_str()), ("[] 0o22 /workspace\n", ""));
        // The control: in the workspace of the first user the trace is found.
        let first = fixture.warm(kind, fixture.grant_of(UIDS[0], &["python3", "-c", LOOK], &[], &[]));
        assert_eq!(first.stdout, "['/workspace/residue'] 0o22 /workspace\n");
    }
}

pub(crate) fn memory_layouts_differ() {
    let fixture = Fixture::new();
    let code = "import sys; print(hash('seed'), id(object()), next(line.split('-')[0] for line in open('/proc/self/maps') if '[stack]' in line), sys.hash_info.width)";
    let warm_boxes = [0, 1].map(|_| fixture.warm_box(WarmKind::Python, &fixture.python(code)));
    let [one, other] = warm_boxes.map(|warm_box| fixture.serve(warm_box, fixture.python(code)).stdout);
    let (one, other): (Vec<_>, Vec<_>) = (one.split(' ').collect(), other.split(' ').collect());
    assert!((0..3).all(|place| one[place] != other[place]), "{one:?} {other:?}");
}

pub(crate) fn uids_of_living_warm_boxes_differ() {
    let fixture = Fixture::new();
    let grant = fixture.grant(&["true"]);
    let warm_boxes: Vec<_> = (0..4).map(|_| fixture.warm_box(WarmKind::Plain, &grant)).collect();
    let mapped =
        |pid: Option<u32>| std::fs::read_to_string(format!("/proc/{}/uid_map", pid.expect("a PID 1"))).unwrap();
    let mut users: Vec<String> = warm_boxes.iter().map(|warm_box| mapped(warm_box.init_pid())).collect();
    users.sort();
    users.dedup();
    assert_eq!(users.len(), warm_boxes.len());
    assert!(users.iter().all(|map| !UIDS.iter().any(|uid| map.contains(&uid.to_string()))));
}
