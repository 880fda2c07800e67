//! Counts memory of socket queues that no kernel limit covers.
//!
//! Netlink queues are charged to no cgroup. On cgroup v2 TCP and UDP queues count toward the memory
//! limit; on v1 they have a counter and limit of their own, which the kernel exceeds by at least
//! one segment per connection. Unix sockets and pipes are charged on both versions. Without a
//! cgroup nothing is charged: the tables of the box's network namespace are added up, which do not
//! show Unix sockets.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::roles::watchdog::read;

pub(crate) struct SocketMemory {
    /// The v1 counter of TCP and UDP queues.
    counter: Option<OwnedFd>,
}

impl SocketMemory {
    pub(crate) fn new(counter: Option<OwnedFd>) -> Self {
        SocketMemory { counter }
    }

    /// Bytes held outside of the limit of a memory cgroup.
    pub(crate) fn beside_cgroup(&self, processes: BorrowedFd<'_>) -> u64 {
        self.counter.as_ref().and_then(number).unwrap_or(0) + netlink(processes)
    }

    /// Bytes held in TCP, UDP and netlink sockets by a box without a memory cgroup.
    pub(crate) fn without_cgroup(&self, processes: BorrowedFd<'_>) -> u64 {
        let table = |file: &str| read(processes, OWN_NETWORK, file).unwrap_or_default();
        let in_use = table("sockstat") + &table("sockstat6");
        // To print one of these tables the kernel walks the hash table of the whole machine, so
        // unused protocols are skipped.
        let queues = TABLES.iter().filter(|(key, _)| is_in_use(&in_use, key)).map(|(_, file)| queued(&table(file)));
        queues.sum::<u64>() + netlink(processes)
    }
}

/// PID 1 is in the box's network namespace.
const OWN_NETWORK: &CStr = c"1/net";
const TABLES: [(&str, &str); 4] = [("TCP: ", "tcp"), ("TCP6: ", "tcp6"), ("UDP: ", "udp"), ("UDP6: ", "udp6")];

fn number(file: &OwnedFd) -> Option<u64> {
    let mut buffer = [0; 32];
    let count = rustix::io::pread(file, &mut buffer, 0).ok()?;
    std::str::from_utf8(&buffer[..count]).ok()?.trim().parse().ok()
}

fn netlink(processes: BorrowedFd<'_>) -> u64 {
    read(processes, OWN_NETWORK, "netlink").map_or(0, |table| received(&table))
}

/// Sum of the fifth column (`Rmem`) of /proc/net/netlink; the first line is a header.
fn received(table: &str) -> u64 {
    let bytes = |line: &str| line.split_ascii_whitespace().nth(4)?.parse::<u64>().ok();
    table.lines().skip(1).filter_map(bytes).sum()
}

/// Returns whether a line such as `TCP: inuse 3 …` counts any socket.
fn is_in_use(sockstat: &str, key: &str) -> bool {
    let line = sockstat.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|line| line.split_ascii_whitespace().nth(1)).is_some_and(|count| count != "0")
}

/// Sum of the fifth column (`tx_queue:rx_queue`, hexadecimal) of /proc/net/tcp and similar tables.
fn queued(table: &str) -> u64 {
    let bytes = |line: &str| -> Option<u64> {
        let (sent, received) = line.split_ascii_whitespace().nth(4)?.split_once(':')?;
        Some(u64::from_str_radix(sent, 16).ok()? + u64::from_str_radix(received, 16).ok()?)
    };
    table.lines().skip(1).filter_map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::{is_in_use, queued, received};

    #[test]
    fn netlink_table_gives_the_sum_of_its_receive_queues() {
        let table = "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n\
                     00000000063c8462 0   2397567004 00000000 8386560  0        0     2        0        21\n\
                     00000000c62cac9c 0   4235776385 00000000 211968   0        0     2        0        22\n";
        assert_eq!(received(table), 8_386_560 + 211_968);
        assert_eq!(received(""), 0);
    }

    #[test]
    fn tcp_table_gives_the_sum_of_both_queues() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
                     0: 0100007F:1F90 0100007F:A1B2 01 00000010:00001000 00:00000000 00000000  0  0 1\n\
                     1: 0100007F:1F90 0100007F:A1B3 01 00000000:00000001 00:00000000 00000000  0  0 1\n";
        assert_eq!(queued(table), 0x10 + 0x1000 + 1);
    }

    #[test]
    fn protocol_is_in_use_when_its_line_counts_a_socket() {
        let sockstat = "sockets: used 4\nTCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\nUDP: inuse 1 mem 0\nTCP6: inuse 2\n";
        assert!(!is_in_use(sockstat, "TCP: "));
        assert!(is_in_use(sockstat, "TCP6: ") && is_in_use(sockstat, "UDP: "));
        assert!(!is_in_use(sockstat, "UDP6: "));
    }
}
