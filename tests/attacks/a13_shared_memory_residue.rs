//! Attack a13: data that a box leaves in shared memory, temporary files, System V objects, message
//! queues and abstract sockets is read by a second box beside it, a later box, or the host.

use serde_json::json;
use tests::support::payload::Payload;
use tests::support::scratch::token;

use crate::probe::{Context, Probe, Verdict, control, held, parse};

pub(crate) const PROBE: Probe =
    Probe { id: "a13", title: "/tmp, /dev/shm, SysV, mqueue, abstract sockets between boxes", run };

/// Leaves marks, reports it and keeps them until its input ends; the second half removes them.
pub(crate) const LEAVE: &str = r"
import socket
mark, key = DATA['mark'], DATA['key']
left = {}
for place in ('/tmp', '/dev/shm', '/home/sandbox', '/var/tmp'):
    def write():
        with open(place + '/' + mark, 'w') as file:
            file.write(mark)
    left[place] = attempt(write)
def sysv(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), 'sysv')
    return result
ids = {}
left['shmget'] = attempt(lambda: ids.update(shm=sysv(libc.shmget(key, 4096, 0o1666))))
left['msgget'] = attempt(lambda: ids.update(msg=sysv(libc.msgget(key, 0o1666))))
left['semget'] = attempt(lambda: ids.update(sem=sysv(libc.semget(key, 1, 0o1666))))
left['mq_open'] = attempt(lambda: sysv(libc.mq_open(b'/' + mark.encode(), 0o102, 0o666, None)))
holder = socket.socket(socket.AF_UNIX)
left['abstract'] = attempt(lambda: (holder.bind('\0' + mark), holder.listen(1)))
answer(left)
sys.stdin.read()
for place in ('/tmp', '/dev/shm', '/var/tmp'):
    attempt(lambda: os.unlink(place + '/' + mark))
if 'shm' in ids: libc.shmctl(ids['shm'], 0, None)
if 'msg' in ids: libc.msgctl(ids['msg'], 0, None)
if 'sem' in ids: libc.semctl(ids['sem'], 0, 0)
libc.mq_unlink(b'/' + mark.encode())
";

pub(crate) const FIND: &str = r"
import socket
mark, key = DATA['mark'], DATA['key']
def sysv(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), 'sysv')
found = {}
for place in ('/tmp', '/dev/shm', '/home/sandbox', '/var/tmp'):
    found[place] = attempt(lambda: os.stat(place + '/' + mark))
found['shmget'] = attempt(lambda: sysv(libc.shmget(key, 0, 0)))
found['msgget'] = attempt(lambda: sysv(libc.msgget(key, 0)))
found['semget'] = attempt(lambda: sysv(libc.semget(key, 0, 0)))
found['mq_open'] = attempt(lambda: sysv(libc.mq_open(b'/' + mark.encode(), 0)))
found['abstract'] = attempt(lambda: socket.socket(socket.AF_UNIX).connect('\0' + mark))
answer(found)
";

fn run(context: &Context) -> Verdict {
    let mark = format!("mark-{}", token()?);
    // A positive 31-bit key that no other program uses by chance.
    let key = i64::from_str_radix(&token()?[..7], 16).unwrap_or(0x051f_ca11);
    let data = json!({ "mark": mark, "key": key });
    let (leave, find) = (Payload::new(LEAVE).with(data.clone()), Payload::new(FIND).with(data));

    let mut live = tests::support::process::LiveProcess::start({
        let words = leave.arguments();
        let mut command = context.mode.identity().command(&words[0]);
        command.args(&words[1..]);
        command
    })?;
    live.line()?;
    let seen = context.outside(&find)?;
    live.finish()?;
    for kind in ["/tmp", "/dev/shm", "shmget", "msgget", "semget", "mq_open", "abstract"] {
        control(seen[kind] == "ok", || format!("{kind} is not shared outside: {seen}"))?;
    }

    let mut live = context.boxed().start_payload(&leave)?;
    let left = live.line()?;
    let beside = context.inside(&context.boxed(), &find)?;
    let on_host = context.outside(&find)?;
    let ended = live.finish()?;
    parse("from the first box", &ended)?;
    let after = context.inside(&context.boxed(), &find)?;
    for (who, answer) in [("a box beside it", &beside), ("the host", &on_host), ("a later box", &after)] {
        for (kind, outcome) in answer.as_object().into_iter().flatten() {
            held(outcome != "ok", || format!("{kind} of the first box is seen by {who}"))?;
        }
    }
    for kind in ["/tmp", "/dev/shm"] {
        control(left.contains(&format!("\"{kind}\": \"ok\"")), || format!("the first box left nothing: {left}"))?;
    }
    Ok(format!("left {left}, found nothing"))
}
