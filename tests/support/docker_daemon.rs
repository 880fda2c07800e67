//! A Docker daemon for tests, which can be stopped, killed and replaced. Needs root.
//!
//! It has its own directories and socket, creates no bridge and changes no firewall rule. The suite of `ringwall-executor`
//! includes this file by path, because that crate must not depend on the crate `tests`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed assumption is a failed test")]

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const GLANCE: Duration = Duration::from_millis(50);
const SOON: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Daemon {
    process: Mutex<Child>,
    directory: TempDir,
    options: Vec<String>,
}

impl Daemon {
    /// Starts a daemon without images. It ends with the calling thread.
    pub fn launch(options: &[String]) -> Self {
        let directory = TempDir::with_prefix("ringwall-test-docker-").unwrap();
        let options = options.to_vec();
        let process = Mutex::new(spawn(directory.path(), &options));
        let daemon = Daemon { process, directory, options };
        // A client that always uses this daemon.
        let script = format!("#!/bin/sh\nexec docker --host unix://{} \"$@\"\n", daemon.path("socket").display());
        std::fs::write(daemon.client(), script).unwrap();
        std::fs::set_permissions(daemon.client(), Permissions::from_mode(0o755)).unwrap();
        daemon.wait_until_ready();
        daemon
    }

    /// A file in the daemon's own directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn client(&self) -> PathBuf {
        self.path("docker")
    }

    /// Runs the client, which must succeed, and returns its output.
    pub fn ask(&self, words: &[&str]) -> String {
        let output = Command::new(self.client()).args(words).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "docker {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The names of all containers, running or not. A container that a killed daemon had partly removed has no name.
    pub fn containers(&self) -> Vec<String> {
        let names = self.ask(&["ps", "--all", "--format={{.Names}}"]);
        names.lines().filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    pub fn wait_until_gone(&self, name: &str) {
        wait_until(&format!("{name} is gone"), || !self.containers().iter().any(|one| one == name));
    }

    pub fn signal(&self, signal: Signal) {
        let id = self.process().id();
        kill_process(Pid::from_raw(i32::try_from(id).unwrap()).unwrap(), signal).unwrap();
    }

    /// Waits for the end of a stopped daemon and starts a new one.
    pub fn replace(&self) {
        let mut process = self.process();
        process.wait().unwrap();
        *process = spawn(self.directory.path(), &self.options);
        drop(process);
        self.wait_until_ready();
    }

    pub fn wait_until_ended(&self) {
        self.process().wait().unwrap();
    }

    fn process(&self) -> MutexGuard<'_, Child> {
        self.process.lock().unwrap()
    }

    fn wait_until_ready(&self) {
        wait_until("the daemon is ready", || {
            let ended = self.process().try_wait().unwrap();
            assert!(ended.is_none(), "dockerd ended: {}", std::fs::read_to_string(self.path("log")).unwrap());
            let mut client = Command::new(self.client());
            client.arg("version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            client.status().is_ok_and(|status| status.success())
        });
    }
}

impl Drop for Daemon {
    /// SIGTERM first, so that the daemon removes its containerd, containers and mounts; then SIGKILL.
    fn drop(&mut self) {
        let process = self.process.get_mut().unwrap();
        if matches!(process.try_wait(), Ok(None)) {
            let pid = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
            let _ = kill_process(pid, Signal::CONT);
            let _ = kill_process(pid, Signal::TERM);
        }
        let began = Instant::now();
        while matches!(process.try_wait(), Ok(None)) && began.elapsed() < SOON {
            std::thread::sleep(GLANCE);
        }
        let _ = process.kill();
        let _ = process.wait();
        // A killed daemon leaves its mounts.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let places = mounts.lines().rev().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(self.directory.path())) {
            let _ = rustix::mount::unmount(place, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

fn spawn(directory: &Path, options: &[String]) -> Child {
    let path = |name: &str| directory.join(name);
    let log = File::options().create(true).append(true).open(path("log")).unwrap();
    // Ends the daemon if this process is killed.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false"]);
    command.args(["--ip-forward=false", "--ip-masq=false", "--log-level=error"]).args(options);
    command.arg("--data-root").arg(path("data")).arg("--exec-root").arg(path("exec"));
    command.arg("--pidfile").arg(path("pid")).arg("--host").arg(format!("unix://{}", path("socket").display()));
    let started = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
    started.expect("setpriv and dockerd are installed: scripts/setup test")
}

/// Polls for a state without an event.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < SOON, "waited too long until {what}");
        std::thread::sleep(GLANCE);
    }
}
