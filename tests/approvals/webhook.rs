//! The webhook: a signed message for each opened and resolved approval, and no delay by a slow
//! receiver.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use rustix::process::Signal;
use serde_json::{Value, json};
use sha2::Sha256;
use tests::support::host::descendants;

use crate::fixture::{FILE_CONTENT, Fixture, allow_once, deny};
use crate::server::Server;

const SECRET: &str = "hunter2 and more";

/// Receives one delivery and responds with `status`. Returns the headers, in lower case, and the
/// body.
fn receive(listener: &TcpListener, status: u16) -> (Vec<(String, String)>, String) {
    receive_from(listener.accept().unwrap().0, status)
}

fn receive_from(stream: impl Read + Write, status: u16) -> (Vec<(String, String)>, String) {
    receive_and_answer(stream, &format!("{status} x"))
}

/// Like [`receive`], with a status line that may be followed by headers.
fn receive_and_answer(stream: impl Read + Write, answer: &str) -> (Vec<(String, String)>, String) {
    let mut reader = BufReader::new(stream);
    let mut headers = Vec::new();
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("POST /hook "), "{line}");
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = value(&headers, "content-length").parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let mut stream = reader.into_inner();
    write!(stream, "HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    stream.flush().unwrap();
    (headers, String::from_utf8(body).unwrap())
}

fn value<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    &headers.iter().find(|(known, _)| known == name).unwrap().1
}

fn assert_signed(headers: &[(String, String)], body: &str) {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("{}.{body}", value(headers, "x-ringwall-timestamp")).as_bytes());
    let digits: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(value(headers, "x-ringwall-signature"), format!("sha256={digits}"));
}

#[test]
fn opened_and_resolved_approval_are_each_delivered_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let fixture = Fixture::start_with_env(&[
        ("RINGWALL_APPROVALS_WEBHOOK_URL", &url),
        ("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET),
    ]);
    let command = fixture.run_blocked_command("s");
    let question = command.question.clone();
    // A delivery that got 503 is repeated.
    receive(&listener, 503);
    let (headers, body) = receive(&listener, 200);
    assert_signed(&headers, &body);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), question);
    fixture.answer(&question, &allow_once()).expect(200);
    assert_eq!(command.response()["stdout"], FILE_CONTENT, "the answer waits for the webhook");
    let (headers, body) = receive(&listener, 204);
    assert_signed(&headers, &body);
    let resolved: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&resolved["type"], &resolved["status"]), (&json!("permission_resolved"), &json!("approved")));
    let settings = fixture.server.ask("GET", "/settings", None).expect(200);
    assert_eq!(settings["approvals"]["webhook_url"], json!(url));
    let stored = std::fs::read(fixture.server.data().join("db.sqlite")).unwrap();
    let holds = |text: &[u8]| text.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
    assert!(!settings.to_string().contains(SECRET) && !fixture.server.log().contains(SECRET) && !holds(&stored));
}

