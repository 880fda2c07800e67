//! Execs that have not ended, as long as this process knows them: where they stand, what they print, and a bell.
//!
//! The record is the truth; this is what makes waiting for it cheap. An exec is here from before its intent is recorded
//! until after its ending is, so that whoever does not find it here finds its ending there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use ringwall_record::{AgentId, ExecId, SessionKey, Status, UserId};
use ringwall_workspace::{OutputFile, Stream};
use tokio::sync::watch;

use crate::boxes::ProcessReins;
use crate::boxes::SessionBox;
use crate::error::Error;
use crate::exec::view::ExecView;

/// Where an exec stands.
#[derive(Debug, Clone)]
pub(crate) enum Stage {
    Intending,
    At(Status),
    /// With its ending, unless whoever ran it is gone without one.
    Over(Option<Arc<ExecView>>),
}

/// Who ends an exec before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancellation {
    ByCaller,
    /// Whoever sat at its terminal is gone.
    HungUp,
    ServerStops,
}

#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) exec_id: ExecId,
    pub(crate) user_id: UserId,
    pub(crate) agent_id: AgentId,
    /// The caller and the key that they gave to make it happen once.
    key: Option<(String, String)>,
    /// In whose files it works, where that is a session.
    pub(crate) session: Option<String>,
    stage: watch::Sender<Stage>,
    cancellation: watch::Sender<Option<Cancellation>>,
    output: OnceLock<[OutputFile; 2]>,
    truncated: [AtomicBool; 2],
    /// By what it is reached, where it is a process of a session's box.
    process: OnceLock<ProcessReins>,
    company: Company,
    /// The session's box that it runs in, where it runs in one.
    home: OnceLock<Weak<SessionBox>>,
}

/// Whether somebody waits for an exec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    Awaited,
    /// A process or a terminal of a session's box, which lasts until it ends or is ended.
    Alone,
}

impl Live {
    pub(crate) fn new(
        exec_id: ExecId,
        user_id: UserId,
        agent_id: AgentId,
        key: Option<(String, String)>,
        session: Option<String>,
        company: Company,
    ) -> Self {
        Self {
            exec_id,
            user_id,
            agent_id,
            key,
            session,
            stage: watch::Sender::new(Stage::Intending),
            cancellation: watch::Sender::new(None),
            output: OnceLock::new(),
            truncated: Default::default(),
            process: OnceLock::new(),
            company,
            home: OnceLock::new(),
        }
    }

    /// Rings at every change of the stage, and whenever something was printed.
    pub(crate) fn watch(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    pub(crate) fn ring(&self) {
        self.stage.send_modify(|_| {});
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.stage.borrow(), Stage::Over(_))
    }

    pub(crate) async fn over(&self) -> Option<Arc<ExecView>> {
        let mut stage = self.watch();
        match stage.wait_for(|stage| matches!(stage, Stage::Over(_))).await.as_deref() {
            Ok(Stage::Over(view)) => view.clone(),
            Ok(Stage::Intending | Stage::At(_)) | Err(_) => None,
        }
    }

    /// Comes back when its intent is on record, or is not going to be.
    pub(crate) async fn intended(&self) {
        let mut stage = self.watch();
        // The sender is our own, so there is always somebody to wait for.
        let _ = stage.wait_for(|stage| !matches!(stage, Stage::Intending)).await;
    }

    /// The first word counts: what ends an exec is not changed by whoever comes later.
    pub(crate) fn cancel(&self, cancellation: Cancellation) {
        self.cancellation.send_if_modified(|current| {
            let is_first = current.is_none();
            current.get_or_insert(cancellation);
            is_first
        });
    }

    pub(crate) fn cancellation(&self) -> Option<Cancellation> {
        *self.cancellation.borrow()
    }

