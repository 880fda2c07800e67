//! Many boxes, one after the other and at the same time: afterwards the host has exactly what it had.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tests::support::actor::Mode;
use tests::support::scratch::Scratch;

use crate::traces::{Host, host, network_namespaces};

const IN_A_ROW: usize = 1000;
const TOGETHER: usize = 200;
const AT_ONCE: usize = 16;

#[test]
fn root_a_thousand_in_a_row() {
    leave_nothing(Mode::Root, IN_A_ROW, 1);
}

#[test]
fn rootless_a_thousand_in_a_row() {
    leave_nothing(Mode::Rootless, IN_A_ROW, 1);
}

#[test]
fn root_two_hundred_sixteen_at_once() {
    leave_nothing(Mode::Root, TOGETHER, AT_ONCE);
}

#[test]
fn rootless_two_hundred_sixteen_at_once() {
    leave_nothing(Mode::Rootless, TOGETHER, AT_ONCE);
}

fn leave_nothing(mode: Mode, boxes: usize, at_once: usize) {
    let Some(host) = host(mode) else { return };
    let scratch = Scratch::inside("/var/tmp".as_ref(), mode.identity()).unwrap();
    let next = AtomicUsize::new(0);
    let seen = Mutex::new((Vec::new(), BTreeSet::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < boxes {
                    let (maker, network) = one(&host, &scratch);
                    let mut seen = seen.lock().unwrap();
                    seen.0.push(maker);
                    seen.1.insert(network);
                }
            });
        }
    });
    let (makers, networks) = seen.into_inner().unwrap();
    assert_eq!(makers.len(), boxes);
    host.assert_clean(&makers, &format!("{boxes} boxes, {at_once} at a time"));
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "files in TMPDIR");
    // The kernel reuses the numbers of namespaces, so one that a stranger's box has now is looked at again.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !network_namespaces().is_disjoint(&networks) {
        assert!(Instant::now() < deadline, "a network namespace of ours is still in use");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs one box that tells its network namespace; its maker's process id comes along.
fn one(host: &Host, scratch: &Scratch) -> (u32, String) {
    let run = host.boxed().host_variable("TMPDIR", &scratch.path().to_string_lossy());
    let live = run.start(&["readlink", "/proc/self/ns/net"]).unwrap();
    let maker = live.id();
    let outcome = live.finish().unwrap();
    let network = outcome.text().trim().to_owned();
    assert!(outcome.code() == Some(0) && network.starts_with("net:["), "{}", outcome.describe());
    (maker, network)
}
