//! Requests that are refused before authentication or a handler: other hosts and origins, large bodies,
//! slow or silent clients, unknown paths and methods.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use serde_json::json;

use crate::server::Server;

/// Sends raw bytes and reads until the connection is closed.
fn send_raw(server: &Server, text: &str) -> String {
    let mut stream = server.connect();
    stream.write_all(text.as_bytes()).unwrap();
    read_to_end(stream)
}

/// Reads until the end. If the server closes with unread bytes, the connection is reset and the read fails;
/// the bytes before that are returned.
fn read_to_end(mut stream: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn foreign_hosts_are_misdirected() {
    let server = Server::start_with(&["--allow-host", "box.example"]);
    let ask = |host: &str| send_raw(&server, &format!("GET /healthz HTTP/1.1\r\n{host}Connection: close\r\n\r\n"));
    for good in ["Host: localhost\r\n", "Host: 127.0.0.1:1\r\n", "Host: [::1]\r\n", "Host: BOX.example:443\r\n"] {
        assert!(ask(good).starts_with("HTTP/1.1 200"), "{good}");
    }
    for bad in
        ["Host: evil.example\r\n", "", "Host: localhost\r\nHost: evil.example\r\n", "Host: 127.0.0.1.evil.example\r\n"]
    {
        let answer = ask(bad);
        assert!(answer.starts_with("HTTP/1.1 421") || answer.starts_with("HTTP/1.1 400"), "{bad}: {answer}");
    }
}

#[test]
fn foreign_pages_are_forbidden_with_or_without_authentication() {
    for flags in [&[][..], &["--no-auth"]] {
        let server = Server::start_with(flags);
        let authorization = format!("Bearer {}", server.token);
        let own = format!("http://{}", server.address);
        for (origin, status) in
            [("null", 403), ("http://evil.example", 403), ("http://127.0.0.1:1", 403), (own.as_str(), 200)]
        {
            let headers = [("authorization", authorization.as_str()), ("origin", origin)];
            assert_eq!(server.ask_with("GET", "/sandbox/execs", &headers, None).status, status, "{origin}");
        }
    }
}

#[test]
fn too_large_bodies_are_refused() {
    let server = Server::start_with(&["--max-body-bytes", "1000"]);
    let big = json!({ "project_id": "x".repeat(2000) });
    assert_eq!(server.ask("POST", "/sandbox/execs", Some(&big)).refused(413), "BODY_TOO_LARGE");
    let head = format!("POST /sandbox/execs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n", server.token);
    // A Content-Length above the limit is refused before the body is sent.
    assert!(
        send_raw(&server, &format!("{head}Content-Length: 99999999999\r\nConnection: close\r\n\r\n"))
            .starts_with("HTTP/1.1 413")
    );
    // A chunked body is refused when it exceeds the limit.
    let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
    let answer = send_raw(
        &server,
        &format!("{head}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n{chunk}{chunk}0\r\n\r\n"),
    );
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    for text in ["{", "", "nonsense", "\u{1}"] {
        let answer =
            send_raw(&server, &format!("{head}Content-Length: {}\r\nConnection: close\r\n\r\n{text}", text.len()));
        assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("INVALID_ARGUMENT"), "{text}: {answer}");
    }
}

/// Takes 30 s: a client has 5 s for its first request head and 30 s for each later one.
#[test]
fn silent_clients_are_disconnected() {
    let server = Server::start();
    let mut slow = server.connect();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").unwrap();
    let silent = server.connect();
    let mut idle = server.connect();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let answer = read_to_end(slow);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert_eq!(read_to_end(silent), "");
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let answers = read_to_end(idle);
    assert_eq!(
        answers.matches("HTTP/1.1 200").count(),
        2,
        "two responses, then the end of an idle connection: {answers}"
    );
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
}

/// The only connection is taken by a client that sends requests and reads no response.
#[test]
fn client_that_does_not_read_is_disconnected() {
    let server = Server::start_with(&["--max-connections", "1"]);
    let mut silent_reader = server.connect();
    silent_reader.set_nonblocking(true).unwrap();
    let asking = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    // Until the buffers of both sides are full: 20 consecutive writes, 10 ms apart, would block.
    let mut refused = 0;
    while refused < 20 {
        match silent_reader.write(&asking) {
            Ok(_) => refused = 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                refused += 1;
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            // The server may close the connection during this loop.
            Err(error) if [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let mut next = server.connect();
    next.set_read_timeout(Some(std::time::Duration::from_secs(120))).unwrap();
    next.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    assert!(read_to_end(next).starts_with("HTTP/1.1 200"), "the connection slot was not released");
}

#[test]
fn unknown_paths_and_methods_return_json_errors() {
    let server = Server::start();
    assert_eq!(server.ask("GET", "/v1/x", None).expect(404)["status"], "error");
    for path in ["/api", "/api/x", "/ws", "/mcp/x", "/sandboxes"] {
        assert_eq!(server.ask("GET", path, None).expect(404)["error"]["code"], "NOT_FOUND", "{path}");
    }
    for path in [
        "/sandbox",
        "/sandbox/x",
        "/skills/x",
        "/settings/x",
        "/sandbox/execs/e_0123456789abcdef",
        "/sandbox/execs/odd",
        "/sandbox/execs/%ff",
        "/sandbox/execs/..%2fx",
    ] {
        let answer = server.ask("GET", path, None);
        assert!(matches!(answer.status, 400 | 404), "{path}: {}", answer.status);
        assert!(answer.json()["detail"]["code"].is_string(), "{path}");
    }
    assert_eq!(server.ask("PATCH", "/sandbox/execs", None).refused(405), "METHOD_NOT_ALLOWED");
    let page = server.ask_with("GET", "/docs", &[], None);
    assert!(page.status == 200 && String::from_utf8_lossy(&page.bytes).contains("POST /sandbox/execs"));
    let named = server.ask_with("GET", "/healthz", &[("x-request-id", "mine-1")], None);
    assert_eq!(named.headers.get("x-request-id").unwrap(), "mine-1");
    let health = server.ask("GET", "/sandbox/health?probe=1", None).expect(200);
    assert_eq!(health["backends"]["native"]["available"], true, "{health}");
}
