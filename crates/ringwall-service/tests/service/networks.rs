//! Reuse of network namespaces by boxes of one user: no state is visible, and two boxes never share
//! one at a time.

use crate::fixture::{in_fixture, shell};
use ringwall_service::{Status, Stream};

/// Prints the counters of the loopback interface, and fails if a port that an earlier box used is
/// not free.
const SERVE_AND_ASK: &str = r#"
grep lo: /proc/net/dev | tr -s ' '
python3 - <<'EOF'
import socket, threading
listener = socket.socket()
listener.bind(("127.0.0.1", 8080))
listener.listen()
def answer():
    connection, _ = listener.accept()
    connection.sendall(b"hello")
    connection.close()
thread = threading.Thread(target=answer)
thread.start()
client = socket.create_connection(("127.0.0.1", 8080))
assert client.recv(5) == b"hello"
client.close()
thread.join()
EOF
"#;

/// A used namespace is not reused: its port could still be in TIME_WAIT, and its counters would
/// disclose the use.
pub fn used_network_namespace_is_not_reused() {
    in_fixture(async |fixture| {
        for round in 0..3 {
            let view = fixture.run_shell(SERVE_AND_ASK).await;
            let said = fixture.text(&view, Stream::Stdout).await;
            let failed = fixture.text(&view, Stream::Stderr).await;
            assert_eq!(view.summary.exit_code, Some(0), "round {round}: {failed}");
            let counted = said.trim().strip_prefix("lo:").unwrap_or_else(|| panic!("round {round}: {said}"));
            assert!(counted.split_whitespace().all(|number| number == "0"), "round {round}: {said}");
        }
    });
}

/// An unused namespace is reused. Control for the other tests.
pub fn unused_network_namespace_is_reused() {
    in_fixture(async |fixture| {
        let mut seen = Vec::new();
        // The kernel may still be destroying a box; until then the next one gets another namespace.
        for _ in 0..20 {
            let view = fixture.run_shell("readlink /proc/self/ns/net").await;
            seen.push(fixture.text(&view, Stream::Stdout).await);
        }
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert!(seen.len() < count, "{seen:?}");
    });
}

/// Two concurrent boxes have different namespaces.
pub fn concurrent_boxes_have_different_network_namespaces() {
    in_fixture(async |fixture| {
        // Each box waits until the other has written its namespace to the shared work directory.
        let script = |own: &str, other: &str| {
            shell(&format!(
                "readlink /proc/self/ns/net > /workspace/work/{own}; until [ -s /workspace/work/{other} ]; do :; done; \
                 cmp -s /workspace/work/{own} /workspace/work/{other}; echo $?"
            ))
        };
        // A first box, so that there is a namespace to reuse.
        fixture.run_shell("true").await;
        let (one, other) = tokio::join!(fixture.run(script("a", "b")), fixture.run(script("b", "a")));
        for view in [one, other] {
            assert_eq!(fixture.text(&view, Stream::Stdout).await.trim(), "1", "the same namespace");
        }
    });
}

/// A namespace is not reused while another box holds a socket of it, because that box could
/// communicate in it.
pub fn network_namespace_with_open_socket_is_not_reused() {
    in_fixture(async |fixture| {
        let keeper = r#"
import os, socket
server = socket.socket(socket.AF_UNIX)
server.bind("/workspace/work/early")
server.listen()
os.rename("/workspace/work/early", "/workspace/work/hand")
connection, _ = server.accept()
_, [kept], _, _ = socket.recv_fds(connection, 1, 1)
connection.close()
open("/workspace/work/kept", "w").close()
import time
time.sleep(600)
"#;
        let giver = r#"
import os, socket, time
while not os.path.exists("/workspace/work/hand"): pass
print(os.readlink("/proc/self/ns/net"))
given, client = socket.socket(), socket.socket(socket.AF_UNIX)
client.connect("/workspace/work/hand")
socket.send_fds(client, [b"x"], [given.fileno()])
while not os.path.exists("/workspace/work/kept"): pass
"#;
        let keeping = fixture.service.submit(&fixture.owner, python(keeper)).await.unwrap();
        let gave = fixture.run(python(giver)).await;
        assert_eq!(gave.summary.status, Status::Succeeded, "{gave:?}");
        let given = fixture.text(&gave, Stream::Stdout).await;
        for _ in 0..10 {
            let view = fixture.run_shell("readlink /proc/self/ns/net").await;
            assert_ne!(
                fixture.text(&view, Stream::Stdout).await,
                given,
                "a box was born where somebody else holds a socket"
            );
        }
        fixture.service.cancel(&fixture.owner, &keeping.exec_id).await.unwrap();
    });
}

fn python(code: &str) -> ringwall_service::ExecRequest {
    shell(&format!("python3 - <<'EOF'\n{code}\nEOF"))
}
