//! Attack f01: a box connects to listeners on every address of the host: both loopbacks, "any", and
//! all interfaces, bridges of container engines included.

use serde_json::{Value, json};
use tests::support::listener::{Listener, host_addresses};
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "f01", title: "connect to listeners on the host's addresses", run };

pub(crate) const CONNECT: &str = r"
import socket
seen = {}
for address, port in DATA:
    family = socket.AF_INET6 if ':' in address else socket.AF_INET
    def act():
        with socket.socket(family, socket.SOCK_STREAM) as one:
            one.settimeout(20)
            one.connect((address, port))
    try:
        seen['%s port %d' % (address, port)] = attempt(act)
    except TimeoutError:
        seen['%s port %d' % (address, port)] = 'no answer'
answer(seen)
";

fn run(context: &Context) -> Verdict {
    let addresses = host_addresses();
    let listeners = addresses.iter().map(|address| Listener::on(*address)).collect::<Result<Vec<_>, _>>()?;
    let mut targets = Vec::new();
    for (address, listener) in addresses.iter().zip(&listeners) {
        targets.push(json!([address, listener.stream_port()?]));
    }
    // Other spellings of the loopback address, with the first listener's port.
    let loopback = addresses.iter().position(|address| address.to_string() == "127.0.0.1");
    let port = listeners[loopback.unwrap_or(0)].stream_port()?;
    for spelling in ["127.1.2.3", "0.0.0.0", "::ffff:127.0.0.1", "localhost"] {
        targets.push(json!([spelling, port]));
    }
    let payload = Payload::new(CONNECT).with(Value::Array(targets.clone()));
    let outside = context.outside(&payload)?;
    for (address, listener) in addresses.iter().zip(&listeners) {
        control(listener.connections()? > 0, || format!("{address} is not reached outside either: {outside}"))?;
    }

    let inside = context.inside(&context.boxed(), &payload)?;
    for (address, listener) in addresses.iter().zip(&listeners) {
        let came = listener.connections()?;
        held(came == 0, || format!("{came} connections came from the box to {address}"))?;
    }
    for (target, outcome) in inside.as_object().into_iter().flatten() {
        held(outcome != "ok", || format!("connected to {target}"))?;
    }
    Ok(format!("{} targets on {} addresses, 0 accepted", targets.len(), addresses.len()))
}
