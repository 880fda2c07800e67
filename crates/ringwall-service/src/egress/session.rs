//! The egress proxy of a session box, served for the life of the box.
//!
//! The latest running command or browser action of the session decides about connections and lists
//! them; if none runs, the latest one does. Before the first one every connection is refused.
//! Connections that end after their command are recorded from here.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use ringwall_executor::egress::{Connection, Gate, Proxy, Resolver, Ruling};
use ringwall_ids::{AgentId, ExecId, UserId};
use ringwall_policy::{NetHost, NetList};
use tokio::sync::{Notify, watch};

use super::gate::Notes;
use super::rule::Requester;

/// Late connections are written in batches at this interval, so that a box which connects in a loop
/// does not cause one write per connection.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct SessionProxy {
    gates: Arc<CurrentGate>,
    late: Arc<Late>,
    lifted: NetList,
    over: watch::Receiver<bool>,
}

/// A command or browser action that can decide about connections of a session box.
pub(crate) trait BoxGate: Gate {
    /// True if it has ended. A browser between two actions counts as ended.
    fn is_over(&self) -> bool;
}

/// The running ones and the latest ended one, in order of arrival.
#[derive(Debug, Default)]
struct CurrentGate(Mutex<Vec<Arc<dyn BoxGate>>>);

impl SessionProxy {
    /// Serves until the box has ended; then all its connections are recorded.
    pub(crate) fn open(
        listener: OwnedFd,
        lifted: NetList,
        gone: impl Future<Output = ()> + Send + 'static,
        record: RecordLate,
    ) -> Self {
        let (gates, late) = (Arc::<CurrentGate>::default(), Arc::<Late>::default());
        let proxy = Proxy::new(gates.clone(), Resolver::system(), lifted.clone());
        let (sender, over) = watch::channel(false);
        tokio::spawn(serve(record, proxy, listener, late.clone(), gone, sender));
        Self { gates, late, lifted, over }
    }

    pub(crate) fn add_gate(&self, gate: Arc<dyn BoxGate>) {
        self.gates.take(gate);
    }

    /// Removes a gate whose result has no reader any more.
    pub(crate) fn remove_gate(&self, gate: &Arc<dyn BoxGate>) {
        self.gates.lock().retain(|other| !Arc::ptr_eq(other, gate));
    }

    pub(crate) fn late(&self) -> Arc<Late> {
        self.late.clone()
    }

    pub(crate) fn lifted(&self) -> &NetList {
        &self.lifted
    }

    /// Waits until the box has ended and its connections are recorded.
    pub(crate) async fn closed(&self) {
        let _ = self.over.clone().wait_for(|over| *over).await;
    }
}

async fn serve(
    record: RecordLate,
    proxy: Proxy,
    listener: OwnedFd,
    late: Arc<Late>,
    gone: impl Future<Output = ()>,
    over: watch::Sender<bool>,
) {
    let serving = proxy.serve(listener, gone);
    tokio::pin!(serving);
    loop {
        let is_over = tokio::select! {
            biased;
            served = &mut serving => {
                if let Err(error) = served {
                    // The box then has no network.
                    tracing::warn!(%error, "could not serve the egress proxy of a session box");
                }
                true
            }
            () = late.due() => false,
        };
        record(late.take()).await;
        if is_over {
            break;
        }
    }
    over.send_replace(true);
}

impl CurrentGate {
    fn take(&self, gate: Arc<dyn BoxGate>) {
        let mut all = self.lock();
        all.retain(|other| !Arc::ptr_eq(other, &gate));
        let last = all.pop();
        all.retain(|other| !other.is_over());
        all.extend(last);
        all.push(gate);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<dyn BoxGate>>> {
        self.0.lock()
    }
}

impl Gate for CurrentGate {
    fn judge(&self, _: NetHost, _: u16) -> BoxFuture<'_, Ruling> {
        Box::pin(std::future::ready(Ruling::Refused("no command has used the box yet".to_owned())))
    }

