//! What a run of Python has where it asks for nothing special: the pool keeps boxes for that ready, before the first comes.
//!
//! Nothing runs here, and the grant is thrown away: it only says which sort of box such a run would be served by.

use ringwall_executor::pool::OnBusy;
use ringwall_executor::warm::SpareSort;
use ringwall_policy::{Owner, PathAccess, PathControl, Request, Root, SessionMounts, Verdict, Workspace, decide};

use crate::boxes::Language;
use crate::boxes::WORKSPACE;
use crate::error::{Error, causes};
use crate::exec::code::CodeRequest;
use crate::service::Service;
use crate::settings::Settings;

/// Whose files a box will show is not settled when it is made; they are somebody's who is not root.
const SOMEBODY: u32 = 1000;

impl Service {
    /// The sort of box that the pool keeps ready with these settings; none where no box made ahead could serve such a run.
    pub(crate) fn usual_sort(&self, settings: &Settings) -> Option<SpareSort> {
        let sort = self.try_usual_sort(settings);
        sort.inspect_err(|error| tracing::warn!(error = %causes(error), "no boxes are kept ready")).ok().flatten()
    }

    fn try_usual_sort(&self, settings: &Settings) -> Result<Option<SpareSort>, Error> {
        let run = usual_run();
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
            Verdict::Allow(grant) => self.inner.makers.executor.sort_for(&grant),
            Verdict::Ask(_) | Verdict::Deny(_) => None,
        })
    }
}

fn usual_run() -> CodeRequest {
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
