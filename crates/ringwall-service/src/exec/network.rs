//! The network of an exec: its gate, the egress proxy of its box, and the record of its
//! connections.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringwall_executor::egress::{Proxy, Resolver};
use ringwall_ids::ExecId;
use ringwall_policy::{Net, NetList, NetMode};

use crate::auth::principal::Principal;
use crate::egress::{Egress, ExecGate, Late, LateNetwork, NetRule, NetworkView, RecordLate, Requester, SessionProxy};
use crate::error::{Error, causes};
use crate::exec::lifecycle::Exec;
use crate::service::Service;
use crate::time::now;

impl Exec {
    pub(crate) fn proxy_socket(&self, net: &Net, listener: Option<OwnedFd>) -> Option<Egress> {
        let listener = listener?;
        let lifted = self.service.settings_now().egress.allowed_hosts.clone();
        let gate = Arc::new(self.gate(net, lifted.clone(), None)?);
        let proxy = Proxy::new(gate.clone(), Resolver::system(), lifted);
        Some(Egress { gate, proxy, listener })
    }

    /// Makes the gate of this exec decide on the session box's connections. `None` if the box has
    /// no network.
    pub(crate) fn open_gate(&self, proxy: Option<&SessionProxy>, net: &Net) -> Option<Arc<ExecGate>> {
        let proxy = proxy?;
        let gate = Arc::new(self.gate(net, proxy.lifted().clone(), Some(proxy.late()))?);
        proxy.add_gate(gate.clone());
        Some(gate)
    }

    /// The origin of questions that this exec causes.
    pub(crate) fn requester(&self) -> Requester {
        let session = self.spec.session().map(ToString::to_string).or(self.spec.conversation_id.clone());
        Requester {
            exec_id: self.intent.exec_id.clone(),
            user_id: self.spec.user_id.clone(),
            agent_id: self.spec.agent_id.clone(),
            session_id: session.unwrap_or_default(),
            command: self.spec.words.last().cloned().unwrap_or_default(),
            author: self.spec.author.clone(),
            policy_version: self.intent.policy_snapshot["version"].as_str().unwrap_or_default().to_owned(),
        }
    }

    fn gate(&self, net: &Net, lifted: NetList, late: Option<Arc<Late>>) -> Option<ExecGate> {
        if *net == Net::None {
            return None;
        }
        let rule = NetRule::new(net.clone(), lifted);
        Some(ExecGate::new(self.requester(), rule, self.service.host_questions(), late))
    }

    /// Records the connections and returns the first refused host.
    pub(crate) async fn record_connections(&self, gate: &ExecGate) -> Option<String> {
        let owner = (self.spec.user_id.clone(), self.spec.agent_id.clone());
        let recorded = self.service.inner.store.record_network(&self.intent.exec_id, owner, gate.close(), now());
        if let Err(error) = recorded.await {
            tracing::error!(exec_id = %self.intent.exec_id, error = %causes(&error), "could not record a network");
        }
        gate.refused()
    }
}

impl Service {
    /// The network mode of the settings; a skill or a request may narrow it.
    pub fn net_mode(&self) -> NetMode {
        self.settings_now().net.mode
    }

    /// Empty while the exec runs, and if its box had no network.
    pub async fn exec_network(&self, by: &Principal, exec_id: &ExecId) -> Result<NetworkView, Error> {
        self.recorded(by, exec_id).await?;
        let Some(found) = self.inner.store.network(exec_id).await? else {
            return Ok(NetworkView { connections: Vec::new(), left_out: 0 });
        };
        let connections = serde_json::from_value(found.connections);
        let connections =
            connections.map_err(|error| Error::runtime("read what an exec asked of the network", &error))?;
        Ok(NetworkView { connections, left_out: found.left_out })
    }

    /// Returns the callback that records connections a session box attempts after the exec has
    /// ended. It holds a weak reference, so it does not keep the server alive.
    pub(crate) fn record_late_networks(&self) -> RecordLate {
        let inner = Arc::downgrade(&self.inner);
        Box::new(move |networks| {
            let inner = inner.upgrade();
            Box::pin(async move {
                let Some(inner) = inner else { return };
                for LateNetwork { exec_id, owner, notes } in networks {
                    let recorded = inner.store.record_network(&exec_id, owner, notes.to_record(), now());
                    if let Err(error) = recorded.await {
                        tracing::error!(%exec_id, error = %causes(&error), ?notes, "could not record a network");
                    }
                }
            })
        })
    }
}
