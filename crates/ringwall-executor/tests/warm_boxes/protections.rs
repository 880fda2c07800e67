//! A warm box has the same protections as a cold one, also in its preloaded interpreter.

use ringwall_executor::Options;
use ringwall_executor::warm::WarmKind;

use super::fixture::Fixture;

const STATUS: &str = r#"
import os
keep = ('Cap', 'NoNewPrivs', 'Seccomp', 'Uid', 'Gid', 'Groups', 'Shd', 'SigBlk', 'SigIgn', 'SigCgt', 'CoreDumping', 'NSpid', 'Umask')
print([line for line in open('/proc/self/status').read().splitlines() if line.startswith(keep) and 'NSpid' not in line])
print(sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')))
print(sorted((line.split()[4], line.split()[5].replace(',idmapped', '')) for line in open('/proc/self/mountinfo')))
print(open('/proc/self/uid_map').read().split()[0], open('/proc/self/oom_score_adj').read(), os.sched_getscheduler(0), os.getpriority(0, 0))
print([os.readlink('/proc/self/ns/' + name) == os.readlink('/proc/self/ns/' + name) for name in sorted(os.listdir('/proc/self/ns'))])
print(open('/proc/net/dev').read().split('lo:')[1].split(), os.uname().nodename)
"#;

/// System calls that the filter refuses, each with its errno.
const CALLS: &str = r#"
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
answers = {}
for name, number, arguments in [
    ('keyctl', 250, (0, 0)), ('add_key', 248, (0, 0, 0, 0, 0)), ('bpf', 321, (0, 0, 0)), ('unshare', 272, (0x10000000,)),
    ('setns', 308, (0, 0)), ('mount', 165, (0, 0, 0, 0, 0)), ('open_tree', 428, (-100, 0, 1)), ('move_mount', 429, (0, 0, 0, 0, 0)),
    ('fsopen', 430, (0, 0)), ('mount_setattr', 442, (0, 0, 0, 0, 0)), ('pivot_root', 155, (0, 0)), ('chroot', 161, (b'/',)),
    ('ptrace', 101, (0, 0, 0, 0)), ('process_vm_readv', 310, (1, 0, 0, 0, 0, 0)), ('io_uring_setup', 425, (1, 0)),
    ('userfaultfd', 323, (0,)), ('perf_event_open', 298, (0, 0, -1, -1, 0)), ('init_module', 175, (0, 0, 0)),
    ('reboot', 169, (0, 0, 0, 0)), ('sethostname', 170, (b'x', 1)), ('clone3', 435, (0, 0)), ('openat2', 437, (0, 0, 0, 0)),
    ('name_to_handle_at', 303, (0, 0, 0, 0, 0)), ('setuid', 105, (0,)), ('prlimit64', 302, (1, 7, 0, 0)),
]:
    ctypes.set_errno(0)
    result = libc.syscall(number, *arguments)
    answers[name] = errno.errorcode.get(ctypes.get_errno(), result)
print(answers)
"#;

pub(crate) fn protections_equal_cold_box() {
    let fixture = Fixture::new();
    for code in [STATUS, CALLS] {
        let cold = fixture.cold(fixture.python(code));
        assert_eq!(cold.stderr, "");
        for kind in [WarmKind::Python, WarmKind::Plain] {
            assert_eq!(fixture.warm(kind, fixture.python(code)), cold, "{kind:?}");
        }
    }
    for kind in [WarmKind::Python, WarmKind::Plain] {
        let [warm, cold] = fixture.protections(|| fixture.python("1"), kind);
        assert_eq!(warm, cold, "{kind:?}");
    }
}

/// Landlock domains nest at most 16 deep, so the number that a program can add shows how many it is
/// in. The rules cannot be observed from outside: they refuse the same as the mounts.
const LAYERS: &str = r#"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
handled = (ctypes.c_uint64 * 2)(1 << 6, 0)
rules = libc.syscall(444, handled, 8, 0)
more = 0
while libc.syscall(446, rules, 0) == 0:
    more += 1
print(more)
"#;
const MAX_LAYERS: u32 = 16;

/// Operations that Landlock or the mounts refuse, each with its errno.
const REACH: &str = r#"
import os, errno
def tried(act, *arguments):
    try:
        act(*arguments)
        return 'done'
    except OSError as error:
        return errno.errorcode[error.errno]
print(tried(os.truncate, '/proc/self/comm', 0), tried(open, '/dev/pts/ptmx', 'w'), tried(open, '/workspace/x', 'w'), tried(open, '/tmp/x', 'w'))
print(tried(os.open, '/proc/self/exe', os.O_WRONLY), tried(open, '/proc/1/root'), tried(os.rename, '/tmp/x', '/workspace/y'))
print(tried(os.link, '/workspace/x', '/workspace/z'), tried(os.mkfifo, '/dev/pts/x'), tried(os.mkdir, '/dev/pts/y'), tried(open, '/proc/self/attr/current', 'w'))
os.remove('/workspace/x'), os.remove('/workspace/z')
"#;

pub(crate) fn landlock_restricts_warm_interpreter() {
    let fixture = Fixture::new();
    let cold = fixture.cold(fixture.python(REACH));
    assert_eq!(cold.stderr, "");
    assert_eq!(fixture.warm(WarmKind::Python, fixture.python(REACH)), cold);

    let more = |output: super::fixture::CommandOutput| output.stdout.trim().parse::<u32>().expect("a number");
    // A cold box restricts files and processes with one domain, a warm box with two.
    assert_eq!(more(fixture.cold(fixture.python(LAYERS))), MAX_LAYERS - 1);
    for kind in [WarmKind::Python, WarmKind::Plain] {
        assert_eq!(more(fixture.warm(kind, fixture.python(LAYERS))), MAX_LAYERS - 2, "{kind:?}");
    }
}

/// Waits for a line, and then connects to the proxy port and to a port of the host.
const ASK: &str = r#"
import socket, sys
sys.stdin.readline()
def attempt(port):
    try:
        socket.create_connection(('127.0.0.1', port), 20).close()
        return 'connected'
    except OSError as error:
        return type(error).__name__
print(attempt(3128), attempt(int(sys.argv[1])))
"#;

/// A box whose proxy socket was closed has no network access, neither by the proxy port nor
/// directly.
pub(crate) fn box_with_closed_proxy_socket_has_no_network() {
    let fixture = Fixture::new();
    let host = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = host.local_addr().unwrap().port().to_string();
    std::net::TcpStream::connect(host.local_addr().unwrap()).unwrap();
    host.accept().unwrap();
    host.set_nonblocking(true).unwrap();
    for (is_held, answer) in [(true, "connected"), (false, "ConnectionRefusedError")] {
        let grant = fixture.open_grant(&["python3", "-c", ASK, &port]);
        let mut running = fixture.runtime.block_on(fixture.executor.start(grant, Options::default())).unwrap();
        let proxy_socket = Some(running.proxy_socket.take().unwrap()).filter(|_| is_held);
        let output = fixture.follow(running, b"go\n").0;
        assert_eq!(output.stdout, format!("{answer} ConnectionRefusedError\n"), "{output:?}");
        drop(proxy_socket);
    }
    assert!(host.accept().is_err(), "the host's port was reached");
}
