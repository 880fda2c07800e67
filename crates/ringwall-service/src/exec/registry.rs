//! The execs of this process that have not ended: their state, output and cancellation, and a
//! channel to wait on.
//!
//! The database is authoritative; the registry avoids polling it. An exec is registered before its
//! intent is recorded and removed after its outcome is, so an exec that is missing here has its
//! outcome in the database.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, MutexGuard};
use ringwall_ids::{AgentId, ExecId, UserId};
use ringwall_record::{SessionKey, Status};
use ringwall_workspace::{OutputFile, Stream};
use tokio::sync::watch;

use crate::boxes::PooledBox;
use crate::boxes::ProcessHandle;
use crate::error::Error;
use crate::exec::outcome::RunNotes;
use crate::exec::view::ExecView;

/// The state of an exec.
#[derive(Debug, Clone)]
pub(crate) enum ExecState {
    Intending,
    At(Status),
    /// Ended. `None` if its task ended without a recorded outcome.
    Over(Option<Arc<EndedExec>>),
}

/// An exec with its recorded outcome.
#[derive(Debug)]
pub(crate) struct EndedExec {
    pub(crate) view: ExecView,
    pub(crate) notes: RunNotes,
}

/// Why an exec is cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancellation {
    ByCaller,
    /// The client of its terminal disconnected.
    HungUp,
    ServerStops,
}

#[derive(Debug)]
pub(crate) struct RunningExec {
    pub(crate) exec_id: ExecId,
    pub(crate) user_id: UserId,
    pub(crate) agent_id: AgentId,
    /// The caller and its idempotency key.
    key: Option<(String, String)>,
    /// The session whose files the exec works on.
    pub(crate) session: Option<SessionKey>,
    state: watch::Sender<ExecState>,
    cancellation: watch::Sender<Option<Cancellation>>,
    output: OnceLock<[OutputFile; 2]>,
    truncated: [AtomicBool; 2],
    /// The handle of a session process.
    process: OnceLock<ProcessHandle>,
    lifetime: Lifetime,
    session_box: OnceLock<Weak<PooledBox>>,
}

/// The lifetime of an exec. An awaited exec ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    UntilDone,
    /// A session process or a terminal. Runs until it exits or is stopped.
    UntilStopped,
}

impl RunningExec {
    pub(crate) fn new(
        exec_id: ExecId,
        user_id: UserId,
        agent_id: AgentId,
        key: Option<(String, String)>,
        session: Option<SessionKey>,
        lifetime: Lifetime,
    ) -> Self {
        Self {
            exec_id,
            user_id,
            agent_id,
            key,
            session,
            state: watch::Sender::new(ExecState::Intending),
            cancellation: watch::Sender::new(None),
            output: OnceLock::new(),
            truncated: Default::default(),
            process: OnceLock::new(),
            lifetime,
            session_box: OnceLock::new(),
        }
    }

    /// Notifies of each state change and each output.
    pub(crate) fn watch(&self) -> watch::Receiver<ExecState> {
        self.state.subscribe()
    }

    pub(crate) fn set_state(&self, state: ExecState) {
        self.state.send_replace(state);
    }

