//! Network access of boxes: only through the proxy on their loopback, and only to allowed hosts.
//! gVisor refuses it. A listener on the host counts the connections that arrive.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use tests::support::docker_daemon::wait_until;
use tests::support::listener::Listener;
use tests::support::server::Server;

use crate::fixture::{Backend, Fixture};

/// Python functions for attempts. `ask` returns the proxy's status for a CONNECT; the others bypass
/// the proxy.
const FUNCTIONS: &str = r#"
import json, os, socket, sys, time
PROXY = ("127.0.0.1", 3128)
def ask(target):
    with socket.create_connection(PROXY, 20) as client:
        client.sendall(f"CONNECT {target} HTTP/1.1\r\n\r\n".encode())
        return client.recv(12).decode().split(" ")[1]
def fails(attempt):
    try:
        attempt()
        return "it worked"
    except OSError as problem:
        return type(problem).__name__
def direct(host):
    return fails(lambda: socket.create_connection((host, PORT), 2))
def socket_in_box():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.connect("/run/ringwall/way-out")
"#;

/// Makes each attempt once.
const ATTEMPTS: &str = r#"
interfaces = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
variables = [os.environ[name] for name in ("HTTP_PROXY", "https_proxy", "no_proxy")]
for name in list(os.environ):
    if "proxy" in name.lower():
        del os.environ[name]
print(json.dumps({
    "allowed": ask(f"127.0.0.1:{PORT}"), "refused": [ask("evil.example:80"), ask("127.0.0.1:1")],
    "direct": [direct("127.0.0.1"), direct("192.0.2.1"), fails(lambda: socket.getaddrinfo("evil.example", 80))],
    "interfaces": interfaces, "variables": variables, "socket": fails(socket_in_box),
}))
"#;

/// Opens 300 connections to the proxy and prints `full`. After another box was served, closes them
/// and connects again.
const FLOOD: &str = r#"
held = []
for number in range(300):
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(PROXY)
    held.append(client)
for client in held[::2]:
    fails(lambda: client.send(b"\x00\xff" * 2048))
print("full", flush=True)
while not os.path.exists("/workspace/work/served"):
    time.sleep(0.02)
for client in held:
    client.close()
print(ask(f"127.0.0.1:{PORT}"))
"#;

fn script(port: u16, what: &str) -> String {
    format!("python3 - <<'END'\nPORT = {port}\n{FUNCTIONS}{what}\nEND")
}

fn open(fixture: &Fixture, listener: &Listener) -> (Server, u16) {
    let server = fixture.start();
    let port = listener.stream_port().unwrap();
    let host = format!("127.0.0.1:{port}");
    let settings = json!({
        "net": { "mode": "allowlist", "allow": [host] }, "egress": { "allowed_hosts": [host] },
        "sessions": { "confirmation": "auto-approve" }, "strict": { "backends": [fixture.backend.name()] },
    });
    server.ask("PUT", "/settings", Some(&settings)).expect(200);
    (server, port)
}

/// The recorded connections with their outcomes, sorted, because each is recorded when it ends.
fn network(server: &Server, exec: &Value) -> Vec<(String, String)> {
    let id = exec["exec_id"].as_str().unwrap();
    let network = server.ask("GET", &format!("/sandbox/execs/{id}/network"), None).expect(200);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let connections = network["connections"].as_array().unwrap().iter();
    let mut seen: Vec<(String, String)> =
        connections.map(|one| (format!("{}:{}", text(&one["host"]), one["port"]), text(&one["outcome"]))).collect();
    seen.sort();
    seen
}

