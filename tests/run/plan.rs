//! The process that makes a box, started by hand under its own name with something other than a plan: it ends at once,
//! says so, and makes nothing. What it is sent comes through a socket, so Python plays the executor.

use tests::support::actor::Mode;
use tests::support::boxed::binary;
use tests::support::payload::PYTHON;
use tests::support::process::{Ending, run};

use crate::modes::in_both_modes;

in_both_modes!(without_a_socket_it_says_so, through_a_socket_it_reports);

/// Starts the second argument as the jail with the standard input that the first argument names.
const PLAYED: &str = r"
import array, os, socket, subprocess, sys
how, program = sys.argv[1], sys.argv[2]
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

def packet(content):
    handle = os.memfd_create('plan')
    os.write(handle, content)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle

def send(message, *handles):
    ours.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', handles))] if handles else [])

jail = subprocess.Popen(['ringwall-jail'], executable=program, stdin=theirs, env={}, stderr=subprocess.PIPE)
theirs.close()
null = os.open('/dev/null', os.O_RDWR)
if how == 'garbage':
    send(b'\xff' * 300)
elif how == 'no descriptors':
    send(b'\0')
elif how == 'garbage plan':
    send(b'\0', packet(os.urandom(4096)), null, null, null)
elif how == 'empty plan':
    send(b'\0', packet(b''), null, null, null)
elif how == 'zero plan':
    send(b'\0', packet(bytes(4096)), null, null, null)
elif how == 'plan that is no file':
    send(b'\0', null, null, null, null)
elif how == 'too few descriptors':
    send(b'\0', packet(bytes(64)), null)
ours.shutdown(socket.SHUT_WR)
answer = b''
while True:
    try:
        piece = ours.recv(65536)
    except ConnectionResetError:
        break
    if not piece:
        break
    answer += piece
errors = jail.stderr.read()
sys.stdout.write('%d %d\n' % (jail.wait(), len(answer) + len(errors)))
";

const WAYS: [&str; 8] = [
    "nothing",
    "garbage",
    "no descriptors",
    "garbage plan",
    "empty plan",
    "zero plan",
    "plan that is no file",
    "too few descriptors",
];

fn through_a_socket_it_reports(mode: Mode) {
    let program = binary().unwrap();
    for way in WAYS {
        let mut command = mode.identity().command(PYTHON);
        command.args(["-I", "-c", PLAYED, way]).arg(&program);
        let outcome = run(command, None).unwrap();
        let text = outcome.text();
        let words: Vec<i64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
        assert_eq!(words.len(), 2, "{way}: {}", outcome.describe());
        assert!(words[0] > 0, "{way}: ended with {}", words[0]);
        assert!(words[1] > 0, "{way}: ended without a word");
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
