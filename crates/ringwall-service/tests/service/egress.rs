//! The egress proxy of boxes: allowed hosts are reachable, others are not, and all connections are
//! recorded.
//!
//! The destination is an HTTP server of the test on the host's loopback address, which
//! `egress.allowed_hosts` permits.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringwall_record::ApprovalStatus;
use ringwall_service::{
    AgentPath, Answer, CodeRequest, ExecId, ExecView, Limit, NetworkView, SessionAddress, Status, Stream, Verdict,
};
use serde_json::json;

use crate::fixture::{Fixture, in_fixture, limited, reason, seen, shell};

/// An HTTP server on the host that counts connections and answers each with its number.
struct Other {
    port: u16,
    accepted: Arc<AtomicUsize>,
}

impl Other {
    fn serve() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, accepted) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let counted = accepted.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
                    head.push(byte[0]);
                }
                let content = format!("visit {number}");
                let length = content.len();
                let _ =
                    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{content}");
            }
        });
        Self { port, accepted }
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// A `curl` command that uses the proxy also for loopback addresses.
    fn curl(&self, more: &str) -> String {
        format!("curl -sS --max-time 20 --noproxy '' {more} http://127.0.0.1:{}/", self.port)
    }

    async fn allow(&self, fixture: &Fixture, unknown: &str) {
        let host = format!("127.0.0.1:{}", self.port);
        let allow = if unknown == "ask" { json!([]) } else { json!([host]) };
        fixture
            .set(json!({
                "net": {"mode": "allowlist", "allow": allow, "unknown": unknown}, "egress": {"allowed_hosts": [host]},
            }))
            .await;
    }
}

async fn network(fixture: &Fixture, view: &ExecView) -> NetworkView {
    fixture.service.exec_network(&fixture.owner, &view.summary.exec_id).await.unwrap()
}

async fn said(fixture: &Fixture, view: &ExecView) -> String {
    fixture.text(view, Stream::Stdout).await + &fixture.text(view, Stream::Stderr).await
}

pub fn allowed_host_is_reached_and_recorded() {
    in_fixture(async |fixture| {
        let other = Other::serve();
        // Without the setting there is no proxy.
        let closed =
            fixture.run_shell(&format!("env | grep -i proxy; {}", other.curl("-x http://127.0.0.1:3128"))).await;
        assert_eq!((closed.summary.exit_code, other.accepted()), (Some(7), 0), "{}", said(fixture, &closed).await);
        other.allow(fixture, "deny").await;
        for (more, count) in [("", 1), ("--proxytunnel", 2)] {
            let view = fixture.run_shell(&other.curl(more)).await;
            assert_eq!(said(fixture, &view).await, format!("visit {count}"));
            let NetworkView { connections, left_out } = network(fixture, &view).await;
            let [connection] = connections.as_slice() else { panic!("{connections:?}") };
            assert_eq!((connection.host.as_str(), connection.port, left_out), ("127.0.0.1", other.port, 0));
            assert_eq!((connection.outcome.as_str(), connection.address.as_deref()), ("allowed", Some("127.0.0.1")));
            assert!(connection.bytes_sent > 0 && connection.bytes_received > 0, "{connection:?}");
        }
        let net = fixture.service.exec(&fixture.owner, &fixture.run_shell("true").await.summary.exec_id).await.unwrap();
        let net = &net.policy_snapshot["net"];
        assert_eq!((&net["mode"], &net["layer"]), (&json!("allowlist"), &json!("settings")), "{net}");
        // The proxy variables are set in upper and lower case.
        let view = fixture.run_shell("echo $HTTP_PROXY $https_proxy $no_proxy").await;
        let address = "http://127.0.0.1:3128";
        assert_eq!(said(fixture, &view).await.trim(), format!("{address} {address} localhost,127.0.0.1,::1"));
    });
}

