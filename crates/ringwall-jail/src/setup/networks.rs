//! Network namespaces that the spawner keeps: a box is born in one that an earlier box of the same user had.
//!
//! Making one and taking it apart is the dearest thing about a box, a fifth of all its processor time. It goes from box to
//! box only if nobody could tell: the earlier box is dead to its last process and belonged to the same user, has sent
//! nothing through it, not even to itself (so no port waits and nothing was counted), and has left no socket in it to
//! anybody (another box of the user's may have been handed one). No box owns it: it belongs to the host, so that
//! nothing in it can be changed from inside. Only a spawner that is root can do this.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::setup::network;

/// More than run at once in most servers.
const MAX_NETWORKS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Networks {
    /// With the user on the host for whom each is; the one given back last comes last.
    free: Vec<(u32, OwnedFd)>,
}

impl Networks {
    /// Moves this process, and so whoever is born next, into a namespace for a box of this user.
    pub(crate) fn enter(&mut self, user: u32) -> Result<OwnedFd> {
        match self.free.iter().rposition(|(owner, _)| *owner == user) {
            Some(found) => {
                let (_, namespace) = self.free.remove(found);
                enter(&namespace)?;
                Ok(namespace)
            }
            None => {
                network::open()?;
                let flags = OFlags::RDONLY | OFlags::CLOEXEC;
                rustix::fs::open(c"/proc/self/ns/net", flags, Mode::empty())
            }
        }
    }

    /// Takes back what a box had that is gone; what it has used is let go of.
    pub(crate) fn take_back(&mut self, user: u32, namespace: OwnedFd) {
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

/// Whether this process's namespace has no socket in it, and nothing has gone through its only interface.
fn is_untouched() -> Result<bool> {
    Ok(read(c"/proc/self/net/sockstat", has_no_socket)? && read(c"/proc/self/net/dev", counts_nothing)?)
}

fn read(file: &CStr, judge: impl FnOnce(&str) -> bool) -> Result<bool> {
    let file = rustix::fs::open(file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut buffer = [0; 1024];
    let count = rustix::io::read(&file, &mut buffer)?;
    Ok(judge(std::str::from_utf8(&buffer[..count]).map_err(|_| Errno::BADMSG)?))
}

/// Sockets of every family, wherever the process is that holds them.
fn has_no_socket(text: &str) -> bool {
    text.lines().next() == Some("sockets: used 0")
}

/// Two lines of headings, then the interfaces: there must be one, and every number beside it be zero.
fn counts_nothing(text: &str) -> bool {
    let mut interfaces = text.lines().skip(2);
    let only = interfaces.next().filter(|_| interfaces.next().is_none());
    only.and_then(|line| line.split_once(':')).is_some_and(|(name, numbers)| {
        name.trim() == "lo" && numbers.split_ascii_whitespace().all(|number| number == "0")
    })
}

#[cfg(test)]
mod tests {
    use super::{counts_nothing, has_no_socket};

    #[test]
    fn one_socket_is_enough() {
        assert!(has_no_socket("sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\n"));
        assert!(!has_no_socket("sockets: used 1\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\n"));
        assert!(!has_no_socket(""));
    }

    const HEADINGS: &str =
        "Inter-|   Receive                |  Transmit\n face |bytes    packets errs |bytes    packets\n";

    #[test]
    fn a_namespace_with_any_traffic_is_told_from_one_without() {
        let with = |line: &str| format!("{HEADINGS}{line}");
        assert!(counts_nothing(&with("    lo:       0       0    0       0       0\n")));
        for touched in [
            "    lo:      84       1    0      84       1\n",
            "    lo:       0       0    0       0       1\n",
            "    lo:       0       0\n  eth0:       0       0\n",
            "  eth0:       0       0    0       0       0\n",
            "",
        ] {
            assert!(!counts_nothing(&with(touched)), "{touched}");
        }
    }
}
