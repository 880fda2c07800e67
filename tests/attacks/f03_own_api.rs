//! Attack f03: a box connects to the product's own port on the host's loopback, where it could
//! request more.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::json;
use tests::support::listener::Listener;
use tests::support::payload::Payload;

use crate::f01_host_listeners::CONNECT;
use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "f03", title: "reach the product's own API port", run };

fn run(context: &Context) -> Verdict {
    if context.is_served() {
        return ask_own_server(context);
    }
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    // The default port if it is free, otherwise another one.
    let listener = Listener::at(SocketAddr::new(loopback, 8003)).or_else(|_| Listener::on(loopback))?;
    let port = listener.stream_port()?;
    let payload = Payload::new(CONNECT).with(json!([["127.0.0.1", port], ["::1", port], ["0.0.0.0", port]]));
    context.outside(&payload)?;
    control(listener.connections()? > 0, || "the listener is not reached outside".into())?;
    let inside = context.inside(&context.boxed(), &payload)?;
    let came = listener.connections()?;
    held(came == 0, || format!("{came} connections came from the box"))?;
    for (target, outcome) in inside.as_object().into_iter().flatten() {
        held(outcome != "ok", || format!("connected to {target}"))?;
    }
    Ok(format!("port {port}: {inside}"))
}

/// The server that runs the box, by every spelling of its address.
fn ask_own_server(context: &Context) -> Verdict {
    let address = &context.server()?.address;
    let port: u16 = address.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or_default();
    let payload = Payload::new(CONNECT).with(json!([["127.0.0.1", port], ["::1", port], ["0.0.0.0", port]]));
    let outside = context.outside(&payload)?;
    control(outside[format!("127.0.0.1 port {port}")] == "ok", || format!("not reached outside: {outside}"))?;
    let inside = context.inside(&context.boxed(), &payload)?;
    for (target, outcome) in inside.as_object().into_iter().flatten() {
        held(outcome != "ok", || format!("connected to {target}"))?;
    }
    Ok(format!("the box's own server at port {port}: {inside}"))
}