    pub(crate) fn ring(&self) {
        self.state.send_modify(|_| {});
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.state.borrow(), ExecState::Over(_))
    }

    pub(crate) async fn over(&self) -> Option<Arc<EndedExec>> {
        over(&mut self.watch()).await
    }

    /// Returns when the intent is recorded or was refused.
    pub(crate) async fn intended(&self) {
        let mut state = self.watch();
        // Cannot fail: `self` owns the sender.
        let _ = state.wait_for(|state| !matches!(state, ExecState::Intending)).await;
    }

    /// Only the first cancellation has an effect; later ones do not change its reason.
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
            // Unreachable, because `self` owns the sender. Pending forever cancels nothing.
            None => std::future::pending().await,
        }
    }

    pub(crate) fn set_output(&self, stdout: OutputFile, stderr: OutputFile) {
        let _ = self.output.set([stdout, stderr]);
    }

    pub(crate) fn output(&self, stream: Stream) -> Option<&OutputFile> {
        self.output.get().map(|files| &files[index(stream)])
    }

    pub(crate) fn set_process(&self, handle: ProcessHandle) {
        let _ = self.process.set(handle);
    }

    pub(crate) fn process(&self) -> Option<&ProcessHandle> {
        self.process.get()
    }

    pub(crate) fn set_session_box(&self, session_box: &Arc<PooledBox>) {
        let _ = self.session_box.set(Arc::downgrade(session_box));
    }

    /// The session box that the exec runs in, while the box exists.
    pub(crate) fn session_box(&self) -> Option<Arc<PooledBox>> {
        self.session_box.get()?.upgrade()
    }

    pub(crate) fn lifetime(&self) -> Lifetime {
        self.lifetime
    }

    /// True if the exec does not end by itself: it runs until stopped, or its session box is
    /// paused.
    pub(crate) fn lasts(&self) -> bool {
        self.lifetime == Lifetime::UntilStopped || self.session_box().is_some_and(|it| it.session_box.is_paused())
    }

    pub(crate) fn is_in(&self, session: &SessionKey) -> bool {
        self.session.as_ref() == Some(session)
    }

    pub(crate) fn set_truncated(&self, stream: Stream) {
        self.truncated[index(stream)].store(true, Ordering::Release);
    }

    pub(crate) fn is_truncated(&self, stream: Stream) -> bool {
        self.truncated[index(stream)].load(Ordering::Acquire)
    }
}

/// Waits for the end of an exec. `None` if its task ended without a recorded outcome.
pub(crate) async fn over(state: &mut watch::Receiver<ExecState>) -> Option<Arc<EndedExec>> {
    match state.wait_for(|state| matches!(state, ExecState::Over(_))).await.as_deref() {
        Ok(ExecState::Over(ended)) => ended.clone(),
        Ok(ExecState::Intending | ExecState::At(_)) | Err(_) => None,
    }
}

const fn index(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// All registered execs.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    held: Mutex<Held>,
    /// Notifies of each removed exec.
    gone: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Held {
    running: HashMap<ExecId, Arc<RunningExec>>,
    is_closed: bool,
}

/// Keeps an exec registered. Dropping it sets the state to `Over`, even after a panic, so no task
/// waits forever.
#[derive(Debug)]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    running: Arc<RunningExec>,
}

impl Registry {
    pub(crate) fn register(self: &Arc<Self>, running: Arc<RunningExec>) -> Result<Registration, Error> {
        let mut held = self.lock();
        if held.is_closed {
            return Err(Error::Stopping);
        }
        held.running.insert(running.exec_id.clone(), running.clone());
        Ok(Registration { registry: self.clone(), running })
    }

    pub(crate) fn find(&self, exec_id: &ExecId) -> Option<Arc<RunningExec>> {
        self.lock().running.get(exec_id).cloned()
    }

    /// An exec with this caller and idempotency key whose intent is not recorded yet.
    pub(crate) fn find_intending(&self, caller: &str, key: &str) -> Option<Arc<RunningExec>> {
        let held = self.lock();
        let is_of_key =
            |running: &RunningExec| running.key.as_ref().is_some_and(|(by, own)| by == caller && own == key);
        let is_it =
            |running: &&Arc<RunningExec>| is_of_key(running) && matches!(*running.state.borrow(), ExecState::Intending);
        held.running.values().find(is_it).cloned()
    }

    /// Refuses new execs from now on.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.lock().is_closed { Err(Error::Stopping) } else { Ok(()) }
    }

    pub(crate) fn all(&self) -> Vec<Arc<RunningExec>> {
        self.lock().running.values().cloned().collect()
    }

    pub(crate) async fn wait_until_empty(&self) {
        let mut gone = self.gone.subscribe();
        while !self.lock().running.is_empty() {
            if gone.changed().await.is_err() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.registry.lock().running.remove(&self.running.exec_id);
        self.running.state.send_if_modified(|state| match state {
            ExecState::Over(_) => false,
            ExecState::Intending | ExecState::At(_) => {
                *state = ExecState::Over(None);
                true
            }
        });
        self.registry.gone.send_replace(());
    }
}
