//! `ringwall mcp` between a client and whoever answers it: a server by its address, over HTTP and HTTPS, and whoever has the data
//! directory. A client that has said everything is still told what it asked.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};

use crate::server::{Server, command};

/// Something before a server that ends TLS, with a certificate that is its own authority.
struct Terminator {
    url: String,
    authority: NamedTempFile,
}

impl Terminator {
    fn before(server: &str) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let authority = NamedTempFile::new().unwrap();
        std::fs::write(authority.path(), made.cert.pem()).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let (config, server) = (Arc::new(config), server.to_owned());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
                let server = server.clone();
                // One that does not trust the certificate goes away.
                std::thread::spawn(move || pass(stream, &server));
            }
        });
        Self { url, authority }
    }
}

/// One request and its answer, as it comes; the connection ends with it.
fn pass(mut client: StreamOwned<ServerConnection, TcpStream>, server: &str) -> std::io::Result<()> {
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

/// A conversation that is said at once, and its end with it.
fn conversation(call: &str) -> String {
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

/// The same without a session.
fn single(call: &str) -> String {
    messages(&[json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
        "name": "run_command", "arguments": { "command": call }, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": { "name": "script", "version": "0" },
        } } })])
}

fn talk(mut command: Command, said: &str) -> Output {
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
    process.wait_with_output().unwrap()
}

/// What the call is answered with, by whoever is reached like this.
fn answered(command: Command, said: &str) -> Value {
    let output = talk(command, said);
    let (told, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let answers = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let answer = answers.into_iter().find(|answer| answer["id"] == 2);
    answer.unwrap_or_else(|| panic!("no answer: {told}{log}"))["result"]["structuredContent"]["stdout"].clone()
}

#[test]
fn the_last_answers_are_told_whoever_gives_them() {
    let server = Server::start();
    let (url, before) = (format!("http://{}", server.address), Terminator::before(&server.address));
    let named = |url: &str| {
        let mut named = command(server.data());
        named.args(["mcp", "--url", url]).env("SSL_CERT_FILE", before.authority.path());
        named
    };
    let window = || {
        let mut window = command(server.data());
        window.arg("mcp");
        window
    };
    for said in [conversation("echo hello"), single("echo hello")] {
        assert_eq!(answered(named(&url), &said), "hello\n", "by its address");
        assert_eq!(answered(named(&before.url), &said), "hello\n", "behind TLS");
        assert_eq!(answered(window(), &said), "hello\n", "by the directory that it has");
    }
    // A window that names an agent works on that one's files.
    let mut named = window();
    named.args(["--agent", "other", "--session", "s"]);
    assert_eq!(answered(named, &single("echo mine > mine; ls")), "mine\n");
    assert!(server.data().join("workspaces/default/other/sessions/s/work/mine").exists());
}

/// `ringwall mcp` whose client stays.
struct Window {
    process: Child,
    out: BufReader<ChildStdout>,
}

impl Window {
    fn open(data: &Path) -> Self {
        let mut window = command(data);
        window.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = window.spawn().unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        Self { process, out }
    }

    /// Whatever the call is answered with.
    fn ask(&mut self, call: &str) -> Value {
        self.process.stdin.as_mut().unwrap().write_all(single(call).as_bytes()).unwrap();
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        answer["result"]["structuredContent"]["stdout"].clone()
    }

    /// Its client says no more.
    fn close(mut self) -> Output {
        drop(self.process.stdin.take());
        self.process.wait_with_output().unwrap()
    }
}

/// Waits until somebody has the directory, ready or not.
fn wait_until_taken(data: &Path) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let lock = File::open(data.join("server.lock"));
        let taken = lock.map(|lock| flock(&lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK));
        if taken.unwrap_or(false) {
            return;
        }
        assert!(Instant::now() < deadline, "nobody takes the directory");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn windows_share_a_directory_and_end_with_whoever_has_it() {
    let data = TempDir::with_prefix("rw-windows-").unwrap();
    let mut first = Window::open(data.path());
    wait_until_taken(data.path());
    // It may not serve anybody yet; whoever comes now waits for that.
    let mut second = Window::open(data.path());
    assert_eq!(second.ask("echo mine > mine; cat mine"), "mine\n");
    assert_eq!(first.ask("cat mine"), "mine\n", "both are windows on the same files");
    let third = Window::open(data.path());
    assert!(third.close().status.success(), "one that goes takes nobody along");
    assert_eq!(second.ask("cat mine"), "mine\n");
    assert!(first.close().status.success());
    // Its own client still has something to say.
    let _stdin = second.process.stdin.take();
    let ended = second.process.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(125) && told.contains("start it again"), "{told}");
    let mut next = Window::open(data.path());
    assert_eq!(next.ask("cat mine"), "mine\n", "whoever comes then has it");
    assert!(next.close().status.success());
}

#[test]
fn verbs_speak_tls_to_those_whom_the_machine_trusts() {
    let server = Server::start();
    let before = Terminator::before(&server.address);
    let exec = |trusted: bool, words: &[&str]| {
        let mut exec = command(server.data());
        exec.args(["exec", "--url", &before.url]).args(words);
        if trusted {
            exec.env("SSL_CERT_FILE", before.authority.path());
        }
        let Output { status, stdout, stderr } = exec.output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    };
    assert_eq!(exec(true, &["--", "echo over TLS; exit 3"]), (Some(3), "over TLS\n".to_owned(), String::new()));
    let (code, told, _) = exec(false, &["--json", "--", "true"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &told["error"]["code"]), (Some(125), &json!("UNREACHABLE")), "{told}");
    let mut stranger = command(server.data());
    stranger.args(["mcp", "--url", &before.url]);
    let refused = talk(stranger, &single("true"));
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(125) && told.contains("could not reach"), "{told}");
    // What a server refuses keeps its code, in every form.
    let (code, told, _) = exec(true, &["--json", "--token", "wrong", "--", "true"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &told["error"]["code"]), (Some(2), &json!("UNAUTHENTICATED")), "{told}");
    let (code, told, _) = exec(true, &["--json", "--project", "../p", "--", "true"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &told["error"]["code"]), (Some(2), &json!("INVALID_ARGUMENT")), "{told}");
}
