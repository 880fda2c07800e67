//! Attack f12: the server is killed while a box holds a connection through the proxy and opens
//! others. The connection must break and the box must end.

use std::io::{ErrorKind, Read};
use std::net::TcpListener;

use rustix::process::Signal;
use tests::support::host;

use crate::f09_past_the_list::{allow, server};
use crate::probe::{Context, Probe, Verdict, comes, control, held};

pub(crate) const PROBE: Probe = Probe { id: "f12", title: "a proxy connection that outlives its server", run };

/// Opens a tunnel, reports it, and keeps opening others.
const GO_ON: &str = r#"
import socket
def tunnel():
    client = socket.create_connection(("127.0.0.1", 3128), 20)
    client.sendall(("CONNECT " + TARGET + " HTTP/1.1\r\n\r\n").encode())
    return client, client.recv(12)
kept, told = tunnel()
print(told, flush=True)
while True:
    try:
        kept.send(b"x")
        tunnel()[0].close()
    except OSError:
        pass
"#;

fn run(context: &Context) -> Verdict {
    let mut server = server(context)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let target = listener.local_addr()?.to_string();
    allow(&server, std::slice::from_ref(&target), std::slice::from_ref(&target));
    let mark = format!("f12-{}", server.id());
    let id = server.begin(&format!("exec python3 - {mark} <<'END'\nTARGET = {target:?}\n{GO_ON}\nEND"));
    let (mut first, _) = listener.accept()?;
    server.wait_for_output(&id);
    let mut byte = [0];
    control(first.read(&mut byte)? == 1, || "nothing comes through while the server lives".into())?;
    let (_second, _) = listener.accept()?;
    control(goes_on(&mark), || "whoever asks for more is not found".into())?;

    server.signal(Signal::KILL);
    server.ended();
    let mut rest = Vec::new();
    // The end of the connection is EOF or a reset.
    let ended = match first.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    held(ended, || "the connection is still there".into())?;
    held(comes(|| host::running(&context.binary).is_ok_and(|left| left.is_empty())), || "processes are left".into())?;
    held(comes(|| !goes_on(&mark)), || "the process that opens connections is still there".into())?;
    Ok("its connection broke off, and its processes are gone, with whoever asks for more".to_owned())
}

/// True if a process has this text in its command line.
fn goes_on(mark: &str) -> bool {
    !host::marked(mark).is_ok_and(|found| found.is_empty())
}
