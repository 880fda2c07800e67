//! The thread that guards counters shared with boxes (ten wake-ups a second): absent as root, where boxes have uids of their
//! own, and asleep in a rootless server without boxes.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tests::support::actor::{Identity, tester_is_root};
use tests::support::boxed::place;
use tests::support::scratch::Scratch;
use tests::support::wait::wait_until;

use crate::server::{Server, Starter};

/// Five wake-ups of a guard that has boxes.
const INTERVALS: Duration = Duration::from_millis(500);

#[test]
fn server_as_root_has_no_guard_thread() {
    let server = Server::start();
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
    // A tester who is not root sees the control: the thread of a rootless server.
    assert_eq!(guard(&server).is_none(), tester_is_root());
}

#[test]
fn guard_of_rootless_server_sleeps_without_boxes() {
    let home = Scratch::new(Identity::Tester).unwrap();
    let starter = Starter { identity: Identity::Unprivileged, binary: place(&home).unwrap() };
    let server = Server::start_as(&starter, TempDir::with_prefix("rw-guard-").unwrap(), &[]);
    // The control: with a box it wakes.
    let exec = server.begin("echo here; sleep 600");
    server.wait_for_output(&exec);
    wait_until("a guard that wakes", || wakes(&server));
    assert_eq!(server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).status, 202);
    wait_until("a guard that sleeps", || !wakes(&server));
}

/// Whether the guard wakes within some of its intervals.
fn wakes(server: &Server) -> bool {
    let thread = guard(server).unwrap();
    let switches = || {
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap().to_owned()
    };
    let before = switches();
    std::thread::sleep(INTERVALS);
    before != switches()
}

/// The directory of the guard's thread below `/proc`.
fn guard(server: &Server) -> Option<PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let mut threads = threads.map(|thread| thread.unwrap().path());
    threads.find(|thread| std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "counters"))
}