pub fn direct_connection_without_proxy_fails() {
    in_fixture(async |fixture| {
        let other = Other::serve();
        other.allow(fixture, "deny").await;
        let direct = format!("env -u http_proxy -u HTTP_PROXY curl -sS --max-time 20 http://127.0.0.1:{}/", other.port);
        let view = fixture.run_shell(&direct).await;
        assert_eq!((view.summary.exit_code, other.accepted()), (Some(7), 0), "{}", said(fixture, &view).await);
        // Another port, another name of the same host, an IPv4-mapped IPv6 address, and a name that
        // begins with another host's name.
        for (host, code) in [
            ("127.0.0.1:1", "403"),
            ("localhost:{port}", "403"),
            ("[::ffff:127.0.0.1]:{port}", "403"),
            ("good.example.evil.example", "403"),
        ] {
            let host = host.replace("{port}", &other.port.to_string());
            let ask = format!("curl -sS -g --max-time 20 --noproxy '' -o /dev/null -w '%{{http_code}}' http://{host}/");
            let view = fixture.run_shell(&ask).await;
            assert_eq!(said(fixture, &view).await, code, "{host}");
            assert_eq!(network(fixture, &view).await.connections[0].outcome, "refused", "{host}");
        }
        let view = fixture.run_shell("curl -fsS --max-time 20 http://evil.example/").await;
        assert_eq!((reason(&view), view.summary.status), ("NET_REFUSED", Status::Failed));
        assert_eq!(other.accepted(), 0);
        // Control: the same server is reachable where it is allowed.
        assert_eq!(said(fixture, &fixture.run_shell(&other.curl("")).await).await, "visit 1");
        // A request may disable the network but not add hosts.
        let none = fixture.run(limited(&other.curl(""), json!({"net": {"mode": "none"}}))).await;
        assert_eq!((none.summary.exit_code, other.accepted()), (Some(7), 1), "{}", said(fixture, &none).await);
        let more = fixture.refused(limited("true", json!({"net": {"mode": "allowlist", "allow": ["pypi.org"]}}))).await;
        assert!(more.to_string().contains("net.allow: pypi.org:80"), "{more}");
        let elsewhere = ringwall_service::ExecRequest { backend: Some("gvisor".to_owned()), ..shell("true") };
        let refused = fixture.refused(elsewhere).await.to_string();
        assert!(refused.contains("native or docker backend"), "{refused}");
    });
}

/// The proxy's listening socket ends with its box, also if the next box of the user reuses the
/// network namespace.
pub fn proxy_socket_ends_with_its_box() {
    in_fixture(async |fixture| {
        let other = Other::serve();
        let sockets = async || {
            let mut seen = Vec::new();
            for _ in 0..5 {
                let view = fixture.run_shell("tail -n +2 /proc/net/tcp | wc -l").await;
                seen.push(said(fixture, &view).await.trim().to_owned());
            }
            seen
        };
        other.allow(fixture, "deny").await;
        assert_eq!(sockets().await, ["1"; 5], "the one at which the proxy answers");
        fixture.set(json!({"net": {"mode": "none"}})).await;
        assert_eq!(sockets().await, ["0"; 5], "a socket is left");
    });
}

/// Listens on its own port, connects to the other box directly and through the proxy, then to
/// itself, and prints which connections arrived.
const MEET: &str = r#"
import json, os, socket, sys, time
own, other = int(sys.argv[1]), int(sys.argv[2])
listener = socket.socket()
listener.bind(("0.0.0.0", own))
listener.listen(50)
def wait_for(name):
    while not os.path.exists(f"/workspace/work/{name}"):
        time.sleep(0.01)
def mark(name):
    open(f"/workspace/work/{name}", "w").close()
def direct(port):
    try:
        socket.create_connection(("127.0.0.1", port), 20).close()
        return "connected"
    except OSError as error:
        return type(error).__name__
def by_proxy(port):
    client = socket.create_connection(("127.0.0.1", 3128), 20)
    client.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n".encode())
    return client.recv(12).decode().split(" ")[1]
