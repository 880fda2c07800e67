//! The thread that guards kernel counters shared with boxes and wakes ten times per second. As root it does
//! not exist, because boxes have their own uids. Without root it sleeps while there is no box.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tests::support::actor::{Identity, tester_is_root};
use tests::support::boxed::place;
use tests::support::scratch::Scratch;
use tests::support::wait::wait_until;

use crate::server::{Server, Starter};

/// Time for five wake-ups of the guard.
const INTERVALS: Duration = Duration::from_millis(500);

#[test]
fn server_as_root_has_no_guard_thread() {
    let server = Server::start();
    assert_eq!(server.shell("true")["status"], "SUCCEEDED");
    // As root the thread must be absent. Run without root, this is the control: the thread exists.
    assert_eq!(guard_thread(&server).is_none(), tester_is_root());
}

#[test]
fn guard_of_rootless_server_sleeps_without_boxes() {
    let home = Scratch::new(Identity::Tester).unwrap();
    let starter = Starter { identity: Identity::Unprivileged, binary: place(&home).unwrap() };
    let server = Server::start_as(&starter, TempDir::with_prefix("rw-guard-").unwrap(), &[]);
    // Control: it wakes while there is a box.
    let exec = server.begin("echo here; sleep 600");
    server.wait_for_output(&exec);
    wait_until("the guard to wake", || is_waking(&server));
    assert_eq!(server.ask("DELETE", &format!("/sandbox/execs/{exec}"), None).status, 202);
    wait_until("the guard to sleep", || !is_waking(&server));
}

/// Returns `true` if the guard wakes within [`INTERVALS`].
fn is_waking(server: &Server) -> bool {
    let thread = guard_thread(server).unwrap();
    let switches = || {
        let status = std::fs::read_to_string(thread.join("status")).unwrap();
        status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap().to_owned()
    };
    let before = switches();
    std::thread::sleep(INTERVALS);
    before != switches()
}

/// The guard's thread in `/proc`.
fn guard_thread(server: &Server) -> Option<PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let mut threads = threads.map(|thread| thread.unwrap().path());
    threads.find(|thread| std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.trim() == "counters"))
}