/// A receiver could send the signed message to a service that only this machine reaches.
#[test]
fn redirect_of_receiver_is_not_followed() {
    let (listener, target) = (TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let fixture = Fixture::start_with_env(&[
        ("RINGWALL_APPROVALS_WEBHOOK_URL", &url),
        ("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET),
    ]);
    let command = fixture.run_blocked_command("s");
    let question = command.question.clone();
    let redirect = format!("307 x\r\nlocation: http://{}/hook", target.local_addr().unwrap());
    receive_and_answer(listener.accept().unwrap().0, &redirect);
    fixture.answer(&question, &deny("no")).expect(200);
    command.response();
    // The resolution is delivered too, and the server ends after both deliveries.
    receive_and_answer(listener.accept().unwrap().0, &redirect);
    fixture.server.signal(Signal::TERM);
    assert_eq!(Arc::into_inner(fixture.server).unwrap().ended().code(), Some(0));
    for listener in [listener, target] {
        listener.set_nonblocking(true).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn secret_is_in_no_log_response_or_child_process() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let fixture = Fixture::start_with_env(&[
        ("RINGWALL_APPROVALS_WEBHOOK_URL", &url),
        ("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET),
        ("RINGWALL_LOG", "trace"),
    ]);
    let command = fixture.run_blocked_command("s");
    let question = command.question.clone();
    receive(&listener, 200);
    let proc = |process: u32, name: &str| std::fs::read(format!("/proc/{process}/{name}")).unwrap_or_default();
    let holds = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(SECRET);
    assert!(holds(&proc(fixture.server.id(), "environ")), "control: the server has it");
    let children = descendants(fixture.server.id()).unwrap();
    assert!(!children.is_empty(), "control: there is no child process");
    for child in children {
        assert!(!holds(&proc(child, "environ")) && !holds(&proc(child, "cmdline")), "process {child}");
    }
    fixture.answer(&question, &deny("no")).expect(200);
    command.response();
    receive(&listener, 410);
    for path in
        ["/settings", "/healthz", "/sandbox/health", "/metrics", "/api/audit", "/api/approvals", "/openapi.json"]
    {
        let answer = fixture.server.ask("GET", path, None);
        assert_eq!((answer.status, holds(&answer.bytes)), (200, false), "{path}");
    }
    let log = fixture.server.log();
    assert!(log.contains("DEBUG") && log.contains("/api/audit"), "control: the log lacks its requests");
    assert!(!log.contains(SECRET));
}

/// Controls: the same form of address without the line break, for an operator.
#[test]
fn address_with_control_characters_or_of_other_scheme_is_refused() {
    let fixture = Fixture::start_with_env(&[("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET)]);
    let set = |url: &str| {
        let body = json!({ "approvals": { "webhook_url": url } });
        fixture.server.ask("PUT", "/settings", Some(&body)).status
    };
    assert_eq!(set("http://127.0.0.1:1/hook"), 200, "control");
    for url in [
        "http://127.0.0.1:1/hook\r\nx-injected: 1",
        "http://127.0.0.1:1/hook\nx: 1",
        "http://127.0.0.1:1/a b",
        "http://\u{0}",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "unix:///run/docker.sock",
        "http://",
    ] {
        assert_eq!(set(url), 400, "{url:?}");
    }
}

#[test]
fn unreachable_receiver_does_not_block_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    drop(listener);
    let fixture = Fixture::start_with_env(&[
        ("RINGWALL_APPROVALS_WEBHOOK_URL", &url),
        ("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET),
    ]);
    let command = fixture.run_blocked_command("s");
    let question = command.question.clone();
    fixture.answer(&question, &deny("no")).expect(200);
    assert_eq!(command.response()["error_reason"]["code"], "DENIED_BY_PERSON");
    let by_settings = json!({ "approvals": { "webhook_secret": "x" } });
    assert_eq!(
        fixture.server.ask("PUT", "/settings", Some(&by_settings)).status,
        409,
        "the secret is start-up configuration"
    );
}

/// Without a secret nothing is sent. With one, a stopping server delivers its queue before it ends.
#[test]
fn nothing_is_sent_unsigned_and_queue_is_delivered_at_stop() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let fixture = Fixture::start_with_env(&[("RINGWALL_APPROVALS_WEBHOOK_URL", &url)]);
    fixture.submit_command("s", &fixture.blocked_command());
    fixture.server.signal(Signal::TERM);
    let mut server = Arc::into_inner(fixture.server).unwrap();
    assert_eq!(server.ended().code(), Some(0));
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    listener.set_nonblocking(false).unwrap();
    let hook = [("RINGWALL_APPROVALS_WEBHOOK_URL", url.as_str()), ("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET)];
    let fixture = Fixture::with_server(Server::start_under(server.leave(), &[], &hook));
    fixture.submit_command("s", &fixture.blocked_command());
    // A delivery that got 404 is not repeated.
    receive(&listener, 404);
    fixture.server.signal(Signal::TERM);
    let (headers, body) = receive(&listener, 200);
    assert_signed(&headers, &body);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["status"], "expired");
    let mut server = Arc::into_inner(fixture.server).unwrap();
    assert_eq!(server.ended().code(), Some(0));
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a delivery was repeated");
}

/// The server trusts the system's certificates, or those of `SSL_CERT_FILE`.
#[test]
fn receiver_with_untrusted_certificate_gets_nothing() {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let trusted = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(trusted.path(), made.cert.pem()).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/hook", listener.local_addr().unwrap());
    let accept = || {
        let connection = rustls::ServerConnection::new(config.clone()).unwrap();
        rustls::StreamOwned::new(connection, listener.accept().unwrap().0)
    };
    let hook = [("RINGWALL_APPROVALS_WEBHOOK_URL", url.as_str()), ("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET)];
    let trust = trusted.path().to_str().unwrap();
    let fixture = Fixture::start_with_env(&[hook[0], hook[1], ("SSL_CERT_FILE", trust)]);
    let command = fixture.run_blocked_command("s");
    let question = command.question.clone();
    let (headers, body) = receive_from(accept(), 200);
    assert_signed(&headers, &body);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), question);
    fixture.answer(&question, &deny("")).expect(200);
    command.response();
    receive_from(accept(), 200);
    // This server does not trust the certificate.
    let fixture = Fixture::start_with_env(&hook);
    let exec = fixture.submit_command("s", &fixture.blocked_command());
    let mut stranger = accept();
    assert!(stranger.read(&mut [0; 1]).is_err(), "the server sent data to an untrusted receiver");
    fixture.server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).expect(202);
}
