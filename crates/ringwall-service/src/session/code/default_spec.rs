//! Derives the kind of warm box that the pool keeps ready: one that can serve a Python exec with
//! default settings.
//!
//! A sample request is decided under the policy. Nothing runs, and the grant is used only to derive
//! the kind.

use ringwall_executor::pool::OnBusy;
use ringwall_executor::warm::WarmSpec;
use ringwall_policy::{Owner, PathAccess, PathControl, Request, Root, SessionMounts, Verdict, Workspace, decide};

use crate::boxes::Language;
use crate::boxes::WORKSPACE;
use crate::error::{Error, causes};
use crate::exec::code::CodeRequest;
use crate::service::Service;
use crate::settings::Settings;

/// Placeholder uid and gid. The owner of the files is not known when a warm box is made, but it is
/// never root.
const SOMEBODY: u32 = 1000;

impl Service {
    /// The kind of warm box to keep ready with these settings; `None` if no warm box could serve
    /// the exec.
    pub(crate) fn default_spec(&self, settings: &Settings) -> Option<WarmSpec> {
        let sort = self.try_default_spec(settings);
        sort.inspect_err(|error| tracing::warn!(error = %causes(error), "no boxes are kept ready")).ok().flatten()
    }

    fn try_default_spec(&self, settings: &Settings) -> Result<Option<WarmSpec>, Error> {
        let run = default_run();
        let mounts = SessionMounts {
            work: self.inner.workspaces_path.clone(),
            owner: Owner::new(SOMEBODY, SOMEBODY)?,
            control: PathControl::On(PathAccess::default()),
            hidden: Vec::new(),
        };
        let request = Request {
            argv: run.words().iter().map(Into::into).collect(),
            env: Default::default(),
            cwd: Some(WORKSPACE.into()),
            root: Root::Host,
            workspace: Workspace::Session(Box::new(mounts)),
            read_only: Vec::new(),
        };
        let layers = run.layers(settings.operator.clone(), true)?;
        Ok(match decide(&request, &layers) {
            Verdict::Allow(grant) => self.inner.backends.executor.warm_spec_for(&grant),
            Verdict::Ask(_) | Verdict::Deny(_) => None,
        })
    }
}

fn default_run() -> CodeRequest {
    CodeRequest {
        session_id: String::new(),
        user_id: None,
        agent_id: None,
        code: String::new(),
        language: Language::default(),
        timeout_s: None,
        backend: None,
        max_memory_mb: None,
        max_output_bytes: None,
        files: Vec::new(),
        context_id: None,
        on_busy: OnBusy::Wait,
    }
}