mark(f"listens-{own}")
wait_for(f"listens-{other}")
told = {"other": [direct(other), by_proxy(other)]}
mark(f"asked-{own}")
wait_for(f"asked-{other}")
listener.setblocking(False)
def came():
    try:
        listener.accept()
        return True
    except BlockingIOError:
        return False
told["came"] = came()
told["own"] = [direct(own), came()]
print(json.dumps(told))
"#;

/// Two concurrent boxes of one user cannot connect to each other, directly or through the proxy,
/// although the list allows both ports.
pub fn boxes_with_proxy_cannot_reach_each_other() {
    in_fixture(async |fixture| {
        let ports = [20_001, 20_002];
        let both = ports.map(|port| format!("127.0.0.1:{port}"));
        fixture.set(json!({ "net": { "mode": "allowlist", "allow": both } })).await;
        let meet = |own: u16, other: u16| {
            fixture.run(shell(&format!("exec timeout 100 python3 - {own} {other} <<'END'\n{MEET}\nEND")))
        };
        let (one, two) = tokio::join!(meet(ports[0], ports[1]), meet(ports[1], ports[0]));
        for view in [one, two] {
            let said = said(fixture, &view).await;
            let told: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"));
            assert_eq!(told["own"], json!(["connected", true]), "the control: somebody listens there: {told}");
            assert_eq!((&told["other"], &told["came"]), (&json!(["ConnectionRefusedError", "403"]), &json!(false)));
        }
    });
}

/// A connection waits for approval; concurrent connections to the same host ask one question.
pub fn unlisted_host_asks_for_approval() {
    in_fixture(async |fixture| {
        let other = Other::serve();
        other.allow(fixture, "ask").await;
        let entry = format!("127.0.0.1:{}", other.port);
        for (verdict, code, count) in
            [(Verdict::Deny, "403 403", 0), (Verdict::Once, "200 200", 2), (Verdict::Remember, "200 200", 4)]
        {
            let ask = other.curl("-o /dev/null -w '%{http_code} '");
            let asking = fixture.service.submit(&fixture.owner, shell(&format!("{ask} & {ask}; wait"))).await.unwrap();
            let approval = seen("a question", async || {
                let pending = Some(ApprovalStatus::Pending);
                let found =
                    fixture.service.approvals(&fixture.owner, pending, None, Limit::nearest(10), None).await.unwrap();
                found.items.into_iter().next()
            })
            .await;
            assert_eq!((approval.kind.as_str(), &approval.requested_paths), ("network", &vec![entry.clone()]));
            let preview = fixture
                .service
                .preview_approval(&fixture.owner, approval.id.as_str(), ringwall_risk::Locale::English)
                .await
                .unwrap();
            assert_eq!(
                (preview.entries[0].path.as_str(), preview.entries[0].scope.as_str()),
                (&*entry, "user:default")
            );
            let answer = Answer { verdict, reason: None, modified_code: None };
            fixture.service.answer_approval(&fixture.owner, approval.id.as_str(), answer).await.unwrap();
            let view = fixture.service.finished(&fixture.owner, &asking.exec_id).await.unwrap();
            assert_eq!((said(fixture, &view).await.trim(), other.accepted()), (code, count));
        }
        // Remembered: no question is asked. The entry applies to this user only.
        let view = fixture.run_shell(&other.curl("")).await;
        assert_eq!(said(fixture, &view).await, "visit 5");
        let hosts = fixture.service.allowed_hosts(&fixture.owner).await.unwrap();
        assert_eq!((hosts.len(), hosts[0].entry.as_str(), hosts[0].user.as_str()), (1, &*entry, "default"));
        // Hosts that are refused in any case ask no question.
        let view = fixture.run_shell("curl -s --max-time 20 -o /dev/null -w '%{http_code}' http://10.0.0.1/").await;
        assert_eq!(said(fixture, &view).await, "403");
        fixture.service.forget_host(&fixture.owner, hosts[0].id).await.unwrap();
        assert_eq!(fixture.service.allowed_hosts(&fixture.owner).await.unwrap(), []);
        assert!(fixture.service.forget_host(&fixture.owner, hosts[0].id).await.is_err());
        // A client that disconnects cancels the question.
        let timeout = format!("{} & until [ -e go ]; do sleep 0.01; done; kill $!; wait $!", other.curl(""));
        let asking = fixture.service.submit(&fixture.owner, shell(&timeout)).await.unwrap();
        seen("a question", async || {
            let pending = Some(ApprovalStatus::Pending);
            let found =
                fixture.service.approvals(&fixture.owner, pending, None, Limit::nearest(10), None).await.unwrap();
            found.items.into_iter().next()
        })
        .await;
        fixture.release("default");
        let view = fixture.service.finished(&fixture.owner, &asking.exec_id).await.unwrap();
        assert_eq!(view.summary.exit_code, Some(128 + 15));
        // The question is cancelled in a task of its own, so wait for it.
        let newest = seen("the end of a question", async || {
            let found = fixture.service.approvals(&fixture.owner, None, None, Limit::nearest(1), None).await.unwrap();
            Some(found.items[0].status).filter(|status| *status != ApprovalStatus::Pending)
        })
        .await;
        assert_eq!((newest, other.accepted()), (ApprovalStatus::Cancelled, 5));
    });
}