pub(crate) fn exec_reaches_allowed_hosts_only(fixture: &Fixture) {
    let listener = Listener::on(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
    let (server, port) = open(fixture, &listener);
    let once = script(port, ATTEMPTS);
    if fixture.backend == Backend::Gvisor {
        let denied = server.ask("POST", "/sandbox/execs", Some(&server.request(&once))).expect(403);
        assert_eq!(denied["detail"]["code"], "POLICY_DENIED", "{denied}");
        assert!(denied["detail"]["message"].as_str().unwrap().contains("gvisor cannot enforce it"), "{denied}");
        return;
    }
    let done = server.shell(&once);
    let output: Value = serde_json::from_str(&server.stdout(&done)).unwrap_or_else(|_| panic!("{done}"));
    let address = "http://127.0.0.1:3128";
    let refused = "ConnectionRefusedError";
    let expected = json!({
        "allowed": "200", "refused": ["403", "403"], "direct": [refused, "OSError", "gaierror"], "interfaces": ["lo"],
        "variables": [address, address, "localhost,127.0.0.1,::1"],
        // In a container the socket exists, because our entrypoint shim used it before the command.
        "socket": if fixture.backend == Backend::Docker { refused } else { "FileNotFoundError" },
    });
    assert_eq!(output, expected);
    assert_eq!(listener.connections().unwrap(), 1, "only what was allowed");
    let here = format!("127.0.0.1:{port}");
    let refused = |host: &str| (host.to_owned(), "refused".to_owned());
    let expected = [refused("127.0.0.1:1"), (here, "allowed".to_owned()), refused("evil.example:80")];
    assert_eq!(network(&server, &done), expected);
    let meta = format!("/sandbox/execs/{}/artifacts/meta.json", done["exec_id"].as_str().unwrap());
    let mounts = server.ask("GET", &meta, None).expect(200)["docker_mounts"].to_string();
    let is_shown = mounts.contains(r#""mode":"ro","source":"ringwall/way-out","target":"/run/ringwall/way-out""#);
    assert_eq!(is_shown, fixture.backend == Backend::Docker, "{mounts}");
    // A box that exhausts its connections does not affect other boxes.
    let greedy = server.begin(&script(port, FLOOD));
    server.wait_for_output(&greedy);
    let served = server.shell(&script(port, "print(ask(f'127.0.0.1:{PORT}'))\nopen('served', 'w')"));
    assert_eq!(server.stdout(&served), "200\n", "{served}");
    wait_until("the greedy box is over", || server.exec(&greedy)["status"] != "RUNNING");
    let greedy = server.exec(&greedy);
    assert_eq!(server.stdout(&greedy), "full\n200\n", "{greedy}");
    let left = || std::fs::read_dir(server.data().join("ways-out")).map_or(0, Iterator::count);
    wait_until("the last socket is gone", || left() == 0);
}

pub(crate) fn session_box_reaches_allowed_hosts_only(fixture: &Fixture) {
    let listener = Listener::on(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
    let (server, port) = open(fixture, &listener);
    let run = |target: &str| {
        let code = format!("PORT = {port}\n{FUNCTIONS}print(ask(\"{target}\"))");
        let body = json!({ "session_id": "s", "code": code, "language": "python", "backend": "aio" });
        server.ask("POST", "/api/run", Some(&body))
    };
    let here = format!("127.0.0.1:{port}");
    if fixture.backend == Backend::Gvisor {
        let denied = run(&here).expect(403);
        assert_eq!(denied["error"]["code"], "POLICY_DENIED", "{denied}");
        return;
    }
    for (target, stdout, outcome) in
        [(here.as_str(), "200\n", "allowed"), ("evil.example:80", "403\n", "refused"), (&here, "200\n", "allowed")]
    {
        let ran = run(target).expect(200);
        assert_eq!((&ran["stdout"], &ran["error"]), (&json!(stdout), &Value::Null), "{ran}");
        // The connection may end after its command, and is recorded then.
        let expected = [(target.to_owned(), outcome.to_owned())];
        wait_until("the connection is recorded", || network(&server, &ran) == expected);
        let home = server.exec(ran["exec_id"].as_str().unwrap());
        let is_container = home["image"] != Value::Null;
        assert_eq!(is_container, fixture.backend == Backend::Docker, "{home}");
    }
    assert_eq!(listener.connections().unwrap(), 2);
}
