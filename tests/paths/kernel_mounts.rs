//! Kernel file systems mounted a second time below a directory that a box shows. A chroot's `/proc` shows the processes of the
//! host, with their command lines and environments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tests::support::actor::{Identity, tester_is_root};
use tests::support::scratch::Scratch;

use crate::fixture::{Fixture, TestServer, scratch};
use crate::hostile::Bound;
use crate::uncontrolled::{FULL, system_directory};

/// A kernel file system, mounted until the value is dropped.
struct KernelMount(PathBuf);

impl KernelMount {
    fn new(kind: &str, at: PathBuf) -> Self {
        fs::create_dir_all(&at).unwrap();
        let done = Command::new("mount").args(["-t", kind, kind]).arg(&at).status().unwrap();
        assert!(done.success(), "mount -t {kind} {}", at.display());
        // Control: on the host it is not empty.
        assert_ne!(fs::read_dir(&at).unwrap().count(), 0, "{} is empty", at.display());
        Self(at)
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().unwrap();
    }
}

fn check_empty(fixture: &Fixture, mount: &KernelMount) {
    let told = fixture.run(&format!("ls -A {}", mount.0.display()));
    assert_eq!((&told["status"], &told["stdout"]), (&json!("SUCCEEDED"), &json!("")), "{told}");
}

fn mount_both(system: &Scratch, name: &str) -> [KernelMount; 2] {
    ["proc", "sysfs"].map(|kind| KernelMount::new(kind, system.join(name).join(kind)))
}

pub(crate) fn kernel_mounts_are_empty_while_path_control_is_off(test_server: &TestServer) {
    let Some(system) = system_directory("kernel_mounts_are_empty_while_path_control_is_off") else { return };
    let before = mount_both(&system, "before");
    for environment in [&[][..], &[FULL][..]] {
        let fixture = Fixture::off(test_server, scratch(test_server), &[], environment);
        let after = mount_both(&system, &format!("after{}", environment.len()));
        before.iter().chain(&after).for_each(|mount| check_empty(&fixture, mount));
    }
}

pub(crate) fn kernel_mounts_are_empty_below_an_allowed_path(test_server: &TestServer) {
    let Some(system) = system_directory("kernel_mounts_are_empty_below_an_allowed_path") else { return };
    let before = mount_both(&system, "before");
    let fixture = Fixture::new(test_server);
    let after = mount_both(&system, "after");
    fixture.allow(system.path());
    before.iter().chain(&after).for_each(|mount| check_empty(&fixture, mount));
    // A path inside of a kernel mount is not shown at all.
    let [proc, _] = &after;
    let inside = proc.0.join("self/task");
    fixture.allow(&inside);
    fixture.allow(proc.0.join("sys"));
    let told = fixture.run(&format!("ls -A {}/sys", proc.0.display()));
    assert_ne!(told["status"], "SUCCEEDED", "{told}");
    check_empty(&fixture, proc);
}

/// `/usr` is in every box, also with path control on.
pub(crate) fn kernel_mount_in_usr_made_after_start_is_empty(test_server: &TestServer) {
    if !tester_is_root() {
        println!("kernel_mount_in_usr_made_after_start_is_empty is not tried: only root mounts");
        return;
    }
    let system = Scratch::inside(Path::new("/usr/local/share"), Identity::Tester).unwrap();
    let before = mount_both(&system, "before");
    let fixture = Fixture::new(test_server);
    let after = mount_both(&system, "after");
    before.iter().chain(&after).for_each(|mount| check_absent(&fixture, mount));
}

/// The directory is empty or missing: as root boxes use a copy of the mount of `/usr` that may be older.
fn check_absent(fixture: &Fixture, mount: &KernelMount) {
    let told = fixture.run(&format!("ls -A {}", mount.0.display()));
    assert_eq!(told["stdout"], "", "{told}");
}

/// Mounts propagate to a copy of a shared mount unless the copy is made private.
pub(crate) fn later_mount_does_not_reach_a_running_box(test_server: &TestServer) {
    let Some(system) = system_directory("later_mount_does_not_reach_a_running_box") else { return };
    let top = system.directory("shared").unwrap();
    let bound = Bound::mount(&top.clone(), top.clone());
    assert!(Command::new("mount").arg("--make-shared").arg(&top).status().unwrap().success());
    let copy = Bound::mount(&top, system.join("copy"));
    for name in ["late", "signals"] {
        fs::create_dir(top.join(name)).unwrap();
    }
    fs::write(top.join("signals/begin"), "begun\n").unwrap();
    let fixture = Fixture::uncontrolled(test_server);
    let wait = format!("cat {0}/signals/begin; until test -e {0}/signals/go; do sleep 0.05; done", top.display());
    let command = format!("{wait}; ls -A {}/late; echo over", top.display());
    let body = json!({ "session_id": "s", "command": command, "wait": false });
    let exec = fixture.execute(&fixture.server.token, &body).expect(202)["exec_id"].as_str().unwrap().to_owned();
    fixture.server.wait_for_output(&exec);
    let late = KernelMount::new("proc", top.join("late"));
    // Control: the mount did propagate to the copy on the host.
    assert!(is_proc(&copy.0.join("late")), "mounts do not propagate here");
    fs::write(top.join("signals/go"), "").unwrap();
    let ended = fixture.ended(&exec);
    assert_eq!(ended["stdout"], "begun\nover\n", "{ended}");
    drop((late, bound));
}

fn is_proc(path: &Path) -> bool {
    path.join("self").symlink_metadata().is_ok()
}
