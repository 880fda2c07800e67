//! Attack g23: a box holds memory in socket queues, which a memory limit of cgroup version 1 does
//! not cover.
//!
//! Each way fills unread queues until it holds several times the memory limit, or the box is ended.
//! The verdict is the kernel's count of TCP and UDP memory on this machine, and for netlink the
//! table of the box's network namespace, both read outside. The kernel shows no count for Unix
//! sockets: if a cgroup charges them the box must be ended, otherwise its report must name the gap.
//! The control reaches its goal without a box.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::support::host;
use tests::support::payload::Payload;
use tests::support::process::LiveProcess;

use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g23", title: "memory in socket queues: TCP, UDP, UNIX, netlink", run };

/// Queues up to a number of megabytes, prints how many, and keeps them until its input ends.
const QUEUE: &str = r"
import resource, socket
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
kept, goal, piece = [], DATA['megabytes'] << 20, b'x' * 60000
def fill(send, most):
    sent = 0
    while sent < most:
        try:
            sent += send(piece)
        except BlockingIOError:
            break
    return sent
def pair(family, kind):
    ends = socket.socketpair(family, kind)
    kept.extend(ends)
    [end.setblocking(False) for end in ends]
    return sum(fill(end.send, goal) for end in ends)
listener = socket.socket()
listener.bind(('127.0.0.1', 0))
listener.listen(128)
def tcp():
    ends = [socket.create_connection(listener.getsockname()), listener.accept()[0]]
    kept.extend(ends)
    [end.setblocking(False) for end in ends]
    return sum(fill(end.send, goal) for end in ends)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
def udp():
    # More than fits: what does not is dropped. A little less than a default buffer counts.
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(('127.0.0.1', 0))
    kept.append(receiver)
    for _ in range(5):
        sender.sendto(piece, receiver.getsockname())
    return 2 * len(piece)
def netlink():
    route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    route.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    route.setblocking(False)
    kept.append(route)
    request = struct.pack('IHHII', 1016, 116, 5, 1, 0) + b'x' * 1000
    try:
        for _ in range(20000):
            route.sendto(request, (0, 0))
    except OSError:
        pass
    # Its answers, each of which repeats the request, have filled the receive buffer.
    return route.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
act = {'tcp': tcp, 'udp': udp, 'netlink': netlink, 'unix stream': lambda: pair(socket.AF_UNIX, socket.SOCK_STREAM),
       'unix datagram': lambda: pair(socket.AF_UNIX, socket.SOCK_DGRAM)}[DATA['kind']]
queued, outcome = 0, 'ok'
while queued < goal and outcome == 'ok':
    try:
        queued += act()
    except OSError as error:
        outcome = name_of(error.errno)
answer({'megabytes': queued >> 20, 'sockets': len(kept), 'outcome': outcome})
sys.stdin.read()
";

const LIMIT_MB: u64 = 64;
const GOAL_MB: u64 = 400;
/// The kernel's own limit of such queues is a quarter of the memory limit, and PID 1 ends the box above a half. Between two
/// of its looks the queues can grow, and other processes of this machine have queues too: hence the whole limit on top.
const HELD_MB: u64 = LIMIT_MB + LIMIT_MB / 2;
/// PID 1 looks four times a second; the time limit of the box is longer than this, so that it cannot end the box instead.
const SETTLED_WITHIN: Duration = Duration::from_secs(20);

fn run(context: &Context) -> Verdict {
    let report = context.boxed().report(&["/bin/true"])?;
    let protections = report.protections("memory_limit");
    let counts_everything = protections.iter().any(|(_, state, _)| state == "enforced");
    let says_so = |(_, state, why): &(String, String, String)| state == "partial" && why.contains("Unix sockets");
    held(counts_everything || protections.iter().any(says_so), || format!("the gap is not reported: {protections:?}"))?;
    let mut notes = Vec::new();
    for kind in ["tcp", "udp", "netlink", "unix stream", "unix datagram"] {
        let payload = Payload::new(QUEUE).with(json!({ "kind": kind, "megabytes": GOAL_MB }));
        let outside = context.outside(&payload)?;
        let reached = outside["megabytes"].as_u64().unwrap_or_default();
        control(reached >= GOAL_MB, || format!("{kind} outside: {outside}"))?;

        let before = Queues::on_this_machine()?;
        let limit = LIMIT_MB.to_string();
        let mut live =
            context.boxed().option("--memory-mb", limit).option("--timeout", "120").start_payload(&payload)?;
        let settled = settle(context, &mut live, &before)?;
        let ended = live.finish()?;
        let queues = settled.queues_mb;
        held(queues <= HELD_MB, || {
            format!("{kind}: {queues} MB in queues under a limit of {LIMIT_MB} MB: {}", settled.answer)
        })?;
        let is_alive = ended.code() == Some(0);
        match (kind.starts_with("unix"), counts_everything) {
            (true, true) => held(!is_alive, || format!("{kind}: the box was not ended: {}", settled.answer))?,
            (true, false) => {}
            (false, _) => notes.push(format!("{kind}: {} at {queues} MB", if is_alive { "kept" } else { "ended" })),
        }
    }
    Ok(notes.join(", "))
}

/// The bytes in a box's queues when it ended, or after more time than PID 1 waits between two
/// checks.
struct Settled {
    queues_mb: u64,
    answer: Value,
}

/// No answer means that the box was ended before.
fn settle(context: &Context, live: &mut LiveProcess, before: &Queues) -> Result<Settled, Fault> {
    let answer = live.line().ok().and_then(|line| serde_json::from_str(&line).ok()).unwrap_or_default();
    let begun = Instant::now();
    loop {
        let now = Queues::on_this_machine()?;
        let netlink = netlink_of(context.above(live))?;
        let queues_mb = (now.bytes.saturating_sub(before.bytes) + netlink) >> 20;
        if queues_mb <= HELD_MB || begun.elapsed() > SETTLED_WITHIN {
            return Ok(Settled { queues_mb, answer });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

struct Queues {
    bytes: u64,
}

impl Queues {
    /// `mem` of TCP and UDP in /proc/net/sockstat is in pages, and of all network namespaces together.
    fn on_this_machine() -> Result<Self, Fault> {
        let text = fs::read_to_string("/proc/net/sockstat")?;
        let pages = |key: &str| -> u64 {
            let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.split_once("mem ").and_then(|(_, pages)| pages.trim().parse().ok()).unwrap_or(0)
        };
        Ok(Self { bytes: (pages("TCP: ") + pages("UDP: ")) * 4096 })
    }
}

/// The receive queues of netlink sockets in the network namespace of a box.
fn netlink_of(above: u32) -> Result<u64, Fault> {
    let own = fs::read_link("/proc/self/ns/net")?;
    let tables = host::descendants(above)?.into_iter().filter_map(|number| {
        let namespace = fs::read_link(format!("/proc/{number}/ns/net")).ok()?;
        (namespace != own).then(|| fs::read_to_string(format!("/proc/{number}/net/netlink")).ok()).flatten()
    });
    let sum = |table: String| -> u64 {
        table.lines().skip(1).filter_map(|line| line.split_ascii_whitespace().nth(4)?.parse::<u64>().ok()).sum()
    };
    Ok(tables.map(sum).max().unwrap_or(0))
}