/// The commands of a session share a box, but each command gets its own connections. Connections of
/// background processes belong to the last command.
pub fn session_box_connections_belong_to_running_command() {
    in_fixture(async |fixture| {
        let other = Other::serve();
        other.allow(fixture, "deny").await;
        fixture.set(json!({"sessions": {"confirmation": "auto-approve"}})).await;
        let address = || SessionAddress { session_id: "s".to_owned(), ..SessionAddress::default() };
        let try_to = async |line: &str| {
            let request = CodeRequest::in_session_box(address(), line.to_owned(), Some(30), None);
            let begun = fixture.service.begin_code(&fixture.owner, request).await.unwrap();
            fixture.service.finish_code(&fixture.owner, begun, ringwall_risk::Locale::English).await
        };
        let run = async |line: &str| try_to(line).await.unwrap();
        let look =
            async |exec_id: &ExecId| fixture.service.exec_network(&fixture.owner, exec_id).await.unwrap().connections;
        // A connection that ends after its command is recorded later, so wait for it.
        let asked = async |id: &ExecId| {
            seen("a connection", async || Some(look(id).await).filter(|found| !found.is_empty())).await
        };
        for number in 1..=2 {
            let ran = run(&other.curl("")).await;
            assert_eq!((ran.stdout.as_str(), ran.error.as_deref()), (&*format!("visit {number}"), None));
            let found = asked(&ran.exec_id).await;
            assert_eq!((found.len(), found[0].port, found[0].outcome.as_str()), (1, other.port, "allowed"));
        }
        let refused = run("curl -fsS --max-time 20 http://evil.example/").await;
        assert_eq!((refused.success, asked(&refused.exec_id).await[0].outcome.as_str()), (false, "refused"));
        assert!(look(&run("true").await.exec_id).await.is_empty());
        // A background process that outlives its command and connects once the file exists.
        let waits = "until [ -e /workspace/go ]; do sleep 0.02; done";
        let last =
            run(&format!("setsid sh -c '{waits}; {}' >/dev/null 2>&1 &", other.curl("").replace('\'', "\""))).await;
        assert_eq!((last.success, other.accepted()), (true, 2), "{:?}", last.error);
        fixture
            .service
            .write_session_file(&fixture.owner, &address(), AgentPath::in_session("go").unwrap(), b"")
            .await
            .unwrap();
        let found = asked(&last.exec_id).await;
        assert_eq!((found.len(), found[0].outcome.as_str(), other.accepted()), (1, "allowed", 3));
        // A box keeps its network; a command that needs another network is rejected.
        fixture.set(json!({"net": {"mode": "none"}})).await;
        let refused = try_to("true").await.unwrap_err().to_string();
        assert!(refused.contains("networks"), "{refused}");
    });
}
