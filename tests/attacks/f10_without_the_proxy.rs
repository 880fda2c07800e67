//! Attack f10: a box with allowed hosts ignores the proxy. It must reach neither allowed nor other
//! hosts directly.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::Value;
use tests::support::listener::{Listener, host_addresses};

use crate::f09_past_the_list::{allow, is_let_through, server};
use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "f10", title: "leave a box with hosts without its proxy", run };

const DIRECTLY: &str = r#"
import errno, json, os, socket
for name in list(os.environ):
    if "proxy" in name.lower():
        del os.environ[name]
told = {}
for address, port in TARGETS:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    for kind, word in ((socket.SOCK_STREAM, "tcp"), (socket.SOCK_DGRAM, "udp")):
        try:
            one = socket.socket(family, kind)
            one.settimeout(20)
            one.connect((address, port))
            one.send(b"x")
            told["%s %s %d" % (word, address, port)] = "ok"
        except OSError as problem:
            told["%s %s %d" % (word, address, port)] = errno.errorcode.get(problem.errno, str(problem))
try:
    told["names"] = str(socket.getaddrinfo("example.com", 80))
except OSError as problem:
    told["names"] = "none"
interfaces = [line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]]
told["interfaces"] = interfaces
print(json.dumps(told))
"#;

fn run(context: &Context) -> Verdict {
    let server = server(context)?;
    let listener = Listener::on(IpAddr::V4(Ipv4Addr::UNSPECIFIED))?;
    let (port, datagrams) = (listener.stream_port()?, listener.datagram_port()?);
    let allowed = [format!("127.0.0.1:{port}")];
    allow(&server, &allowed, &allowed);
    let mut targets = Vec::new();
    for address in host_addresses().into_iter().filter(|address| !address.is_unspecified()) {
        targets.extend([(address.to_string(), port), (address.to_string(), datagrams)]);
    }
    targets.extend([("1.1.1.1", 443), ("8.8.8.8", 53), ("169.254.169.254", 80)].map(|(to, at)| (to.to_owned(), at)));
    let code = format!("TARGETS = {}\n{DIRECTLY}", serde_json::json!(targets));
    let exec = server.shell(&format!("python3 - <<'END'\n{code}\nEND"));
    let said = server.stdout(&exec);
    let told: Value =
        serde_json::from_str(&said).map_err(|_| Fault::Inconclusive(format!("no answer: {said:?} {exec}")))?;
    let came = (listener.connections()?, listener.datagrams()?);
    held(came == (0, 0), || format!("{came:?} came: {told}"))?;
    held(told["interfaces"] == serde_json::json!(["lo"]), || format!("other interfaces: {told}"))?;
    held(told["names"] == "none", || format!("names are looked up: {told}"))?;
    for (target, outcome) in told.as_object().into_iter().flatten().filter(|(target, _)| target.starts_with("tcp")) {
        held(outcome != "ok", || format!("connected to {target}"))?;
    }
    // Control: through the proxy the listener is reached.
    let is_through = is_let_through(&server, &allowed[0], &allowed[0])?;
    let came = listener.connections()?;
    control(came > 0 && is_through, || format!("{came} connections came; let through: {is_through}"))?;
    Ok(format!("{} addresses tried past the proxy, nobody came", targets.len()))
}
