//! Attack s12: one box of a rootless server uses up what the kernel counts for the server's user.
//!
//! The server runs as a user whom nothing else uses. A process of that user outside holds all but some thousand epoll
//! watches, so that a box takes the rest in a moment instead of minutes; the box goes on taking what becomes free. The
//! server must answer every new connection and run another user's execs, and end the box. A second box leaves so many
//! descriptors unreceived that the kernel refuses boxes to pass any; other boxes must still start. The controls
//! do both outside. While a process outside holds every watch for a second, a connection over HTTP, one of an MCP client
//! and one of a box to the egress proxy must wait instead of being closed. `ringwall run` under a low soft RLIMIT_NOFILE
//! must start a box although its user has more unreceived descriptors than that.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::actor::{Identity, Mode};
use tests::support::payload::Payload;
use tests::support::process::{DEADLINE, LiveProcess};
use tests::support::server::{Server, Starter, shell};

use crate::probe::{Context, Fault, Probe, Verdict, comes, control, held, need_root};

pub(crate) const PROBE: Probe = Probe { id: "s12", title: "one box stops a rootless server", run };

/// Takes every watch of the user, then gives `DATA` of them back and holds the others until its input ends.
const LEAVE_SOME: &str = r"
import resource, select
limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
files = [os.eventfd(0) for _ in range(min(limit // 2 - 50, 4000))]
instances, refusal = [], 'none'
while refusal == 'none' and len(instances) < limit // 2 - 50:
    instances.append(select.epoll())
    try:
        for file in files:
            instances[-1].register(file, 0)
    except OSError as error:
        refusal = name_of(error.errno)
for file in range(DATA // len(files)):
    instances.pop(0).close()
answer({'refusal': refusal})
sys.stdin.read()
";

/// Takes epoll watches until it is refused, prints so, and keeps them while it lives.
const TAKE_WATCHES: &str = r"
import os, select
files, instances, said = [os.eventfd(0) for _ in range(500)], [], False
while True:
    instances.append(select.epoll())
    for file in files:
        try:
            instances[-1].register(file, 0)
        except FileExistsError:
            pass
        except OSError as error:
            if not said:
                print(error.errno, flush=True)
                said = True
            if os.environ.get('ONCE'):
                raise SystemExit
    if said and len(instances) > 1000:
        instances.pop().close()
";

/// Sends descriptors that are never received until it is refused, and prints so.
const PASS_DESCRIPTORS: &str = r"
import os, resource, socket, time
if os.environ.get('ONCE'):
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
null, pairs = os.open('/dev/null', os.O_RDONLY), []
try:
    while True:
        pairs.append(socket.socketpair())
        for _ in range(10):
            socket.send_fds(pairs[-1][0], [b'x'], [null] * 20)
except OSError as error:
    print(error.errno, flush=True)
if not os.environ.get('ONCE'):
    time.sleep(60)
";

/// Keeps 1,000 descriptors unreceived until its input ends.
const HOLD_DESCRIPTORS: &str = r"
import os, socket, sys
null, pairs = os.open('/dev/null', os.O_RDONLY), []
for _ in range(5):
    pairs.append(socket.socketpair())
    for _ in range(10):
        socket.send_fds(pairs[-1][0], [b'x'], [null] * 20)
print('held', flush=True)
sys.stdin.read()
";

/// Sends one descriptor under its soft limit.
const PASS_ONE: &str = r"
import os, socket
pair = socket.socketpair()
try:
    socket.send_fds(pair[0], [b'x'], [0])
    print('sent')
except OSError as error:
    print(error.errno)
";

const ENOSPC: &str = "28";
const ETOOMANYREFS: &str = "109";

fn run(context: &Context) -> Verdict {
    if context.mode != Mode::Rootless {
        return Err(Fault::Senseless("as root a box has another uid than the server (g25)".into()));
    }
    need_root("it needs a user whom nothing else uses")?;
    let starter = Starter { identity: Identity::Alone, binary: context.binary.clone() };
    let server = Server::start_as(&starter, TempDir::with_prefix("rw-counters-")?, &[]);
    let other = server.make_token(&["--role", "user", "--user", "other"]);

    // Less than a box may hold, so that only the full counter ends the box.
    let room = cap()? * 9 / 10;
    let mut holder = leave_some(room)?;
    control_outside(TAKE_WATCHES, ENOSPC)?;
    let rounds = attack(&server, &other, TAKE_WATCHES, ENOSPC)?;
    holder.send(b"\n")?;
    holder.finish()?;

    wait_for_watches(&server)?;

    run_beside_descriptors(context)?;
    control_outside(PASS_DESCRIPTORS, ETOOMANYREFS)?;
    let more = attack(&server, &other, PASS_DESCRIPTORS, ETOOMANYREFS)?;
    Ok(format!("{rounds} and {more} execs of another user while a box held all watches, all passed descriptors"))
}

/// Runs `code` in a box of the owner. Until that box was ended, every connection and every exec of another user must
/// succeed.
fn attack(server: &Server, other: &str, code: &str, refusal: &str) -> Result<u32, Fault> {
    let exec = server.begin(&format!("exec /usr/bin/python3 -I -c \"{code}\""));
    let begun = Instant::now();
    let mut rounds = 0;
    let ended = loop {
        held(is_healthy(server), || format!("the server did not answer in round {rounds}: {}", server.log()))?;
        let ran = server.ask_as(other, "POST", "/sandbox/execs", Some(&shell("echo well"))).json();
        held(ran["status"] == "SUCCEEDED", || {
            format!("another user's exec failed in round {rounds}: {ran}: {}", server.log())
        })?;
        rounds += 1;
        let seen = server.exec(&exec);
        if !["QUEUED", "RUNNING"].contains(&seen["status"].as_str().unwrap_or_default()) {
            break seen;
        }
        held(begun.elapsed() < DEADLINE, || format!("the box was not ended: {seen}"))?;
    };
    control(server.stdout(&ended).trim() == refusal, || format!("the box met no refusal: {ended}"))?;
    held(ended["error_reason"]["code"] == "SHARED_COUNTER", || format!("the box ended otherwise: {ended}"))?;
    Ok(rounds)
}

/// Connects in three ways while no watch is free. Each connection must be answered when they are.
fn wait_for_watches(server: &Server) -> Result<(), Fault> {
    let origin = TcpListener::bind("127.0.0.1:0")?;
    let port = origin.local_addr()?.port();
    thread::spawn(move || {
        for mut stream in origin.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nwell");
        }
    });
    let host = format!("localhost:{port}");
    let settings = json!({ "net": { "mode": "allowlist", "allow": [host] }, "egress": { "allowed_hosts": [host] } });
    server.ask("PUT", "/settings", Some(&settings)).expect(200);
    let ask = format!("[ \"$(curl -sS --max-time 60 http://{host}/)\" = well ]");
    let script = format!("unset no_proxy NO_PROXY; {ask} && echo first && until [ -e go ]; do sleep 0.05; done; {ask}");
    let exec = server.begin(&script);
    // Control: with free watches the box gets an answer.
    server.wait_for_output(&exec);

    let mut holder = leave_some(0)?;
    std::fs::write(server.data().join("workspaces/default/default/projects/p/work/go"), "")?;
    let (is_served, window) = thread::scope(|scope| {
        let health = scope.spawn(|| is_healthy(server));
        let window = scope.spawn(|| mcp_answer(server));
        // Not for synchronisation: the watches stay taken for this long.
        thread::sleep(Duration::from_secs(1));
        let released = holder.send(b"\n").and_then(|()| holder.finish());
        (released.is_ok() && health.join().unwrap_or(false), window.join().ok())
    });
    control(comes(|| server.exec(&exec)["status"] != "RUNNING"), || "the box goes on".to_owned())?;
    let ended = server.exec(&exec);
    let is_initialized = matches!(&window, Some(Ok(line)) if line.contains("serverInfo"));
    let answered = [("HTTP", is_served), ("MCP", is_initialized), ("egress proxy", ended["status"] == "SUCCEEDED")];
    let closed: Vec<&str> = answered.iter().filter(|(_, is_answered)| !is_answered).map(|(name, _)| *name).collect();
    held(closed.is_empty(), || format!("connections were closed: {closed:?}: {ended}: {}", server.log()))?;
    server.ask("PUT", "/settings", Some(&json!({ "net": { "mode": "none" } }))).expect(200);
    Ok(())
}

/// The server's answer to the first message of an MCP client at its Unix socket.
fn mcp_answer(server: &Server) -> std::io::Result<String> {
    let mut stream = UnixStream::connect(server.data().join("mcp.sock"))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    stream.write_all(format!("{{}}\n{message}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(line)
}

/// Runs a box under a soft limit of 256 open files while the user has more unreceived descriptors.
fn run_beside_descriptors(context: &Context) -> Result<(), Fault> {
    let limited = |words: &[&OsStr]| {
        let mut command = Identity::Alone.command("/bin/bash");
        command.args(["-c", "ulimit -Sn 256; exec \"$@\"", "sh"]).args(words);
        tests::support::process::run(command, None)
    };
    let mut command = Identity::Alone.command("/usr/bin/python3");
    command.args(["-I", "-c", HOLD_DESCRIPTORS]);
    let mut holder = LiveProcess::start(command)?;
    holder.line()?;
    let words = ["/usr/bin/python3", "-I", "-c", PASS_ONE].map(OsStr::new);
    let outside = limited(&words)?;
    control(outside.text().trim() == ETOOMANYREFS, || outside.describe())?;
    let ran = limited(&[context.binary.as_os_str(), OsStr::new("run"), OsStr::new("--"), OsStr::new("true")])?;
    held(ran.code() == Some(0), || format!("no box starts under a soft RLIMIT_NOFILE of 256: {}", ran.describe()))?;
    holder.finish()?;
    Ok(())
}

/// A new connection, answered.
fn is_healthy(server: &Server) -> bool {
    let ask = || -> std::io::Result<String> {
        let mut stream = std::net::TcpStream::connect(&server.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let request = format!("GET /healthz HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", server.address);
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// The same code as the same user outside of a box meets the same refusal.
fn control_outside(code: &str, refusal: &str) -> Result<(), Fault> {
    let mut command = Identity::Alone.command("/usr/bin/python3");
    command.env("ONCE", "1").args(["-I", "-c", code]);
    let outcome = tests::support::process::run(command, None)?;
    control(outcome.text().trim() == refusal, || outcome.describe())
}

fn leave_some(room: u64) -> Result<LiveProcess, Fault> {
    let words = Payload::new(LEAVE_SOME).with(json!(room)).arguments();
    let mut command = Identity::Alone.command(&words[0]);
    command.args(&words[1..]);
    let mut live = LiveProcess::start(command)?;
    let answer: Value = serde_json::from_str(&live.line()?).unwrap_or_default();
    control(answer["refusal"] == "ENOSPC", || format!("the watches of a user have no end: {answer}"))?;
    Ok(live)
}

/// How many watches one box may hold here.
fn cap() -> Result<u64, Fault> {
    let limit = std::fs::read_to_string("/proc/sys/fs/epoll/max_user_watches")?;
    let limit: u64 = limit.trim().parse().map_err(|error| Fault::Inconclusive(format!("{error}")))?;
    Ok((limit / 16).min(65_536))
}
