//! Attack e17: a box opens sockets of other families and protocols than it needs, so that the kernel loads their modules.
//!
//! Allowed are Unix sockets, TCP and UDP over IPv4 and IPv6, ICMP echo, and netlink's ROUTE protocol. Kernels lack many of
//! the others, so the filter itself is asked. The allowed ones must work inside; MPTCP, UDP-Lite and others must work
//! outside, or the refusals would mean nothing.

use serde_json::{Value, json};
use tests::support::actor::Identity;
use tests::support::payload::Payload;

use crate::probe::{Context, Fault, Probe, Verdict, control, held, outside_as};

pub(crate) const PROBE: Probe =
    Probe { id: "e17", title: "socket families and protocols: packet, vsock, sctp, mptcp, netlink", run };

const OPEN: &str = r"
answer([[isolated(lambda: call(*row)), judged(*row)] for row in DATA])
";

/// Name, family, type, protocol.
const REFUSED: [(&str, u64, u64, u64); 34] = [
    ("AF_PACKET raw", 17, 3, 0x0300),
    ("AF_PACKET datagram", 17, 2, 0x0300),
    ("AF_VSOCK", 40, 1, 0),
    ("AF_ALG", 38, 5, 0),
    ("AF_BLUETOOTH", 31, 3, 1),
    ("AF_KEY", 15, 3, 2),
    ("AF_XDP", 44, 3, 0),
    ("AF_CAN", 29, 3, 1),
    ("AF_TIPC", 30, 1, 0),
    ("AF_RDS", 21, 5, 0),
    ("AF_NFC", 39, 5, 0),
    ("AF_SMC", 43, 1, 0),
    ("AF_QIPCRTR", 42, 2, 0),
    ("AF_APPLETALK", 5, 2, 0),
    ("NETLINK_NETFILTER", 16, 3, 12),
    ("NETLINK_AUDIT", 16, 3, 9),
    ("NETLINK_KOBJECT_UEVENT", 16, 3, 15),
    ("NETLINK_XFRM", 16, 3, 6),
    ("NETLINK_GENERIC", 16, 3, 16),
    ("MPTCP", 2, 1, 262),
    ("MPTCP over IPv6", 10, 1, 262),
    ("MPTCP with flags", 2, 1 | CLOEXEC | NONBLOCK, 262),
    ("MPTCP with high bits", 2 | HIGH, 1 | HIGH, 262 | HIGH),
    ("SCTP stream", 2, 1, 132),
    ("SCTP sequenced packets", 10, 5, 132),
    ("SCTP by the default of its type", 2, 5, 0),
    ("SMC", 2, 1, 256),
    ("DCCP", 2, 6, 33),
    ("L2TP", 2, 2, 115),
    ("UDP-Lite", 2, 2, 136),
    ("UDP-Lite over IPv6", 10, 2, 136),
    ("raw ICMP", 2, 3, 1),
    ("ICMP of IPv4 over IPv6", 10, 2, 1),
    ("UDP as a stream", 2, 1, 17),
];

const ALLOWED: [(&str, u64, u64, u64); 9] = [
    ("AF_UNIX", 1, 1, 0),
    ("AF_UNIX datagram", 1, 2 | CLOEXEC, 0),
    ("AF_INET stream", 2, 1, 0),
    ("AF_INET datagram", 2, 2, 0),
    ("TCP", 2, 1 | CLOEXEC | NONBLOCK, 6),
    ("UDP", 2, 2 | NONBLOCK, 17),
    ("AF_INET6", 10, 1, 0),
    ("UDP over IPv6", 10, 2, 17),
    ("NETLINK_ROUTE", 16, 3, 0),
];

const NONBLOCK: u64 = 0o4000;
const CLOEXEC: u64 = 0o2_000_000;
/// Set in all three arguments: the kernel reads only the low 32 bits, and so must the filter.
const HIGH: u64 = 1 << 32;

/// The result of TCP_ULP on the host depends on the kernel's modules, so only the filter's answer counts. The other option
/// must work.
const UPPER_LAYER: &str = r"
import socket
stream = socket.socket()
def set_option(level, option, value):
    return attempt(lambda: stream.setsockopt(level, option, value))
answer({'ulp': set_option(socket.IPPROTO_TCP, 31, b'tls\0'), 'nodelay': set_option(socket.IPPROTO_TCP, 1, 1),
        'congestion': set_option(socket.IPPROTO_TCP, 13, b'reno')})
";

fn payload(rows: &[(&str, u64, u64, u64)]) -> Payload {
    Payload::new(OPEN).with(json!(rows.iter().map(|row| json!(["socket", row.1, row.2, row.3])).collect::<Vec<_>>()))
}

fn run(context: &Context) -> Verdict {
    let allowed = context.inside(&context.boxed(), &payload(&ALLOWED))?;
    for (row, outcome) in ALLOWED.iter().zip(allowed.as_array().into_iter().flatten()) {
        control(outcome[0] == "ok", || format!("{} does not work inside: {outcome}", row.0))?;
    }
    let outside = outside_as(Identity::Unprivileged, &payload(&REFUSED))?;
    let works = outside.as_array().into_iter().flatten().filter(|pair| pair[0] == "ok").count();
    let oracle = outside.as_array().into_iter().flatten().all(|pair| pair[1] == "ENOSYS");
    control(works >= 3 && oracle, || format!("only {works} of them work outside: {outside}"))?;
    let ulp = outside_as(Identity::Unprivileged, &Payload::new(UPPER_LAYER))?;
    control(ulp["ulp"] != "EPERM" && ulp["nodelay"] == "ok", || format!("options outside: {ulp}"))?;

    let ulp = context.inside(&context.boxed(), &Payload::new(UPPER_LAYER))?;
    held(ulp["ulp"] == "EPERM", || format!("TCP_ULP → {}", ulp["ulp"]))?;
    control(ulp["nodelay"] == "ok" && ulp["congestion"] == "ok", || format!("options inside: {ulp}"))?;
    let inside = context.inside(&context.with_oracle(), &payload(&REFUSED))?;
    let rows: Vec<&Value> = inside.as_array().into_iter().flatten().collect();
    if rows.len() != REFUSED.len() {
        return Err(Fault::Inconclusive(format!("incomplete answer: {inside}")));
    }
    let mut faults = Vec::new();
    for (family, pair) in REFUSED.iter().zip(&rows) {
        let refused = |value: &Value| value == "EPERM";
        let no_oracle = pair[1].as_str().is_some_and(|text| text.starts_with("no oracle"));
        if !refused(&pair[0]) || !(refused(&pair[1]) || no_oracle) {
            faults.push(format!("{} → {}, filter {}", family.0, pair[0], pair[1]));
        }
    }
    held(faults.is_empty(), || faults.join("; "))?;
    Ok(format!("{} refused by the filter ({works} of them work outside), {} work", REFUSED.len(), ALLOWED.len()))
}
