//! HTTPS and pip in a box, through the egress proxy, to a TLS server on loopback with a self-signed
//! certificate. Listed hosts are reached and the box verifies the certificate; the proxy does not connect
//! to other hosts.

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

/// A TLS server with a package index, which counts its connections.
struct TlsServer {
    port: u16,
    certificate: String,
    connections: Arc<AtomicUsize>,
}

impl TlsServer {
    /// `redirect_port` is the local port to which `/redirect` redirects.
    fn serve(redirect_port: u16) -> Self {
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
        let connections_of_thread = connections.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                connections_of_thread.fetch_add(1, Ordering::SeqCst);
                let stream = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
                let wheel = wheel.clone();
                // Fails if the client does not trust the certificate, as one test expects.
                std::thread::spawn(move || respond(stream, redirect_port, &wheel));
            }
        });
        Self { port, certificate: made.cert.pem(), connections }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// A script that first writes the certificate to the workspace and removes exceptions from the proxy.
    fn script(&self, rest: &str) -> String {
        format!("cat > ca.pem <<'END'\n{}END\nunset no_proxy NO_PROXY\n{rest}", self.certificate)
    }
}

fn respond(
    mut stream: StreamOwned<ServerConnection, TcpStream>,
    redirect_port: u16,
    wheel: &[u8],
) -> std::io::Result<()> {
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
         Location: https://localhost:{redirect_port}/\r\n\r\n"
    )?;
    stream.write_all(content)?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// A server that allows boxes only the host `listed`. The hosts in `allowed_hosts` may resolve to loopback, so that
/// only the list can be the reason of a refusal.
fn start(listed: &str, allowed_hosts: &[String]) -> Server {
    let server = Server::start();
    let settings =
        json!({ "net": { "mode": "allowlist", "allow": [listed] }, "egress": { "allowed_hosts": allowed_hosts } });
    server.ask("PUT", "/settings", Some(&settings)).expect(200);
    server
}

#[test]
fn https_reaches_listed_hosts_with_end_to_end_tls() {
    let other = TlsServer::serve(0);
    let tls_server = TlsServer::serve(other.port);
    let host_and_port = |host: &str| format!("{host}:{}", tls_server.port);
    let beside = format!("localhost:{}", other.port);
    let server = start(
        &host_and_port("localhost"),
        &[host_and_port("localhost"), host_and_port("127.0.0.1"), host_and_port("localhost.evil.example"), beside],
    );
    let run = |script: &str| server.shell(&tls_server.script(script));
    for host in ["localhost", "LOCALHOST"] {
        let ran = run(&format!("curl -sS --max-time 20 --cacert ca.pem https://{}/", host_and_port(host)));
        assert_eq!(server.stdout(&ran), "hello over TLS", "{host}: {ran}");
    }
    // The proxy does not terminate TLS: without --cacert curl rejects the server's own certificate.
    let ran = run(&format!("curl -sS --max-time 20 https://{}/", host_and_port("localhost")));
    assert_eq!(ran["exit_code"], 60, "{ran}");
    let before = tls_server.connections();
    let refused = [
        host_and_port("127.0.0.1"),
        host_and_port("2130706433"),
        host_and_port("0177.0.0.1"),
        host_and_port("[::ffff:127.0.0.1]"),
        host_and_port("localhost.evil.example"),
        // Ports that are not listed; the first one is the target of the redirect.
        format!("localhost:{}", other.port),
        "localhost:1".to_owned(),
    ];
    let hosts = refused.join(" ");
    let ask = "curl -sg --max-time 20 --cacert ca.pem -o /dev/null -w '%{http_connect} '";
    let ran = run(&format!("for host in {hosts}; do {ask} https://$host/; done"));
    assert_eq!(server.stdout(&ran).trim(), ["403"; 7].join(" "), "{hosts}");
    assert_eq!((tls_server.connections(), other.connections()), (before, 0), "a refused host was connected to");
    let ran = run(&format!("{ask} -L https://{}/redirect", host_and_port("localhost")));
    assert_eq!((server.stdout(&ran).trim(), other.connections()), ("403", 0), "the redirect's target is refused");
    let ran = run(&format!("{ask} -L https://{}/", host_and_port("localhost")));
    assert_eq!(server.stdout(&ran).trim(), "200", "control");
}

#[test]
fn pip_installs_only_from_a_listed_index() {
    let tls_server = TlsServer::serve(0);
    let host_and_port = |host: &str| format!("{host}:{}", tls_server.port);
    let server = start(&host_and_port("localhost"), &[host_and_port("localhost"), host_and_port("127.0.0.1")]);
    let install = |host: &str| {
        let pip = "/usr/bin/python3 -m pip install --disable-pip-version-check --no-cache-dir --retries 0 --timeout 20";
        let ran = server.shell(&tls_server.script(&format!(
            "{pip} --quiet --cert ca.pem --index-url https://{}/simple --target lib tiny \
             && PYTHONPATH=lib /usr/bin/python3 -c 'import tiny; print(tiny.WORD)'",
            host_and_port(host)
        )));
        (server.stdout(&ran).trim().to_owned(), ran)
    };
    let (output, ran) = install("localhost");
    assert_eq!(output, "from the wheel", "{ran}");
    let path = format!("/sandbox/execs/{}/network", ran["exec_id"].as_str().unwrap());
    let network = server.ask("GET", &path, None).expect(200);
    let connections = network["connections"].as_array().unwrap();
    let is_listed = |connection: &Value| connection["host"] == "localhost" && connection["outcome"] == "allowed";
    assert!(!connections.is_empty() && connections.iter().all(is_listed), "{network}");
    let before = tls_server.connections();
    let (output, ran) = install("127.0.0.1");
    assert_eq!((output.as_str(), tls_server.connections()), ("", before), "{ran}");
    assert_eq!((&ran["status"], &ran["error_reason"]["code"]), (&json!("FAILED"), &json!("NET_REFUSED")), "{ran}");
}
