//! `ringwall mcp` as a bridge: to a server by address, over HTTP and HTTPS, and to the process that
//! has the data directory open. Responses are still written after the client has closed its output.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};
use tests::support::wait::wait_until;

use crate::server::{Server, command};

/// A proxy that terminates TLS for a server, with a self-signed certificate.
struct TlsProxy {
    url: String,
    authority: NamedTempFile,
}

impl TlsProxy {
    fn start(server: &str) -> Self {
        let certificate = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let authority = NamedTempFile::new().unwrap();
        std::fs::write(authority.path(), certificate.cert.pem()).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(certificate.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![certificate.cert.der().clone()], key).unwrap();
        let (config, server) = (Arc::new(config), server.to_owned());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
                let server = server.clone();
                // Fails if the client does not trust the certificate.
                std::thread::spawn(move || forward(stream, &server));
            }
        });
        Self { url, authority }
    }
}

/// Forwards one request and streams its response; then the connection ends.
fn forward(mut client: StreamOwned<ServerConnection, TcpStream>, server: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && client.read(&mut byte)? == 1 {
        request.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&request).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body)?;
    request.truncate(request.len() - 2);
    let mut server = TcpStream::connect(server)?;
    server.write_all(&[request.as_slice(), b"connection: close\r\n\r\n", &body].concat())?;
    let mut piece = [0; 4096];
    while let Ok(length @ 1..) = server.read(&mut piece) {
        client.write_all(&piece[..length])?;
        client.flush()?;
    }
    client.conn.send_close_notify();
    client.flush()?;
    client.sock.shutdown(Shutdown::Write)
}

fn messages(lines: &[Value]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// The messages of a client with a session that calls `run_command` once.
fn session_call(call: &str) -> String {
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "script", "version": "0" },
    });
    messages(&[
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "run_command", "arguments": { "command": call } } }),
    ])
}

/// The same call without a session.
fn sessionless_call(call: &str) -> String {
    messages(&[json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "run_command", "arguments": { "command": call }, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "script", "version": "0" },
        } } })])
}

fn run_mcp(mut command: Command, messages_text: &str) -> Output {
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(messages_text.as_bytes()).unwrap();
    process.wait_with_output().unwrap()
}

/// Runs `ringwall mcp` with these messages. Returns stdout of the called command.
fn run_call(command: Command, messages_text: &str) -> Value {
    let output = run_mcp(command, messages_text);
    let (output_text, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let answers = output_text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answer = answers.into_iter().find(|answer| answer["id"] == 2);
    answer.unwrap_or_else(|| panic!("no answer: {output_text}{log}"))["result"]["structuredContent"]["stdout"].clone()
}

#[test]
fn response_arrives_after_end_of_input() {
    let server = Server::start();
    let (url, proxy) = (format!("http://{}", server.address), TlsProxy::start(&server.address));
    let named = |url: &str| {
        let mut named = command(server.data());
        named.args(["mcp", "--url", url]).env("SSL_CERT_FILE", proxy.authority.path());
        named
    };
    let process = || {
        let mut process = command(server.data());
        process.arg("mcp");
        process
    };
    for messages_text in [session_call("echo hello"), sessionless_call("echo hello")] {
        assert_eq!(run_call(named(&url), &messages_text), "hello\n", "by its address");
        assert_eq!(run_call(named(&proxy.url), &messages_text), "hello\n", "behind TLS");
        assert_eq!(run_call(process(), &messages_text), "hello\n", "by the directory that it has");
    }
    // A process with --agent works on the files of that agent.
    let mut named = process();
    named.args(["--agent", "other", "--session", "s"]);
    assert_eq!(run_call(named, &sessionless_call("echo mine > mine; ls")), "mine\n");
    assert!(server.data().join("workspaces/default/other/sessions/s/work/mine").exists());
}

/// A running `ringwall mcp` whose client stays connected.
struct McpProcess {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl McpProcess {
    fn open(data: &Path) -> Self {
        let mut process = command(data);
        process.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = process.spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        Self { process, out }
    }

    /// Calls `run_command` and returns its stdout.
    fn run(&mut self, call: &str) -> Value {
        self.process.stdin.as_mut().unwrap().write_all(sessionless_call(call).as_bytes()).unwrap();
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        answer["result"]["structuredContent"]["stdout"].clone()
    }

    /// Closes the input and waits for the end.
    fn close(mut self) -> Output {
        drop(self.process.stdin.take());
        self.process.wait_with_output().unwrap()
    }
}

/// Waits until a process has locked the data directory; it may not serve yet.
fn wait_until_locked(data: &Path) {
    wait_until("a process that locks the directory", || {
        let lock = File::open(data.join("server.lock"));
        lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
    });
}

#[test]
fn processes_share_a_directory_and_end_with_the_one_that_has_it_open() {
    let data = TempDir::with_prefix("rw-windows-").unwrap();
    let mut first = McpProcess::open(data.path());
    wait_until_locked(data.path());
    // The first process may not serve yet; the second waits for it.
    let mut second = McpProcess::open(data.path());
    assert_eq!(second.run("echo mine > mine; cat mine"), "mine\n");
    assert_eq!(first.run("cat mine"), "mine\n", "both work on the same files");
    let third = McpProcess::open(data.path());
    assert!(third.close().status.success());
    assert_eq!(second.run("cat mine"), "mine\n");
    assert!(first.close().status.success());
    // Keeps the input of the second process open.
    let _stdin = second.process.stdin.take();
    let ended = second.process.wait_with_output().unwrap();
    let output_text = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(125) && output_text.contains("start it again"), "{output_text}");
    let mut next = McpProcess::open(data.path());
    assert_eq!(next.run("cat mine"), "mine\n", "the next process opens the directory");
    assert!(next.close().status.success());
}

#[test]
fn cli_rejects_untrusted_certificate() {
    let server = Server::start();
    let proxy = TlsProxy::start(&server.address);
    let exec = |trusted: bool, words: &[&str]| {
        let mut exec = command(server.data());
        exec.args(["exec", "--url", &proxy.url]).args(words);
        if trusted {
            exec.env("SSL_CERT_FILE", proxy.authority.path());
        }
        let Output { status, stdout, stderr } = exec.output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    };
    assert_eq!(exec(true, &["--", "echo over TLS; exit 3"]), (Some(3), "over TLS\n".to_owned(), String::new()));
    let (code, output_text, _) = exec(false, &["--json", "--", "true"]);
    let output_text: Value = serde_json::from_str(&output_text).unwrap();
    assert_eq!((code, &output_text["error"]["code"]), (Some(125), &json!("UNREACHABLE")), "{output_text}");
    let mut stranger = command(server.data());
    stranger.args(["mcp", "--url", &proxy.url]);
    let refused = run_mcp(stranger, &sessionless_call("true"));
    let output_text = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(125) && output_text.contains("could not reach"), "{output_text}");
    // Errors of the server keep their code.
    let (code, output_text, _) = exec(true, &["--json", "--token", "wrong", "--", "true"]);
    let output_text: Value = serde_json::from_str(&output_text).unwrap();
    assert_eq!((code, &output_text["error"]["code"]), (Some(2), &json!("UNAUTHENTICATED")), "{output_text}");
    let (code, output_text, _) = exec(true, &["--json", "--project", "../p", "--", "true"]);
    let output_text: Value = serde_json::from_str(&output_text).unwrap();
    assert_eq!((code, &output_text["error"]["code"]), (Some(2), &json!("INVALID_ARGUMENT")), "{output_text}");
}
