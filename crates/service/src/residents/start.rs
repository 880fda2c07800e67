//! An exec in its session's box: the box is found or made, and the command starts there.
//!
//! The box has a grant of its own, as wide as the settings let any code of the session be; what the exec was granted is
//! held against it once more, by the box.

use std::sync::Arc;

use executor::docker::Runtime;
use executor::resident::{Given, Resident, RunningVisit, VisitOptions};
use policy::{Grant, Isolation, Request, Root, Verdict, decide, profile};

use super::process::ProcessReins;
use crate::code::{CodeOrder, Input};
use crate::order::layers;
use crate::run_exec::Exec;

/// What the box's own command is called, before it is the agent.
const AGENT: &str = "ringwall-agent";

/// A command in its session's box, which stays as long as this does.
#[derive(Debug)]
pub(crate) struct OnVisit {
    pub(crate) visit: RunningVisit,
    _resident: Arc<Resident>,
}

impl Exec {
    pub(crate) async fn start_in_session(&self, grant: Grant, code: &CodeOrder) -> Result<OnVisit, executor::Error> {
        let (boxes, isolation) = (&self.service.inner.session_boxes, code.home);
        let resident = boxes.acquire(&code.place.name, isolation, self.make_session_box(&grant, isolation)).await?;
        let is_open = code.stdin == Input::Open;
        let stdin = if is_open || !code.input().is_empty() { Given::Yes } else { Given::No };
        let mut visit = resident.visit(grant, VisitOptions { stdin, ..VisitOptions::default() }).await?;
        if is_open {
            let stdin = visit.streams.as_mut().and_then(|streams| streams.stdin.take());
            self.live.set_process(ProcessReins::new(visit.handle(), stdin));
        }
        Ok(OnVisit { visit, _resident: resident })
    }

    async fn make_session_box(&self, visitor: &Grant, isolation: Isolation) -> Result<Resident, executor::Error> {
        let inner = &self.service.inner;
        let request = Request {
            argv: vec![AGENT.into()],
            env: Default::default(),
            cwd: None,
            root: visitor.root().clone(),
            workspace: visitor.workspace().clone(),
            read_only: Vec::new(),
        };
        let operator = self.service.settings_now().operator.clone();
        let Verdict::Allow(grant) = decide(&request, &layers(profile::FILES, operator, Vec::new())) else {
            return Err(executor::Error::NotForThisBox { what: "the files" });
        };
        let name = format!("box-{}", self.intent.exec_id);
        match (isolation, grant.root()) {
            (Isolation::Native, _) => inner.executor.start_resident(grant).await,
            (Isolation::Gvisor, Root::Host | Root::Image(_)) => inner.executor.start_resident_on_gvisor(grant).await,
            (Isolation::Gvisor, Root::Docker(_)) => inner.docker.start_resident(grant, &name, Runtime::Gvisor).await,
            (Isolation::Docker, _) => inner.docker.start_resident(grant, &name, Runtime::Usual).await,
        }
    }
}
