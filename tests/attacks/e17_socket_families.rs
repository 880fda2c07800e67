//! Of the socket families only UNIX, the two internet ones and netlink's ROUTE are there. Kernels lack many of the
//! others, so the filter itself is asked; the allowed ones must work, or the refusals would mean nothing.

use serde_json::{Value, json};
use tests::support::actor::Identity;
use tests::support::payload::Payload;

use crate::probe::{Context, Fault, Probe, Verdict, control, held, outside_as};

pub(crate) const PROBE: Probe =
    Probe { id: "e17", title: "socket families: packet, vsock, alg, key, xdp, netlink", run };

const OPEN: &str = r"
answer([[isolated(lambda: call('socket', *row)), judged('socket', *row)] for row in DATA])
";

/// Name, family, type, protocol.
const REFUSED: [(&str, u32, u32, u32); 19] = [
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
];

const ALLOWED: [(&str, u32, u32, u32); 5] = [
    ("AF_UNIX", 1, 1, 0),
    ("AF_INET stream", 2, 1, 0),
    ("AF_INET datagram", 2, 2, 0),
    ("AF_INET6", 10, 1, 0),
    ("NETLINK_ROUTE", 16, 3, 0),
];

fn payload(rows: &[(&str, u32, u32, u32)]) -> Payload {
    Payload::new(OPEN).with(json!(rows.iter().map(|row| [row.1, row.2, row.3]).collect::<Vec<_>>()))
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

    let inside = context.inside(&context.boxed(), &payload(&REFUSED))?;
    let rows: Vec<&Value> = inside.as_array().into_iter().flatten().collect();
    if rows.len() != REFUSED.len() {
        return Err(Fault::Inconclusive(format!("incomplete answer: {inside}")));
    }
    let mut faults = Vec::new();
    for (family, pair) in REFUSED.iter().zip(&rows) {
        let refused = |value: &Value| value == "EPERM" || value == "EAFNOSUPPORT";
        let no_oracle = pair[1].as_str().is_some_and(|text| text.starts_with("no oracle"));
        if !refused(&pair[0]) || !(refused(&pair[1]) || no_oracle) {
            faults.push(format!("{} → {}, filter {}", family.0, pair[0], pair[1]));
        }
    }
    held(faults.is_empty(), || faults.join("; "))?;
    Ok(format!("{} refused by the filter ({works} of them work outside), {} work", REFUSED.len(), ALLOWED.len()))
}
