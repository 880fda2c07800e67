//! Attack f09: a box asks the proxy for hosts outside the list in many spellings, and for listed
//! hosts that resolve to forbidden addresses. Listeners on the host's loopback count connections.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Deref, DerefMut};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::listener::Listener;
use tests::support::server::{Server, Starter};

use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "f09", title: "spell past the list of allowed hosts", run };

/// The forms of a request. Our listeners never answer, so only a tunnel gets a response.
const TUNNEL: &str = "CONNECT {target}";
const FORWARD: &str = "GET http://{target}/";

/// Requests every target in each form, with an allowed `Host`, and prints the answers.
const ASK: &str = r#"
import json, socket, sys
def ask(text):
    try:
        client = socket.create_connection(("127.0.0.1", 3128), 20)
        client.sendall(text.encode("latin-1"))
        return client.recv(12).decode("latin-1").split(" ")[1]
    except Exception as problem:
        return type(problem).__name__
told = {}
for target in TARGETS:
    head = " HTTP/1.1\r\nHost: " + ALLOWED + "\r\n\r\n"
    told[target] = [ask(form.format(target=target) + head) for form in FORMS]
print(json.dumps(told))
"#;

/// A server for this probe. It is stopped and waited for, so that none of its boxes is left.
#[derive(Debug)]
pub(crate) struct Own(Server);

impl Deref for Own {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

impl DerefMut for Own {
    fn deref_mut(&mut self) -> &mut Server {
        &mut self.0
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if !self.0.has_ended() {
            self.0.signal(Signal::TERM);
            self.0.ended();
        }
    }
}

/// Starts the server as the user of this column.
pub(crate) fn server(context: &Context) -> Result<Own, Fault> {
    context.not_served("the other columns run this with a server of the probe")?;
    let starter = Starter { identity: context.mode.identity(), binary: context.binary.clone() };
    Ok(Own(Server::start_as(&starter, TempDir::with_prefix("rw-egress-")?, &[])))
}

/// Sets the allowed hosts, and those of them that may have private addresses.
pub(crate) fn allow(server: &Server, allowed: &[String], lifted: &[String]) {
    let settings = json!({ "net": { "mode": "allowlist", "allow": allowed }, "egress": { "allowed_hosts": lifted } });
    server.ask("PUT", "/settings", Some(&settings)).expect(200);
}

/// The proxy's responses to a box for each target in each form.
fn asked(server: &Server, targets: &[String], allowed: &str, forms: &[&str]) -> Result<Value, Fault> {
    let code = format!("TARGETS = {}\nALLOWED = {}\nFORMS = {}\n{ASK}", json!(targets), json!(allowed), json!(forms));
    let exec = server.shell(&format!("python3 - <<'END'\n{code}\nEND"));
    let said = server.stdout(&exec);
    serde_json::from_str(&said).map_err(|_| Fault::Inconclusive(format!("no answer: {said:?} {exec}")))
}

/// True if the proxy connects a box to this host.
pub(crate) fn is_let_through(server: &Server, target: &str, allowed: &str) -> Result<bool, Fault> {
    Ok(asked(server, &[target.to_owned()], allowed, &[TUNNEL])?[target][0] == "200")
}

fn run(context: &Context) -> Verdict {
    let server = server(context)?;
    let listener = Listener::on(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
    let port = listener.stream_port()?;
    let at = |host: &str| format!("{host}:{port}");
    let allowed = [at("localhost"), at("127.0.0.1"), at("169.254.169.254"), at("good.example")];
    allow(&server, &allowed, &[]);
    let targets: Vec<String> = [
        // Listed, with a private address.
        "localhost",
        "LOCALHOST",
        "localhost.",
        "127.0.0.1",
        "169.254.169.254",
        // Not listed.
        "good.example.evil.example",
        "evilgood.example",
        "a.good.example",
        "127.0.0.2",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        // Numbers that some parsers accept as addresses.
        "2130706433",
        "0x7f000001",
        "017700000001",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "127.1",
        "127.0.0.01",
        // Two hosts in one target.
        "localhost@evil.example",
        "evil.example@localhost",
        "localhost%00.evil.example",
        "localhost%2eevil.example",
    ]
    .map(at)
    .into();
    let told = asked(&server, &targets, &at("localhost"), &[TUNNEL, FORWARD])?;
    let came = listener.connections()?;
    held(came == 0, || format!("{came} connections: {told}"))?;
    for (target, told) in told.as_object().into_iter().flatten() {
        let refused = told.as_array().is_some_and(|told| told.iter().all(|told| told == "403" || told == "400"));
        held(refused, || format!("{target}: {told}"))?;
    }
    // Control: with the host allowed to have a private address, the request succeeds.
    allow(&server, &allowed, &[at("localhost")]);
    let is_through = is_let_through(&server, &at("localhost."), &at("localhost"))?;
    let came = listener.connections()?;
    control(came > 0 && is_through, || format!("{came} connections; let through: {is_through}"))?;
    Ok(format!("{} spellings refused, no connection", targets.len()))
}
