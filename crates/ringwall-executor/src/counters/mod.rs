//! Kernel counters per host uid instead of per box: which of them a box shares with others, and the
//! [`Guard`] that ends boxes which fill them.
//!
//! As root the boxes of one user and agent have one host uid, so they share most of these counters
//! with each other only. A rootless box has the server's uid: what it holds is missing to the server
//! and to all other boxes. A server cannot work without `fs.epoll.max_user_watches`, because every
//! accepted connection needs a watch.

mod count;
mod guard;
mod register;

use ringwall_jail::plan::Privilege;
use ringwall_jail::report::{Protection, ProtectionName};
use rustix::process::{Resource, getrlimit};

pub(crate) use guard::{Guard, Watched};
pub(crate) use register::retry;
pub use register::{Acceptor, register};

/// A hundred times more than node, java and Chromium use together.
const MAX_WATCHES: u64 = 65_536;
/// If the user has few watches, one box may hold one of so many parts.
const SHARE_OF_WATCHES: u64 = 16;
const MAX_PASSED: u64 = 1024;
/// The kernel refuses to pass descriptors when the user has more unreceived ones than the sender's
/// RLIMIT_NOFILE. One box may hold one of so many parts of its own limit.
const SHARE_OF_OPEN_FILES: u64 = 4;

/// The caps of a rootless box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    /// `fs.epoll.max_user_watches`: the maximum of all processes of the user together.
    pub(crate) user_watches: u64,
    pub(crate) watches: u64,
    /// The hard RLIMIT_NOFILE of this process, which no box exceeds.
    pub(crate) open_files: u64,
}

impl Caps {
    pub(crate) fn of_machine() -> Self {
        let watches = std::fs::read_to_string("/proc/sys/fs/epoll/max_user_watches").ok();
        let watches = watches.and_then(|watches| watches.trim().parse().ok()).unwrap_or(u64::MAX);
        Self::of(watches, getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX))
    }

    pub(crate) fn of(user_watches: u64, open_files: u64) -> Self {
        Caps { user_watches, watches: (user_watches / SHARE_OF_WATCHES).min(MAX_WATCHES), open_files }
    }

    /// The cap on unreceived descriptors of a box with this limit of open files.
    pub(crate) fn passed(&self, open_files: u64) -> u64 {
        (open_files.min(self.open_files) / SHARE_OF_OPEN_FILES).min(MAX_PASSED)
    }
}

/// The protections of a native box, one per counter. `open_files` is its RLIMIT_NOFILE.
pub(crate) fn protections(privilege: Privilege, caps: Caps, open_files: u64) -> Vec<Protection> {
    use ProtectionName::*;
    // The kernel counts these two also for the maker of the box's user namespace: the server's user.
    let for_maker = |name, limit: &str| {
        Protection::partial(name, format!("also counted for the user who runs Ringwall; a box has at most {limit}"))
    };
    let mut found = vec![
        for_maker(InotifyInstances, "32 instances and 65,536 watches"),
        for_maker(PendingSignals, "1,024 queued signals"),
    ];
    match privilege {
        Privilege::Root => {
            found.extend([EpollWatches, PipePages, PassedDescriptors, UserProcesses].map(Protection::enforced));
        }
        Privilege::Rootless => {
            let shared = "the box has the uid of the user who runs Ringwall";
            found.push(Protection::partial(
                EpollWatches,
                format!(
                    "{shared}; it is ended within about a second when it holds more than {} epoll watches, or when it \
                     holds the most and the user has none left",
                    caps.watches
                ),
            ));
            found.push(Protection::partial(
                PipePages,
                format!("{shared}; past fs.pipe-user-pages-soft new pipes of all boxes hold 8 KB"),
            ));
            found.push(Protection::partial(
                PassedDescriptors,
                format!(
                    "{shared}; it is ended within about a second when more than {} descriptors sent in it are not \
                     received",
                    caps.passed(open_files)
                ),
            ));
            found.push(Protection::partial(
                UserProcesses,
                format!("{shared}; all boxes share its RLIMIT_NPROC, of which the server keeps up to 256"),
            ));
        }
    }
    found
}

/// The protections of a container. It is in the host's user namespace and has the uid of its files:
/// as root that of the user and agent, otherwise the server's.
pub(crate) fn protections_of_container(privilege: Privilege) -> Vec<Protection> {
    ALL.map(|name| match privilege {
        Privilege::Root => Protection::enforced(name),
        Privilege::Rootless => Protection::partial(name, "the container has the uid of the user who runs Ringwall"),
    })
    .into()
}

/// The protections of a gVisor box. The counted objects belong to gVisor's kernel, except processes,
/// which are the host's.
pub(crate) fn protections_of_gvisor(privilege: Privilege) -> Vec<Protection> {
    ALL.map(|name| match (name, privilege) {
        (ProtectionName::UserProcesses, Privilege::Rootless) => {
            Protection::partial(name, "the processes of gVisor's kernel count for the user who runs Ringwall")
        }
        _ => Protection::enforced(name),
    })
    .into()
}

const ALL: [ProtectionName; 6] = [
    ProtectionName::EpollWatches,
    ProtectionName::InotifyInstances,
    ProtectionName::PendingSignals,
    ProtectionName::PipePages,
    ProtectionName::PassedDescriptors,
    ProtectionName::UserProcesses,
];

#[cfg(test)]
mod tests {
    use ringwall_jail::report::ProtectionState;

    use super::*;

    #[test]
    fn every_counter_has_one_state_in_both_modes() {
        for privilege in [Privilege::Root, Privilege::Rootless] {
            for mut found in [
                protections(privilege, Caps::of(1 << 20, 4096), 4096),
                protections_of_container(privilege),
                protections_of_gvisor(privilege),
            ] {
                found.sort_by_key(|protection| protection.name);
                assert_eq!(found.iter().map(|protection| protection.name).collect::<Vec<_>>(), ALL);
            }
        }
    }

    #[test]
    fn rootless_box_has_no_counter_of_its_own() {
        let found = protections(Privilege::Rootless, Caps::of(1 << 20, 4096), 4096);
        assert!(found.iter().all(|protection| protection.state == ProtectionState::Partial), "{found:?}");
    }

    #[test]
    fn small_machine_lowers_cap_on_watches() {
        assert_eq!(Caps::of(5_000_000, 4096).watches, MAX_WATCHES);
        assert_eq!(Caps::of(160_000, 4096).watches, 10_000);
    }

    #[test]
    fn box_may_hold_a_quarter_of_its_open_files_unreceived() {
        for (of_process, of_box, expected) in [
            (1 << 20, 4096, 1024),
            (1 << 20, 2399, 599),
            (1 << 20, 256, 64),
            (1024, 4096, 256),
            (u64::MAX, 1 << 20, 1024),
        ] {
            assert_eq!(Caps::of(1 << 20, of_process).passed(of_box), expected, "{of_process} {of_box}");
        }
    }
}
