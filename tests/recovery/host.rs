//! Checks that killed servers leave no processes, mounts, cgroups or containers on the host.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use tests::support::docker_daemon::Daemon;
use tests::support::host::{descendants, field};
use tests::support::traces::{cgroups_of, describe, living, mounts};

/// Maximum wait: after a kill the kernel and the removal of containers need time.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// Processes of the Docker daemon, which live as long as it.
const OF_DOCKER: [&str; 2] = ["dockerd", "containerd"];

/// The host's mounts before the first kill, and the Docker daemon if the tests use one.
#[derive(Debug)]
pub(crate) struct Host {
    mounts: BTreeSet<String>,
    daemon: Option<Daemon>,
}

impl Host {
    pub(crate) fn new(daemon: Option<Daemon>) -> Self {
        Self { mounts: mounts().unwrap(), daemon }
    }

    pub(crate) fn daemon(&self) -> Option<&Daemon> {
        self.daemon.as_ref()
    }

    /// Waits until only the processes of the running server are left.
    pub(crate) fn assert_clean(&self, dead: &[u32], alive: u32, what: &str) {
        let deadline = Instant::now() + MAX_WAIT;
        loop {
            let found = self.left(dead, Some(alive));
            if found.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: left behind: {found:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The control: the processes of a running server's box are found if the server counts as dead.
    pub(crate) fn assert_found(&self, server: u32) {
        let deadline = Instant::now() + MAX_WAIT;
        let mut found = self.left(&[server], None);
        // The shell has printed its line, but may not have started `sleep` yet.
        while !found.iter().any(|one| one.contains("sleep 600")) {
            assert!(Instant::now() < deadline, "no process of a box: {found:?}");
            std::thread::sleep(Duration::from_millis(5));
            found = self.left(&[server], None);
        }
        // An ordinary user cannot create cgroups.
        let is_root = rustix::process::geteuid().is_root();
        assert!(!is_root || found.iter().any(|one| one.starts_with("cgroup ")), "no cgroup of a box: {found:?}");
    }

    fn left(&self, dead: &[u32], alive: Option<u32>) -> Vec<String> {
        let mut own = alive.map(|alive| descendants(alive).unwrap()).unwrap_or_default();
        own.extend(alive);
        let is_stray = |number: &u32| {
            let is_dockers = || OF_DOCKER.contains(&field(*number, "Name").unwrap_or_default().as_str());
            !own.contains(number) && (self.daemon.is_none() || !is_dockers())
        };
        let mut found: Vec<String> = living().unwrap().into_iter().filter(is_stray).map(describe).collect();
        let mounts = mounts().unwrap();
        let new = mounts.difference(&self.mounts);
        found.extend(new.filter(|line| !self.is_dockers(line)).map(|line| format!("mount {line}")));
        found.extend(cgroups_of(dead).into_iter().map(|path| format!("cgroup {}", path.display())));
        found.extend(self.daemon.iter().flat_map(Daemon::containers).map(|name| format!("container {name}")));
        found
    }

    /// A mount of the daemon, which is removed with its container.
    fn is_dockers(&self, line: &str) -> bool {
        let mount_point = line.split(' ').nth(4).unwrap_or_default();
        self.daemon.as_ref().is_some_and(|daemon| Path::new(mount_point).starts_with(daemon.path("exec")))
    }
}