    fn note(&self, connection: Connection) {
        tracing::warn!(?connection, "a box asked for a connection before its first command");
    }

    fn current(&self) -> Option<Arc<dyn Gate>> {
        let all = self.lock();
        let found = all.iter().rfind(|gate| !gate.is_over()).or(all.last());
        found.cloned().map(|gate| gate as Arc<dyn Gate>)
    }
}

/// Connections of a session box that ended after the exec that allowed them.
#[derive(Debug)]
pub(crate) struct LateNetwork {
    pub(crate) exec_id: ExecId,
    pub(crate) owner: (UserId, AgentId),
    pub(crate) notes: Notes,
}

/// Records late connections. Must hold no strong reference to the server.
pub(crate) type RecordLate = Box<dyn Fn(Vec<LateNetwork>) -> BoxFuture<'static, ()> + Send + Sync>;

/// Collects the connections of a session box that end after their exec.
#[derive(Debug, Default)]
pub(crate) struct Late {
    held: Mutex<BTreeMap<ExecId, LateNetwork>>,
    added: Notify,
}

impl Late {
    pub(super) fn add(&self, exec: &Requester, connection: Connection) {
        let mut held = self.held.lock();
        let owner = || (exec.user_id.clone(), exec.agent_id.clone());
        let new = || LateNetwork { exec_id: exec.exec_id.clone(), owner: owner(), notes: Notes::default() };
        held.entry(exec.exec_id.clone()).or_insert_with(new).notes.add(connection);
        self.added.notify_one();
    }

    /// Returns one interval after something was added.
    pub(super) async fn due(&self) {
        self.added.notified().await;
        tokio::time::sleep(WRITE_INTERVAL).await;
    }

    /// Everything that was added since the last call.
    pub(super) fn take(&self) -> Vec<LateNetwork> {
        std::mem::take(&mut *self.held.lock()).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Debug)]
    struct One(&'static str, AtomicBool);

    impl Gate for One {
        fn judge(&self, _: NetHost, _: u16) -> BoxFuture<'_, Ruling> {
            Box::pin(std::future::ready(Ruling::Refused(self.0.to_owned())))
        }

        fn note(&self, _: Connection) {}
    }

    impl BoxGate for One {
        fn is_over(&self) -> bool {
            self.1.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn latest_running_gate_decides_else_latest_gate() {
        let gates = CurrentGate::default();
        let [process, exec, browser] =
            ["process", "exec", "browser"].map(|name| Arc::new(One(name, AtomicBool::new(false))));
        let current = async || match gates.current() {
            None => "nobody".to_owned(),
            Some(gate) => match gate.judge("a.com".parse().unwrap(), 80).await {
                Ruling::Allowed(who) | Ruling::Refused(who) => who,
            },
        };
        let over = |gate: &One, is_over| gate.1.store(is_over, Ordering::Relaxed);
        assert_eq!(current().await, "nobody");
        gates.take(process.clone());
        gates.take(exec.clone());
        assert_eq!(current().await, "exec");
        over(&exec, true);
        assert_eq!(current().await, "process", "it still runs");
        gates.take(browser.clone());
        assert_eq!(current().await, "browser");
        over(&browser, true);
        over(&process, true);
        assert_eq!(current().await, "browser", "none runs, and it was the last");
        // The next action of the same browser, after a command has run.
        let other: Arc<One> = Arc::new(One("other", AtomicBool::new(true)));
        gates.take(other);
        assert_eq!(current().await, "other");
        over(&browser, false);
        assert_eq!(current().await, "browser");
        gates.take(browser.clone());
        assert_eq!(gates.lock().len(), 2, "ended gates are dropped");
        let gone: Arc<dyn BoxGate> = browser;
        gates.lock().retain(|other| !Arc::ptr_eq(other, &gone));
        assert_eq!(current().await, "other", "gets the connections of its box after its end");
    }
}
