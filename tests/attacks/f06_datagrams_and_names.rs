//! Attack f06: a box sends datagrams and resolves names. Landlock does not cover UDP, so only the
//! network namespace prevents it.

use serde_json::{Value, json};
use tests::support::listener::{Listener, host_addresses};
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "f06", title: "UDP and DNS out", run };

const SEND: &str = r"
import socket
seen = {}
for address, port in DATA['targets']:
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    one = socket.socket(family, socket.SOCK_DGRAM)
    seen['%s port %d' % (address, port)] = attempt(lambda: one.sendto(b'hello', (address, port)))
names = {}
for name in DATA['names']:
    try:
        names[name] = socket.getaddrinfo(name, 80)[0][4][0]
    except OSError as error:
        names[name] = 'not resolved'
interfaces = sorted(name for _, name in socket.if_nameindex())
answer({'seen': seen, 'names': names, 'interfaces': interfaces})
";

fn run(context: &Context) -> Verdict {
    let addresses = host_addresses();
    let listeners = addresses.iter().map(|address| Listener::on(*address)).collect::<Result<Vec<_>, _>>()?;
    let mut targets = Vec::new();
    for (address, listener) in addresses.iter().zip(&listeners) {
        targets.push(json!([address, listener.datagram_port()?]));
    }
    let payload = Payload::new(SEND).with(json!({ "targets": targets, "names": ["localhost"] }));
    let outside = context.outside(&payload)?;
    for (address, listener) in addresses.iter().zip(&listeners) {
        control(listener.datagrams()? > 0, || format!("no datagram comes to {address} outside either: {outside}"))?;
    }
    control(outside["names"]["localhost"] != "not resolved", || "no name is resolved outside".into())?;

    let resolvers = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    targets.extend(
        resolvers
            .lines()
            .filter_map(|line| line.strip_prefix("nameserver "))
            .map(|address| json!([address.trim(), 53])),
    );
    targets.extend(["192.0.2.53", "8.8.8.8", "2001:db8::53"].map(|address| json!([address, 53])));
    let names = ["example.com", "host.docker.internal", "metadata.google.internal"];
    let inside =
        context.inside(&context.boxed(), &Payload::new(SEND).with(json!({ "targets": targets, "names": names })))?;
    for (address, listener) in addresses.iter().zip(&listeners) {
        let came = listener.datagrams()?;
        held(came == 0, || format!("{came} datagrams came from the box to {address}"))?;
    }
    for (name, outcome) in inside["names"].as_object().into_iter().flatten() {
        held(outcome == "not resolved", || format!("{name} resolved to {outcome}"))?;
    }
    for (target, outcome) in inside["seen"].as_object().into_iter().flatten() {
        let local = ["127.", "0.0.0.0", "::1 ", ":: "].iter().any(|start| target.starts_with(start));
        held(local || outcome != "ok", || format!("a datagram was sent to {target}"))?;
    }
    let interfaces = &inside["interfaces"];
    held(*interfaces == json!(["lo"]) || *interfaces == json!([]), || format!("interfaces in the box: {interfaces}"))?;
    Ok(format!("{} targets, 0 datagrams; interfaces {}", targets.len(), Value::clone(interfaces)))
}
