//! The proxy of a box that serves one exec.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringwall_executor::egress::Proxy;

use super::gate::ExecGate;

#[derive(Debug)]
pub(crate) struct Egress {
    pub(crate) gate: Arc<ExecGate>,
    pub(crate) proxy: Proxy,
    pub(crate) listener: OwnedFd,
}

impl Egress {
    /// Serves until the box has ended and returns the gate with its connections.
    pub(crate) async fn serve(self, over: impl Future<Output = ()>) -> Arc<ExecGate> {
        if let Err(error) = self.proxy.serve(self.listener, over).await {
            // Nobody answers the box then; it has no other way.
            tracing::warn!(exec_id = %self.gate.exec.exec_id, %error, "could not serve the way out of a box");
        }
        self.gate
    }
}
