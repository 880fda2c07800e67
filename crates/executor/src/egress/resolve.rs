//! Where a name leads: looked up by us, once, in bounded time, and judged before it is connected to.
//!
//! The system's resolver cannot be broken off, so its threads are counted: a box whose names take long to look up waits for
//! its own lookups and for nobody else's.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use policy::NetHost;
use tokio::sync::Semaphore;

const PATIENCE: Duration = Duration::from_secs(10);
/// Lookups of one box at once.
const AT_ONCE: usize = 4;

#[derive(Debug, Clone)]
pub struct Resolver(Source);

#[derive(Debug, Clone)]
enum Source {
    System(Arc<Semaphore>),
    Table(Arc<HashMap<String, Vec<IpAddr>>>),
    /// Another answer each time, and none when they are used up.
    #[cfg(test)]
    Turns(Arc<std::sync::Mutex<std::collections::VecDeque<IpAddr>>>),
}

impl Resolver {
    /// As this machine does it, for one box.
    pub fn system() -> Self {
        Self(Source::System(Arc::new(Semaphore::new(AT_ONCE))))
    }

    /// These names and no others, for tests.
    pub fn of_table(table: HashMap<String, Vec<IpAddr>>) -> Self {
        Self(Source::Table(Arc::new(table)))
    }

    /// These addresses for any name, one at each lookup, as of a name whose owner changes where it leads.
    #[cfg(test)]
    pub(super) fn of_turns(turns: impl IntoIterator<Item = IpAddr>) -> Self {
        Self(Source::Turns(Arc::new(std::sync::Mutex::new(turns.into_iter().collect()))))
    }

    pub(super) async fn look_up(&self, host: &NetHost) -> Result<Vec<IpAddr>, String> {
        let name = match host {
            NetHost::Address(address) => return Ok(vec![*address]),
            NetHost::Name(name) => name.clone(),
        };
        let found = match &self.0 {
            Source::Table(table) => table.get(&name).cloned().unwrap_or_default(),
            #[cfg(test)]
            Source::Turns(turns) => turns.lock().unwrap().pop_front().into_iter().collect(),
            Source::System(threads) => match tokio::time::timeout(PATIENCE, ask(threads.clone(), name)).await {
                Ok(found) => found?,
                Err(_) => return Err(format!("{host} could not be looked up within {} s", PATIENCE.as_secs())),
            },
        };
        if found.is_empty() { Err(format!("{host} has no address")) } else { Ok(found) }
    }
}

async fn ask(threads: Arc<Semaphore>, name: String) -> Result<Vec<IpAddr>, String> {
    let thread = threads.acquire_owned().await.map_err(|error| error.to_string())?;
    // With a dot at its end a name is looked up as it is, and not below a domain of this machine's own; but a table of hosts
    // that people wrote has no such names.
    let spellings = [format!("{name}."), name.clone()];
    let asking = tokio::task::spawn_blocking(move || {
        let look = |name: &String| -> Option<Vec<IpAddr>> {
            let found = (name.as_str(), 0).to_socket_addrs().ok()?;
            Some(found.map(|found: SocketAddr| found.ip()).collect())
        };
        let found = spellings.iter().find_map(look);
        drop(thread);
        found
    });
    let found = asking.await.map_err(|error| error.to_string())?;
    // The system's own words may say which resolver it asks.
    found.ok_or_else(|| format!("{name} could not be looked up"))
}
