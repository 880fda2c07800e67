//! Attack s09: one command of a session box attacks another of the same user, which holds a secret
//! and is driven through a descriptor, as a browser is. Control: the attack works on the attacker's
//! own child.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::support::scratch::token;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "s09", title: "one command of a session looks into another", run };

const TIMEOUT: Duration = Duration::from_secs(60);

/// Tries every way to access another process and prints each result.
const LOOK: &str = r"
import ctypes, json, os, time
libc = ctypes.CDLL(None, use_errno=True)
def call(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), 'refused')
def write(process, number):
    descriptor = os.open(f'/proc/{process}/fd/{number}', os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, b'touched')
def environment(process, number):
    assert b'SECRET' in open(f'/proc/{process}/environ', 'rb').read()
def memory(process, number):
    start = int(open(f'/proc/{process}/maps').readline().split('-')[0], 16)
    with open(f'/proc/{process}/mem', 'rb', 0) as file:
        file.seek(start)
        file.read(1)
def take(process, number):
    call(438, os.pidfd_open(process), number, 0)
def attach(process, number):
    call(101, 0x4206, process, 0, 0)
def tried(act, process, number):
    try:
        act(process, number)
        return 'done'
    except (OSError, AssertionError) as problem:
        return str(problem)
def look(process, number):
    return {act.__name__: tried(act, process, number) for act in (write, environment, memory, take, attach)}
own = os.fork()
if own == 0:
    held = os.open('own', os.O_WRONLY | os.O_CREAT)
    os.dup2(held, 200)
    os.execve('/bin/sleep', ['sleep', '1000'], {'SECRET': 'x'})
# It has become what it is to be when its environment is the new one.
until = time.monotonic() + 60
while tried(environment, own, 200) != 'done' and time.monotonic() < until:
    time.sleep(0.01)
process, number = map(int, open('victim').read().split())
print(json.dumps({'own': look(own, 200), 'other': look(process, number)}))
os.kill(own, 9)
";

fn run(context: &Context) -> Verdict {
    let server = context.server()?;
    let session = format!("s{}", &token()?[..16]);
    let rules = json!({ "session_id": session, "confirmation": "auto-approve" });
    server.ask("POST", "/api/sessions", Some(&rules)).expect(201);
    let victim = "exec 200> canary; SECRET=x sh -c 'echo $$ 200 > victim; exec sleep 1000'";
    let process = format!("/api/sessions/{session}/processes");
    server.ask("POST", &process, Some(&json!({ "command": victim }))).expect(202);
    let files = server.data().join(format!("workspaces/default/default/sessions/{session}/work"));
    let began = Instant::now();
    while !std::fs::read(files.join("victim")).is_ok_and(|text| text.ends_with(b"\n")) {
        control(began.elapsed() < TIMEOUT, || "nobody is there to be looked into".to_owned())?;
        std::thread::sleep(Duration::from_millis(10));
    }
    let body = json!({ "session_id": session, "code": LOOK, "backend": "aio" });
    let ran = server.ask("POST", "/api/run", Some(&body)).expect(200);
    let said: Value = serde_json::from_str(ran["stdout"].as_str().unwrap_or_default()).unwrap_or(Value::Null);
    let (own, other) = (&said["own"], &said["other"]);
    for act in ["write", "environment", "memory"] {
        control(own[act] == "done", || format!("{act} in a child of its own: {said} {}", ran["stderr"]))?;
    }
    control(std::fs::read(files.join("own")).is_ok_and(|text| text == b"touched"), || "its child's file".to_owned())?;
    let touched = std::fs::read(files.join("canary"))?;
    server.ask("DELETE", &format!("/api/sessions/{session}"), None).expect(200);
    held(touched.is_empty(), || format!("the other's descriptor was written to: {touched:?}"))?;
    for (act, outcome) in other.as_object().into_iter().flatten() {
        held(outcome != "done", || format!("{act} of the other command: {outcome}"))?;
    }
    Ok(format!("in a child of its own {own}, in the other {other}"))
}