    pub(crate) async fn cancelled(&self) -> Cancellation {
        let mut cancellation = self.cancellation.subscribe();
        let said = cancellation.wait_for(Option::is_some).await.ok().and_then(|said| *said);
        match said {
            Some(cancellation) => cancellation,
            // The sender is our own, so this is never reached; waiting is the answer that cancels nothing.
            None => std::future::pending().await,
        }
    }

    pub(crate) fn set_output(&self, stdout: OutputFile, stderr: OutputFile) {
        let _ = self.output.set([stdout, stderr]);
    }

    pub(crate) fn output(&self, stream: Stream) -> Option<&OutputFile> {
        self.output.get().map(|files| &files[index(stream)])
    }

    pub(crate) fn set_process(&self, reins: ProcessReins) {
        let _ = self.process.set(reins);
    }

    pub(crate) fn process(&self) -> Option<&ProcessReins> {
        self.process.get()
    }

    pub(crate) fn set_home(&self, home: &Arc<SessionBox>) {
        let _ = self.home.set(Arc::downgrade(home));
    }

    /// The box that it is kept in, as long as there is that.
    pub(crate) fn home(&self) -> Option<Arc<SessionBox>> {
        self.home.get()?.upgrade()
    }

    pub(crate) fn company(&self) -> Company {
        self.company
    }

    /// Whether it will not end by itself while nobody does anything about it.
    pub(crate) fn lasts(&self) -> bool {
        self.company == Company::Alone || self.home().is_some_and(|home| home.resident.is_paused())
    }

    pub(crate) fn is_in(&self, session: &SessionKey) -> bool {
        (&self.user_id, &self.agent_id) == (&session.user_id, &session.agent_id)
            && self.session.as_ref() == Some(&session.session_id)
    }

    pub(crate) fn set_truncated(&self, stream: Stream) {
        self.truncated[index(stream)].store(true, Ordering::Release);
    }

    pub(crate) fn is_truncated(&self, stream: Stream) -> bool {
        self.truncated[index(stream)].load(Ordering::Acquire)
    }
}

const fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// All of them, and whether more may come.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    held: Mutex<Held>,
    /// Rings when one goes.
    gone: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Held {
    live: HashMap<ExecId, Arc<Live>>,
    is_closed: bool,
}

/// Keeps an exec in the registry; whatever way its task ends, nobody waits for it for ever.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    live: Arc<Live>,
}

impl Registry {
    pub(crate) fn register(self: &Arc<Self>, live: Arc<Live>) -> Result<Registration, Error> {
        let mut held = self.lock();
        if held.is_closed {
            return Err(Error::Stopping);
        }
        held.live.insert(live.exec_id.clone(), live.clone());
        Ok(Registration { registry: self.clone(), live })
    }

    pub(crate) fn find(&self, exec_id: &ExecId) -> Option<Arc<Live>> {
        self.lock().live.get(exec_id).cloned()
    }

    /// One that a caller asks for with this key, and of which it is not yet known whether it will be on record.
    pub(crate) fn find_intending(&self, caller: &str, key: &str) -> Option<Arc<Live>> {
        let held = self.lock();
        let is_of_key = |live: &Live| live.key.as_ref().is_some_and(|(by, own)| by == caller && own == key);
        let is_it = |live: &&Arc<Live>| is_of_key(live) && matches!(*live.stage.borrow(), Stage::Intending);
        held.live.values().find(is_it).cloned()
    }

    /// Nobody comes any more.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.lock().is_closed { Err(Error::Stopping) } else { Ok(()) }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Live>> {
        self.lock().live.values().cloned().collect()
    }

    pub(crate) async fn wait_until_empty(&self) {
        let mut gone = self.gone.subscribe();
        while !self.lock().live.is_empty() {
            if gone.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.lock().live.remove(&self.live.exec_id);
        self.live.stage.send_if_modified(|stage| match stage {
            Stage::Over(_) => false,
            Stage::Intending | Stage::At(_) => {
                *stage = Stage::Over(None);
                true
            }
        });
        self.registry.gone.send_replace(());
    }
}
