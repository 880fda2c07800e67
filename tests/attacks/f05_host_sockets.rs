//! Attack f05: a box connects to sockets of host services, below `/run` and `/var/run` and abstract
//! ones, which only the network namespace separates.
//!
//! A read-only mount does not stop a connection to a socket below it. A directory given with `--ro`
//! may therefore expose one; the caller chose it, and the note says so.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use serde_json::json;
use tests::support::payload::Payload;
use tests::support::scratch::{Scratch, give, token};

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "f05", title: "docker.sock, D-Bus, ssh-agent, abstract sockets", run };

const CONNECT: &str = r"
import socket
seen = {}
for path in DATA['paths']:
    place = path.replace('@', '\0', 1) if path[0] == '@' else path
    seen[path] = attempt(lambda: socket.socket(socket.AF_UNIX).connect(place))
listed = {place: attempt(lambda: os.listdir(place)) for place in ('/run', '/var/run', '/var')}
answer({'seen': seen, 'listed': listed})
";

fn waiting(listener: &UnixListener) -> bool {
    listener.accept().is_ok()
}

fn run(context: &Context) -> Verdict {
    let name = format!("rw-{}", token()?);
    let abstract_one = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    abstract_one.set_nonblocking(true)?;
    let hidden = Scratch::new(context.mode.identity())?;
    let shown = context.scratch.directory("shown")?;
    let mut listeners = Vec::new();
    for path in [hidden.join("agent.sock"), shown.join("shown.sock")] {
        let listener = UnixListener::bind(&path)?;
        listener.set_nonblocking(true)?;
        give(&path, context.mode.identity())?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666))?;
        listeners.push((path.to_string_lossy().into_owned(), listener));
    }
    let mut paths = vec![format!("@{name}"), listeners[0].0.clone(), listeners[1].0.clone()];
    let outside = context.outside(&Payload::new(CONNECT).with(json!({ "paths": paths })))?;
    let reached = waiting(&abstract_one) && waiting(&listeners[0].1) && waiting(&listeners[1].1);
    control(reached, || format!("not all sockets are reached outside: {outside}"))?;

    paths.extend(
        [
            "/run/docker.sock",
            "/var/run/docker.sock",
            "/run/dbus/system_bus_socket",
            "/run/user/1000/bus",
            "/run/containerd/containerd.sock",
            "/run/systemd/private",
            "/run/podman/podman.sock",
        ]
        .map(String::from),
    );
    let run = match context.is_served() {
        true => context.boxed(),
        false => context.boxed().read_only(&shown).host_variable("SSH_AUTH_SOCK", &listeners[0].0),
    };
    let inside = context.inside(&run, &Payload::new(CONNECT).with(json!({ "paths": paths })))?;
    held(!waiting(&abstract_one), || "an abstract socket of the host was reached".into())?;
    held(!waiting(&listeners[0].1), || "a hidden socket of the host was reached".into())?;
    let through = waiting(&listeners[1].1);
    for (path, outcome) in inside["seen"].as_object().into_iter().flatten() {
        if *path == listeners[1].0 {
            continue;
        }
        let absent = ["ENOENT", "ECONNREFUSED", "EACCES", "EPERM"].iter().any(|errno| outcome == errno);
        held(absent, || format!("{path} → {outcome}"))?;
    }
    if context.is_served() {
        return Ok(format!("all absent; a server shows no directory of its caller's; {}", inside["listed"]));
    }
    let note = if through { "can be connected to" } else { "cannot be connected to" };
    Ok(format!("all absent; a socket beneath --ro {note}; {}", inside["listed"]))
}
