//! Resolves names: once per connection, in bounded time.
//!
//! A name is absolute: it is looked up in the machine's /etc/hosts, then in DNS, never with a
//! search domain of this machine appended, because that would be another name than the allowed one.
//! The system's resolver cannot be canceled, so its threads are limited per box: slow lookups delay
//! only the box that requested them.

use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use ringwall_policy::NetHost;
use tokio::sync::Semaphore;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Concurrent lookups per box.
const MAX_LOOKUPS: usize = 4;
const HOSTS: &str = "/etc/hosts";
const MAX_HOSTS: u64 = 1 << 20;

#[derive(Debug, Clone)]
pub struct Resolver(Source);

#[derive(Debug, Clone)]
enum Source {
    System(Arc<Semaphore>),
    Table(Arc<HashMap<String, Vec<IpAddr>>>),
    /// A different answer for each lookup, and no answer after the last.
    #[cfg(test)]
    Turns(Arc<parking_lot::Mutex<std::collections::VecDeque<IpAddr>>>),
}

impl Resolver {
    /// The system's resolver, for one box.
    pub fn system() -> Self {
        Self(Source::System(Arc::new(Semaphore::new(MAX_LOOKUPS))))
    }

    /// Only these names, for tests.
    pub fn of_table(table: HashMap<String, Vec<IpAddr>>) -> Self {
        Self(Source::Table(Arc::new(table)))
    }

    /// These addresses for any name, one per lookup, as with DNS rebinding.
    #[cfg(test)]
    pub(super) fn of_turns(turns: impl IntoIterator<Item = IpAddr>) -> Self {
        Self(Source::Turns(Arc::new(parking_lot::Mutex::new(turns.into_iter().collect()))))
    }

    pub(super) async fn look_up(&self, host: &NetHost) -> Result<Vec<IpAddr>, String> {
        let name = match host {
            NetHost::Address(address) => return Ok(vec![*address]),
            NetHost::Name(name) => name.clone(),
        };
        let found = match &self.0 {
            Source::Table(table) => table.get(&name).cloned().unwrap_or_default(),
            #[cfg(test)]
            Source::Turns(turns) => turns.lock().pop_front().into_iter().collect(),
            Source::System(threads) => match tokio::time::timeout(TIMEOUT, ask(threads.clone(), name)).await {
                Ok(found) => found?,
                Err(_) => return Err(format!("{host} could not be looked up within {} s", TIMEOUT.as_secs())),
            },
        };
        if found.is_empty() { Err(format!("{host} has no address")) } else { Ok(found) }
    }
}

async fn ask(threads: Arc<Semaphore>, name: String) -> Result<Vec<IpAddr>, String> {
    let thread = threads.acquire_owned().await.map_err(|error| error.to_string())?;
    let asked = name.clone();
    let asking = tokio::task::spawn_blocking(move || {
        let found = match in_hosts(&asked) {
            found if !found.is_empty() => Some(found),
            // A trailing dot prevents search domains. The resolver does not find such names in
            // /etc/hosts, so that is read above.
            _ => (format!("{asked}."), 0)
                .to_socket_addrs()
                .ok()
                .map(|found| found.map(|found: SocketAddr| found.ip()).collect()),
        };
        drop(thread);
        found
    });
    let found = asking.await.map_err(|error| error.to_string())?;
    // The system's error text may reveal which resolver it uses.
    found.ok_or_else(|| format!("{name} could not be looked up"))
}

/// Addresses of a name in /etc/hosts; empty if the file cannot be read.
fn in_hosts(name: &str) -> Vec<IpAddr> {
    let mut table = Vec::new();
    let read = std::fs::File::open(HOSTS).and_then(|file| file.take(MAX_HOSTS).read_to_end(&mut table));
    if read.is_err() { Vec::new() } else { find(&String::from_utf8_lossy(&table), name) }
}

fn find(table: &str, name: &str) -> Vec<IpAddr> {
    let lines = table.lines().map(|line| line.split('#').next().unwrap_or_default());
    let entries = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = words.next()?.parse::<IpAddr>().ok()?;
        words.any(|word| word.strip_suffix('.').unwrap_or(word).eq_ignore_ascii_case(name)).then_some(address)
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_file_is_matched_by_whole_names() {
        let table = "127.0.0.1\tlocalhost # here\n\n# 10.0.0.1 gone.corp\n10.0.0.2  Wiki.corp wiki\n10.0.0.3 wiki.corp.\n\
                     fe80::1%lo0 scoped\n::1 localhost\nwords only\n10.0.0.4";
        let found = |name: &str| find(table, name).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(found("localhost"), ["127.0.0.1", "::1"]);
        assert_eq!(found("wiki.corp"), ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(found("wiki"), ["10.0.0.2"]);
        for other in ["gone.corp", "corp", "wiki.cor", "scoped", "here", "words", "10.0.0.4", ""] {
            assert_eq!(found(other), [""; 0], "{other}");
        }
    }

    /// `localhost` is in /etc/hosts of every machine, and is not resolved by DNS with a trailing
    /// dot.
    #[tokio::test]
    async fn name_of_hosts_file_is_found() {
        let found = Resolver::system().look_up(&"localhost".parse().unwrap()).await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback), "{found:?}");
    }
}
