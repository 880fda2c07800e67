//! Many boxes, one after the other and 16 at a time, leave nothing on the host.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tests::support::actor::Mode;
use tests::support::scratch::Scratch;
use tests::support::wait::wait_until;

use crate::traces::{Host, host, network_namespaces};

const IN_A_ROW: usize = 1000;
const CONCURRENT: usize = 200;
const AT_A_TIME: usize = 16;

#[test]
fn root_1000_boxes_in_a_row_leave_nothing() {
    leave_nothing(Mode::Root, IN_A_ROW, 1);
}

#[test]
fn rootless_1000_boxes_in_a_row_leave_nothing() {
    leave_nothing(Mode::Rootless, IN_A_ROW, 1);
}

#[test]
fn root_200_boxes_16_at_a_time_leave_nothing() {
    leave_nothing(Mode::Root, CONCURRENT, AT_A_TIME);
}

#[test]
fn rootless_200_boxes_16_at_a_time_leave_nothing() {
    leave_nothing(Mode::Rootless, CONCURRENT, AT_A_TIME);
}

fn leave_nothing(mode: Mode, boxes: usize, at_a_time: usize) {
    let Some(host) = host(mode) else { return };
    let scratch = Scratch::inside("/var/tmp".as_ref(), mode.identity()).unwrap();
    let next = AtomicUsize::new(0);
    let seen = Mutex::new((Vec::new(), BTreeSet::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_a_time {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < boxes {
                    let (program, network) = run_box(&host, &scratch);
                    let mut seen = seen.lock().unwrap();
                    seen.0.push(program);
                    seen.1.insert(network);
                }
            });
        }
    });
    let (programs, networks) = seen.into_inner().unwrap();
    assert_eq!(programs.len(), boxes);
    host.assert_clean(&programs, &format!("{boxes} boxes, {at_a_time} at a time"));
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "files in TMPDIR");
    // The kernel reuses the inode numbers of namespaces, so another program may have one of ours
    // for a while.
    wait_until("the end of our network namespaces", || network_namespaces().is_disjoint(&networks));
}

/// Runs one box. Returns the process id of the program and the box's network namespace.
fn run_box(host: &Host, scratch: &Scratch) -> (u32, String) {
    let run = host.boxed().host_variable("TMPDIR", &scratch.path().to_string_lossy());
    let live = run.start(&["readlink", "/proc/self/ns/net"]).unwrap();
    let program = live.id();
    let outcome = live.finish().unwrap();
    let network = outcome.text().trim().to_owned();
    assert!(outcome.code() == Some(0) && network.starts_with("net:["), "{}", outcome.describe());
    (program, network)
}
