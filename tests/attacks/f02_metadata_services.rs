//! Attack f02: a box connects to the metadata addresses of clouds. Each must fail at once, because
//! there is no route. The control reaches such an address in a network namespace that has it.

use serde_json::json;
use tests::support::actor::Identity;
use tests::support::payload::Payload;

use crate::f01_host_listeners::CONNECT;
use crate::probe::{Context, Probe, Verdict, bare_as, control, held, parse};

pub(crate) const PROBE: Probe = Probe { id: "f02", title: "cloud metadata addresses", run };

/// Adds the metadata address to the loopback of a new network namespace by ioctl, which needs no tool, and listens on it.
const SCRATCH_NETWORK: &str = r"
import fcntl, socket
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def address_request(name, address):
    return struct.pack('16sH2x4s8x', name, socket.AF_INET, socket.inet_aton(address))
fcntl.ioctl(plain, 0x8914, struct.pack('16sH14x', b'lo', 0x49))
fcntl.ioctl(plain, 0x8916, address_request(b'lo:1', '169.254.169.254'))
listener = socket.socket()
listener.bind(('169.254.169.254', 80))
listener.listen(5)
";

fn run(context: &Context) -> Verdict {
    let targets = json!([
        ["169.254.169.254", 80],
        ["fd00:ec2::254", 80],
        ["100.100.100.200", 80],
        ["169.254.170.2", 80],
        ["168.63.129.16", 80],
        ["192.0.2.1", 443]
    ]);
    let reach = Payload::new(&format!("{SCRATCH_NETWORK}{CONNECT}")).with(json!([["169.254.169.254", 80]]));
    let mut words = vec!["unshare".into(), "--user".into(), "--map-root-user".into(), "--net".into()];
    words.extend(reach.arguments());
    let outside = parse("in a scratch network", &bare_as(Identity::Unprivileged, &words)?)?;
    control(outside["169.254.169.254 port 80"] == "ok", || format!("not reached in a scratch network: {outside}"))?;

    let inside = context.inside(&context.boxed(), &Payload::new(CONNECT).with(targets))?;
    for (target, outcome) in inside.as_object().into_iter().flatten() {
        let at_once =
            ["ENETUNREACH", "EHOSTUNREACH", "EPERM", "EACCES", "EADDRNOTAVAIL"].iter().any(|errno| outcome == errno);
        held(at_once, || format!("{target} → {outcome}"))?;
    }
    Ok(format!("{inside}"))
}
