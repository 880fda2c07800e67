//! Hosts that boxes may reach: through the one port of a box's loopback, the same in a box of every maker, and refused where a
//! maker cannot. A listener on the host counts who really came.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use tests::support::docker_daemon::wait_until;
use tests::support::listener::Listener;
use tests::support::server::Server;

use crate::site::{Backend, Site};

/// What a box can try. `ask` is the proxy's answer to a wish for a tunnel; the rest goes past it.
const TRIES: &str = r#"
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
def door():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as caller:
        caller.connect("/run/ringwall/way-out")
"#;

/// All of it once.
const ONCE: &str = r#"
interfaces = [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line]
variables = [os.environ[name] for name in ("HTTP_PROXY", "https_proxy", "no_proxy")]
for name in list(os.environ):
    if "proxy" in name.lower():
        del os.environ[name]
print(json.dumps({
    "allowed": ask(f"127.0.0.1:{PORT}"), "refused": [ask("evil.example:80"), ask("127.0.0.1:1")],
    "direct": [direct("127.0.0.1"), direct("192.0.2.1"), fails(lambda: socket.getaddrinfo("evil.example", 80))],
    "interfaces": interfaces, "variables": variables, "door": fails(door),
}))
"#;

/// Takes whatever the proxy gives and asks for more, says so, and when another box was served finds its own way again.
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
    format!("python3 - <<'END'\nPORT = {port}\n{TRIES}{what}\nEND")
}

fn open(site: &Site, listener: &Listener) -> (Server, u16) {
    let server = site.start();
    let port = listener.stream_port().unwrap();
    let host = format!("127.0.0.1:{port}");
    let settings = json!({
        "net": { "mode": "allowlist", "allow": [host] }, "egress": { "allowed_hosts": [host] },
        "sessions": { "confirmation": "auto-approve" }, "strict": { "backends": [site.backend.name()] },
    });
    server.ask("PUT", "/settings", Some(&settings)).expect(200);
    (server, port)
}

/// What was asked for, and what became of it, in order: on record each is when it is over.
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

pub(crate) fn a_box_reaches_the_hosts_of_its_list(site: &Site) {
    let listener = Listener::on(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
    let (server, port) = open(site, &listener);
    let once = script(port, ONCE);
    if site.backend == Backend::Gvisor {
        let denied = server.ask("POST", "/sandbox/execs", Some(&server.request(&once))).expect(403);
        assert_eq!(denied["detail"]["code"], "POLICY_DENIED", "{denied}");
        assert!(denied["detail"]["message"].as_str().unwrap().contains("gvisor cannot enforce it"), "{denied}");
        return;
    }
    let done = server.shell(&once);
    let said: Value = serde_json::from_str(&server.stdout(&done)).unwrap_or_else(|_| panic!("{done}"));
    let address = "http://127.0.0.1:3128";
    let refused = "ConnectionRefusedError";
    let expected = json!({
        "allowed": "200", "refused": ["403", "403"], "direct": [refused, "OSError", "gaierror"], "interfaces": ["lo"],
        "variables": [address, address, "localhost,127.0.0.1,::1"],
        // In a container there was one, for whoever came before the command.
        "door": if site.backend == Backend::Docker { refused } else { "FileNotFoundError" },
    });
    assert_eq!(said, expected);
    assert_eq!(listener.connections().unwrap(), 1, "only what was allowed");
    let here = format!("127.0.0.1:{port}");
    let refused = |host: &str| (host.to_owned(), "refused".to_owned());
    let expected = [refused("127.0.0.1:1"), (here, "allowed".to_owned()), refused("evil.example:80")];
    assert_eq!(network(&server, &done), expected);
    let meta = format!("/sandbox/execs/{}/artifacts/meta.json", done["exec_id"].as_str().unwrap());
    let mounts = server.ask("GET", &meta, None).expect(200)["docker_mounts"].to_string();
    let is_shown = mounts.contains(r#""mode":"ro","source":"ringwall/way-out","target":"/run/ringwall/way-out""#);
    assert_eq!(is_shown, site.backend == Backend::Docker, "{mounts}");
    // One box that takes all it can keeps no other from anything.
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

pub(crate) fn a_sessions_box_reaches_them_too(site: &Site) {
    let listener = Listener::on(IpAddr::V4(Ipv4Addr::LOCALHOST)).unwrap();
    let (server, port) = open(site, &listener);
    let run = |target: &str| {
        let code = format!("PORT = {port}\n{TRIES}print(ask(\"{target}\"))");
        let body = json!({ "session_id": "s", "code": code, "language": "python", "backend": "aio" });
        server.ask("POST", "/api/run", Some(&body))
    };
    let here = format!("127.0.0.1:{port}");
    if site.backend == Backend::Gvisor {
        let denied = run(&here).expect(403);
        assert_eq!(denied["error"]["code"], "POLICY_DENIED", "{denied}");
        return;
    }
    for (target, told, outcome) in
        [(here.as_str(), "200\n", "allowed"), ("evil.example:80", "403\n", "refused"), (&here, "200\n", "allowed")]
    {
        let ran = run(target).expect(200);
        assert_eq!((&ran["stdout"], &ran["error"]), (&json!(told), &Value::Null), "{ran}");
        // What is over a little later than its command is on record a little later.
        let expected = [(target.to_owned(), outcome.to_owned())];
        wait_until("it is on record", || network(&server, &ran) == expected);
        let home = server.exec(ran["exec_id"].as_str().unwrap());
        let is_container = home["image"] != Value::Null;
        assert_eq!(is_container, site.backend == Backend::Docker, "{home}");
    }
    assert_eq!(listener.connections().unwrap(), 2);
}
