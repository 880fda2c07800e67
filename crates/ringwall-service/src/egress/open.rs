//! The egress proxy of one exec's box, from the start of the box to the record of its connections.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringwall_executor::egress::{Proxy, Resolver};
use ringwall_policy::{Net, NetList};

use super::ask::{Asking, Questions};
use super::gate::ExecGate;
use super::late::Late;
use super::rule::NetRule;
use super::session::SessionWay;
use crate::error::causes;
use crate::exec::lifecycle::Exec;
use crate::service::now;

#[derive(Debug)]
pub(crate) struct WayOut {
    gate: Arc<ExecGate>,
    proxy: Proxy,
    listener: OwnedFd,
}

impl WayOut {
    /// Serves until the box has ended and returns the gate with its connections.
    pub(crate) async fn serve(self, over: impl Future<Output = ()>) -> Arc<ExecGate> {
        if let Err(error) = self.proxy.serve(self.listener, over).await {
            // The box then has no network.
            tracing::warn!(exec_id = %self.gate.exec.exec_id, %error, "could not serve the way out of a box");
        }
        self.gate
    }
}

impl Exec {
    pub(crate) fn way_out(&self, net: &Net, listener: Option<OwnedFd>) -> Option<WayOut> {
        let listener = listener?;
        let lifted = self.service.settings_now().egress.allowed_hosts.clone();
        let gate = Arc::new(self.gate(net, lifted.clone(), None)?);
        let proxy = Proxy::new(gate.clone(), Resolver::system(), lifted);
        Some(WayOut { gate, proxy, listener })
    }

    /// Makes this exec the one that answers for the session box's connections. `None` if the box
    /// has no network.
    pub(crate) fn come_on_duty(&self, way: Option<&SessionWay>, net: &Net) -> Option<Arc<ExecGate>> {
        let way = way?;
        let gate = Arc::new(self.gate(net, way.lifted().clone(), Some(way.late()))?);
        way.put_on_duty(gate.clone());
        Some(gate)
    }

    fn gate(&self, net: &Net, lifted: NetList, late: Option<Arc<Late>>) -> Option<ExecGate> {
        if *net == Net::None {
            return None;
        }
        let session = self.order.session().map(ToString::to_string).or(self.order.conversation_id.clone());
        let asking = Asking {
            exec_id: self.intent.exec_id.clone(),
            user_id: self.order.user_id.clone(),
            agent_id: self.order.agent_id.clone(),
            session_id: session.unwrap_or_default(),
            command: self.order.words.last().cloned().unwrap_or_default(),
            author: self.order.author.clone(),
            policy_version: self.intent.policy_snapshot["version"].as_str().unwrap_or_default().to_owned(),
        };
        let rule = NetRule::new(net.clone(), lifted);
        Some(ExecGate::new(asking, rule, Questions::new(&self.service), late))
    }

    /// Records the connections and returns the first refused host.
    pub(crate) async fn keep_network(&self, gate: &ExecGate) -> Option<String> {
        let owner = (self.order.user_id.clone(), self.order.agent_id.clone());
        let recorded = self.service.inner.store.record_network(&self.intent.exec_id, owner, gate.close(), now());
        if let Err(error) = recorded.await {
            tracing::error!(exec_id = %self.intent.exec_id, error = %causes(&error), "could not record a network");
        }
        gate.refused()
    }
}
