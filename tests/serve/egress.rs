//! HTTPS and pip from an exec, through the proxy, to a real server with a certificate of its own on this machine's loopback: what is
//! listed is reached and its certificate is checked in the box, end to end; what is not listed is not connected to.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::server::Server;

/// Writes a wheel with one module to its standard output.
const MAKE_WHEEL: &str = "
import io, sys, zipfile
made = io.BytesIO()
with zipfile.ZipFile(made, 'w') as wheel:
    wheel.writestr('tiny.py', 'WORD = \"from the wheel\"\\n')
    wheel.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')
    wheel.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr('tiny-1.0.dist-info/RECORD', 'tiny.py,,\\ntiny-1.0.dist-info/METADATA,,\\ntiny-1.0.dist-info/WHEEL,,\\ntiny-1.0.dist-info/RECORD,,\\n')
sys.stdout.buffer.write(made.getvalue())
";
const WHEEL: &str = "tiny-1.0-py3-none-any.whl";

/// A server of packages with TLS, and how often somebody connected.
struct Secure {
    port: u16,
    certificate: String,
    connections: Arc<AtomicUsize>,
}

impl Secure {
    /// `elsewhere` is the port of this machine to which `/redirect` leads.
    fn serve(elsewhere: u16) -> Self {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let config = Arc::new(config);
        let wheel = Command::new("/usr/bin/python3").args(["-c", MAKE_WHEEL]).output().unwrap();
        assert!(wheel.status.success(), "{}", String::from_utf8_lossy(&wheel.stderr));
        let wheel = Arc::new(wheel.stdout);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, connections) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let counted = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
                let wheel = wheel.clone();
                // One that does not trust the certificate goes away, and that is its own business.
                std::thread::spawn(move || answer(stream, elsewhere, &wheel));
            }
        });
        Self { port, certificate: made.cert.pem(), connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// What every script begins with: the certificate in the workspace, and no host for which the proxy is left out.
    fn script(&self, rest: &str) -> String {
        format!("cat > ca.pem <<'END'\n{}END\nunset no_proxy NO_PROXY\n{rest}", self.certificate)
    }
}

fn answer(mut stream: StreamOwned<ServerConnection, TcpStream>, elsewhere: u16, wheel: &[u8]) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let page = format!("<!doctype html><a href=\"/{WHEEL}\">{WHEEL}</a>");
    let (status, content) = match head.split(' ').nth(1).unwrap_or_default() {
        "/" => ("200 OK", b"hello over TLS".as_slice()),
        "/redirect" => ("302 Found", b"".as_slice()),
        "/simple/tiny/" => ("200 OK", page.as_bytes()),
        path if path.trim_start_matches('/') == WHEEL => ("200 OK", wheel),
        _ => ("404 Not Found", b"".as_slice()),
    };
    let kind = if content == page.as_bytes() { "text/html" } else { "application/octet-stream" };
    let length = content.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\
         Location: https://localhost:{elsewhere}/\r\n\r\n"
    )?;
    stream.write_all(content)?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// A server that lets boxes reach this host alone. All of these may lead to this machine, so that what is refused is refused by the list.
fn start(listed: &str, lifted: &[String]) -> Server {
    let server = Server::start();
    let settings = json!({ "net": { "mode": "allowlist", "allow": [listed] }, "egress": { "allowed_hosts": lifted } });
    server.ask("PUT", "/settings", Some(&settings)).expect(200);
    server
}

#[test]
fn https_goes_to_listed_hosts_and_is_checked_in_the_box() {
    let other = Secure::serve(0);
    let secure = Secure::serve(other.port);
    let at = |host: &str| format!("{host}:{}", secure.port);
    let beside = format!("localhost:{}", other.port);
    let server = start(&at("localhost"), &[at("localhost"), at("127.0.0.1"), at("localhost.evil.example"), beside]);
    let run = |script: &str| server.shell(&secure.script(script));
    for host in ["localhost", "LOCALHOST"] {
        let ran = run(&format!("curl -sS --max-time 20 --cacert ca.pem https://{}/", at(host)));
        assert_eq!(server.stdout(&ran), "hello over TLS", "{host}: {ran}");
    }
    // Nobody stands in between: a box that does not trust the certificate sees that it does not.
    let ran = run(&format!("curl -sS --max-time 20 https://{}/", at("localhost")));
    assert_eq!(ran["exit_code"], 60, "{ran}");
    let before = secure.connections();
    let refused = [
        at("127.0.0.1"),
        at("2130706433"),
        at("0177.0.0.1"),
        at("[::ffff:127.0.0.1]"),
        at("localhost.evil.example"),
        // A port that is not listed, and the one that a redirect leads to.
        format!("localhost:{}", other.port),
        "localhost:1".to_owned(),
    ];
    let words = refused.join(" ");
    let ask = "curl -sg --max-time 20 --cacert ca.pem -o /dev/null -w '%{http_connect} '";
    let ran = run(&format!("for host in {words}; do {ask} https://$host/; done"));
    assert_eq!(server.stdout(&ran).trim(), ["403"; 7].join(" "), "{words}");
    assert_eq!((secure.connections(), other.connections()), (before, 0), "nobody came");
    let ran = run(&format!("{ask} -L https://{}/redirect", at("localhost")));
    assert_eq!((server.stdout(&ran).trim(), other.connections()), ("403", 0), "where it leads is asked anew");
    let ran = run(&format!("{ask} -L https://{}/", at("localhost")));
    assert_eq!(server.stdout(&ran).trim(), "200", "the control");
}

#[test]
fn pip_installs_from_a_listed_index_alone() {
    let secure = Secure::serve(0);
    let at = |host: &str| format!("{host}:{}", secure.port);
    let server = start(&at("localhost"), &[at("localhost"), at("127.0.0.1")]);
    let install = |host: &str| {
        let pip = "/usr/bin/python3 -m pip install --disable-pip-version-check --no-cache-dir --retries 0 --timeout 20";
        let ran = server.shell(&secure.script(&format!(
            "{pip} --quiet --cert ca.pem --index-url https://{}/simple --target lib tiny \
             && PYTHONPATH=lib /usr/bin/python3 -c 'import tiny; print(tiny.WORD)'",
            at(host)
        )));
        (server.stdout(&ran).trim().to_owned(), ran)
    };
    let (said, ran) = install("localhost");
    assert_eq!(said, "from the wheel", "{ran}");
    let path = format!("/sandbox/execs/{}/network", ran["exec_id"].as_str().unwrap());
    let network = server.ask("GET", &path, None).expect(200);
    let connections = network["connections"].as_array().unwrap();
    let is_listed = |connection: &Value| connection["host"] == "localhost" && connection["outcome"] == "allowed";
    assert!(!connections.is_empty() && connections.iter().all(is_listed), "{network}");
    let before = secure.connections();
    let (said, ran) = install("127.0.0.1");
    assert_eq!((said.as_str(), secure.connections()), ("", before), "{ran}");
    assert_eq!((&ran["status"], &ran["error_reason"]["code"]), (&json!("FAILED"), &json!("NET_REFUSED")), "{ran}");
}
