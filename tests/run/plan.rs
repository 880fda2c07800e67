//! The process that makes a box, started by hand under its own name with something other than a plan: it ends at once,
//! says so, and makes nothing. What it is sent comes through a socket, so Python plays the executor.

use tests::support::actor::Mode;
use tests::support::boxed::binary;
use tests::support::payload::PYTHON;
use tests::support::process::{Ending, run};

use crate::modes::in_both_modes;

in_both_modes!(without_a_socket_it_says_so, garbage_ends_it, a_bad_plan_is_reported);

/// Starts the second argument as the jail, does to it what the first one names, and tells how it ended: its exit code,
/// what it said on standard error, and how many failures it reported on the box's socket.
const PLAYED: &str = r"
import array, os, socket, subprocess, sys
how, program = sys.argv[1], sys.argv[2]
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
control, its_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
null = os.open('/dev/null', os.O_RDWR)

def packed(content):
    handle = os.memfd_create('plan')
    os.write(handle, content)
    return handle

def number(value):
    more = b''
    while value > 127:
        more, value = more + bytes([value & 127 | 128]), value >> 7
    return more + bytes([value])

def send(message, *handles):
    ours.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', handles))] if handles else [])

jail = subprocess.Popen(['ringwall-jail'], executable=program, stdin=theirs, env={}, stderr=subprocess.PIPE)
theirs.close()
plans = {
    'garbage plan': lambda: packed(b'\xff' * 4096),
    'empty plan': lambda: packed(b''),
    'zero plan': lambda: packed(bytes(4096)),
    'no file': lambda: null,
    'directory': lambda: os.open('/', os.O_RDONLY),
}
if how == 'garbage':
    send(b'\xff' * 300)
elif how == 'too long':
    send(b'\xff' * 60000)
elif how == 'no descriptors':
    send(b'\0\0')
elif how in plans or how == 'too few descriptors':
    # The request is for box number 0 with these ids and a new network; the plan follows on the box's own socket.
    rootless, uid, gid = os.geteuid() != 0, os.geteuid() or 1880000000, os.getegid() or 1880000000
    send(bytes([0, 0, rootless]) + number(1000) + number(1000) + number(uid) + number(gid) + bytes([0]), its_control.fileno())
    handles = [null, null, null, plans[how]()] if how in plans else []
    # Begin, with the plan in a descriptor and nothing made ahead.
    begin = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', handles))] if handles else []
    control.sendmsg([bytes([1, 0, 0])], begin)
its_control.close()
ours.close()
reported = 0
while True:
    try:
        piece = control.recv(65536)
    except ConnectionResetError:
        break
    if not piece:
        break
    reported += piece[0] == 0
errors = jail.stderr.read().decode()
sys.stdout.write('%d %d\n%s' % (jail.wait(), reported, errors))
";

/// The exit code, the number of failures reported, and the words.
fn play(mode: Mode, way: &str) -> (i32, u64, String) {
    let mut command = mode.identity().command(PYTHON);
    command.args(["-I", "-c", PLAYED, way]).arg(binary().unwrap());
    let outcome = run(command, None).unwrap();
    assert_eq!((outcome.ending, outcome.code()), (Ending::Own, Some(0)), "{way}: {}", outcome.describe());
    let text = outcome.text();
    let (numbers, words) = text.split_once('\n').unwrap();
    let (code, reported) = numbers.split_once(' ').unwrap();
    (code.parse().unwrap(), reported.parse().unwrap(), words.to_owned())
}

fn garbage_ends_it(mode: Mode) {
    for way in ["garbage", "too long"] {
        let (code, _, words) = play(mode, way);
        assert_eq!(code, 2, "{way}");
        assert!(words.starts_with("ringwall: could not read the plan"), "{way}: {words}");
    }
    // Nobody is left to be told; what counts is that it ends.
    for way in ["nothing", "no descriptors"] {
        play(mode, way);
    }
}

fn a_bad_plan_is_reported(mode: Mode) {
    for way in ["garbage plan", "empty plan", "zero plan", "no file", "directory", "too few descriptors"] {
        let (_, reported, _) = play(mode, way);
        assert_eq!(reported, 1, "{way}: ended without a word");
    }
}

fn without_a_socket_it_says_so(mode: Mode) {
    let program = binary().unwrap();
    for redirection in ["</dev/null", "</dev/zero", "<&-", "", "</dev/null 3</dev/null"] {
        let mut command = mode.identity().command("/bin/bash");
        command.args(["-c", &format!("exec -a ringwall-jail {} {redirection}", program.display())]);
        let outcome = run(command, Some(b"garbage")).unwrap();
        assert_eq!(outcome.ending, Ending::Own, "{redirection}: {}", outcome.describe());
        assert!(outcome.code().is_some_and(|code| code != 0), "{redirection}: {}", outcome.describe());
        assert!(
            outcome.errors().starts_with("ringwall: could not read the plan"),
            "{redirection}: {}",
            outcome.describe()
        );
    }
}
