//! Network namespaces that the spawner reuses for later boxes of the same host uid.
//!
//! Creating and destroying one takes a fifth of a box's CPU time. A namespace is reused only if the
//! next box cannot notice: every process of the earlier box is dead, no packet was sent (not even
//! over loopback, so no port is in TIME_WAIT and all counters are 0), and no socket in it is open
//! anywhere (a box may pass one to another box of its user). The namespace is owned by the host's
//! user namespace, so that no box has capabilities over it. Requires a spawner that runs as root.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::setup::network;

/// More than run at once on most servers.
const MAX_NETWORKS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct NetworkPool {
    /// Namespaces with the host uid of their boxes; the most recently returned is last.
    free: Vec<(u32, OwnedFd)>,
}

impl NetworkPool {
    /// Moves this process, and so the next child, into a namespace for a box of this user.
    pub(crate) fn enter(&mut self, user: u32) -> Result<OwnedFd> {
        match self.free.iter().rposition(|(owner, _)| *owner == user) {
            Some(found) => {
                let (_, namespace) = self.free.remove(found);
                enter(&namespace)?;
                Ok(namespace)
            }
            None => {
                network::create()?;
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                rustix::fs::open(c"/proc/self/ns/net", flags, Mode::empty())
            }
        }
    }

    /// Keeps the namespace of an ended box for reuse, if it is unused; otherwise closes it.
    pub(crate) fn put_back(&mut self, user: u32, namespace: OwnedFd) {
        if enter(&namespace).is_ok() && is_untouched().unwrap_or(false) {
            if self.free.len() >= MAX_NETWORKS {
                self.free.remove(0);
            }
            self.free.push((user, namespace));
        }
    }
}

fn enter(namespace: &OwnedFd) -> Result<()> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Returns whether no socket is open in the current namespace and its only interface has counted no
/// traffic.
fn is_untouched() -> Result<bool> {
    Ok(read(c"/proc/self/net/sockstat", has_no_socket)? && read(c"/proc/self/net/dev", has_no_traffic)?)
}

fn read(file: &CStr, judge: impl FnOnce(&str) -> bool) -> Result<bool> {
    let file = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [0; 1024];
    let count = rustix::io::read(&file, &mut buffer)?;
    Ok(judge(std::str::from_utf8(&buffer[..count]).map_err(|_| Errno::BADMSG)?))
}

/// The count includes sockets of all families, held by any process.
fn has_no_socket(text: &str) -> bool {
    text.lines().next() == Some("sockets: used 0")
}

/// Two header lines, then one line per interface: it must be `lo` alone, with all counters 0.
fn has_no_traffic(text: &str) -> bool {
    let mut interfaces = text.lines().skip(2);
    let only = interfaces.next().filter(|_| interfaces.next().is_none());
    only.and_then(|line| line.split_once(':')).is_some_and(|(name, numbers)| {
        name.trim() == "lo" && numbers.split_ascii_whitespace().all(|number| number == "0")
    })
}

#[cfg(test)]
mod tests {
    use super::{has_no_socket, has_no_traffic};

    #[test]
    fn namespace_with_a_socket_is_in_use() {
        assert!(has_no_socket("sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\n"));
        assert!(!has_no_socket("sockets: used 1\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\n"));
        assert!(!has_no_socket(""));
    }

    const HEADINGS: &str =
        "Inter-|   Receive                |  Transmit\n face |bytes    packets errs |bytes    packets\n";

    #[test]
    fn namespace_with_traffic_or_another_interface_is_in_use() {
        let with = |line: &str| format!("{HEADINGS}{line}");
        assert!(has_no_traffic(&with("    lo:       0       0    0       0       0\n")));
        for touched in [
            "    lo:      84       1    0      84       1\n",
            "    lo:       0       0    0       0       1\n",
            "    lo:       0       0\n  eth0:       0       0\n",
            "  eth0:       0       0    0       0       0\n",
            "",
        ] {
            assert!(!has_no_traffic(&with(touched)), "{touched}");
        }
    }
}
