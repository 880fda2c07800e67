//! Attack s05: endless output must not grow the server's memory and ends with its exec, also if the
//! box hands its standard output to another box of the project, which writes on after the first has
//! ended.

use std::time::Duration;

use serde_json::json;
use tests::support::host;
use tests::support::payload::Payload;

use crate::probe::{Context, Fault, Probe, Verdict, boxes, control, held};

pub(crate) const PROBE: Probe = Probe { id: "s05", title: "floods of output, and output held after the end", run };

/// Allowed growth of the server's memory; the output is many times larger.
const MORE_KIB: u64 = 64 << 10;

/// Receives the descriptor through a socket in the workspace and writes to it until its own input ends.
const TAKE_OVER: &str = r"
import array, socket, threading
listener = socket.socket(socket.AF_UNIX)
listener.bind('/workspace/work/handover')
listener.listen(1)
answer('listening')
connection = listener.accept()[0]
taken = socket.recv_fds(connection, 1, 1)[1][0]
def flood():
    while True:
        os.write(taken, b'x' * 65536)
for _ in range(4):
    threading.Thread(target=flood, daemon=True).start()
connection.sendall(b'go')
sys.stdin.read()
answer('flooded')
os._exit(0)
";

const HAND_OVER: &str = r"
import fcntl, socket
# The largest that it may be, so that whoever empties it never finds it empty.
fcntl.fcntl(1, 1031, 1 << 20)
connection = socket.socket(socket.AF_UNIX)
connection.connect('/workspace/work/handover')
socket.send_fds(connection, [b'1'], [1])
connection.recv(2)
os.write(1, b'handed over')
";

fn run(context: &Context) -> Verdict {
    let server = context.server()?;
    let before = resident(server.id())?;
    let flood =
        context.boxed().report(&["/bin/sh", "-c", "yes xxxxxxxx | head -c 3000000000; yes | head -c 99000000 >&2"])?;
    control(flood.outcome.code() == Some(0), || flood.summary())?;
    held(flood.is_set("stdout_truncated") && flood.is_set("stderr_truncated"), || flood.summary())?;
    let after = resident(server.id())?;
    held(after < before + MORE_KIB, || format!("the server grew from {before} to {after} KiB"))?;

    // Processes of a daemon that keeps its output are killed with the box.
    let daemon = context.boxed().run(&["/bin/sh", "-c", "setsid sh -c 'while :; do echo x; done' & echo parent"])?;
    held(daemon.code() == Some(0) && daemon.elapsed < Duration::from_secs(30), || daemon.describe())?;

    let mut taker = context.boxed().start_payload(&Payload::new(TAKE_OVER))?;
    taker.line()?;
    let mut limited = context.boxed().option("--timeout", "60");
    limited = limited.flag("--json");
    let giver = limited.run_payload(&Payload::new(HAND_OVER).with(json!(null)))?;
    let others = boxes(server)?.len();
    let taker = taker.finish()?;
    control(taker.text().contains("flooded"), || format!("nobody took the output over: {}", taker.describe()))?;
    held(giver.elapsed < Duration::from_secs(120), || {
        format!("an exec did not end: {} ms", giver.elapsed.as_millis())
    })?;
    held(others > 0, || "the exec ended only when the other one did".into())?;
    held(giver.code() == Some(0), || giver.describe())?;
    Ok(format!(
        "3 GB printed, the server grew by {} KiB; a handed-over output ended in {} ms",
        after.saturating_sub(before),
        giver.elapsed.as_millis()
    ))
}

fn resident(process: u32) -> Result<u64, Fault> {
    let field = host::field(process, "VmRSS").and_then(|text| text.split(' ').next()?.parse().ok());
    field.ok_or_else(|| Fault::Inconclusive("the server's size cannot be read".into()))
}
