//! The jail process, started without the executor and with an invalid request or plan, exits with an
//! error. A Python script stands in for the executor at the other end of its socket.

use tests::support::actor::Mode;
use tests::support::boxed::binary;
use tests::support::payload::PYTHON;
use tests::support::process::{Ending, run};

use crate::modes::in_both_modes;

in_both_modes!(jail_without_a_socket_exits_with_an_error, invalid_request_ends_the_jail, invalid_plan_is_reported);

/// Starts the program in the second argument as the jail and sends what the first argument names. Prints
/// its exit code, the number of failures that it reported on the box's socket, and its standard error.
const FAKE_EXECUTOR: &str = r"
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
    # The request is for box number 0 with these ids and a new network; the plan follows on the box's socket.
    rootless, uid, gid = os.geteuid() != 0, os.geteuid() or 1880000000, os.getegid() or 1880000000
    send(bytes([0, 0, rootless]) + number(1000) + number(1000) + number(uid) + number(gid) + bytes([0]), its_control.fileno())
    handles = [null, null, null, plans[how]()] if how in plans else []
    # Message to begin, with the plan in a descriptor; not a warm box.
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

/// Returns the exit code, the number of reported failures and the text on standard error.
fn run_jail(mode: Mode, case: &str) -> (i32, u64, String) {
    let mut command = mode.identity().command(PYTHON);
    command.args(["-I", "-c", FAKE_EXECUTOR, case]).arg(binary().unwrap());
    let outcome = run(command, None).unwrap();
    assert_eq!((outcome.ending, outcome.code()), (Ending::Own, Some(0)), "{case}: {}", outcome.describe());
    let text = outcome.text();
    let (numbers, errors) = text.split_once('\n').unwrap();
    let (code, reported) = numbers.split_once(' ').unwrap();
    (code.parse().unwrap(), reported.parse().unwrap(), errors.to_owned())
}

fn invalid_request_ends_the_jail(mode: Mode) {
    for case in ["garbage", "too long"] {
        let (code, _, errors) = run_jail(mode, case);
        assert_eq!(code, 2, "{case}");
        assert!(errors.starts_with("ringwall: could not read the plan"), "{case}: {errors}");
    }
    // Without the other end of a socket the jail cannot report a failure; it only has to exit.
    for case in ["nothing", "no descriptors"] {
        run_jail(mode, case);
    }
}

fn invalid_plan_is_reported(mode: Mode) {
    for case in ["garbage plan", "empty plan", "zero plan", "no file", "directory", "too few descriptors"] {
        let (_, reported, _) = run_jail(mode, case);
        assert_eq!(reported, 1, "{case}: no failure was reported");
    }
}

fn jail_without_a_socket_exits_with_an_error(mode: Mode) {
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
