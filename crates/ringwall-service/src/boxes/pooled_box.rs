//! A session box in the pool, and the contexts in it, which end with the box.
//!
//! A box belongs to the session for which it was made and is never handed to another one. Boxes are
//! not recorded: after a restart the server has none.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use parking_lot::{Mutex, MutexGuard};
use ringwall_executor::BoxControl as _;
use ringwall_executor::session_box::{SessionBox, SessionProcess};
use ringwall_policy::Isolation;
use ringwall_record::{SessionKey, Timestamp};
use ringwall_workspace::Workspace;
use rustix::process::Signal;

use super::interpreter::Interpreter;
use crate::boxes::Language;
use crate::egress::SessionProxy;
use crate::time::now;

/// Maximum number of contexts in one session box.
pub(crate) const MAX_CONTEXTS: usize = 8;

/// Identifies a session box. A session has at most one per isolation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BoxKey {
    pub(crate) session: SessionKey,
    pub(crate) isolation: Isolation,
}

impl BoxKey {
    pub(crate) fn new(session: &SessionKey, isolation: Isolation) -> Self {
        Self { session: session.clone(), isolation }
    }
}

#[derive(Debug)]
pub(crate) struct PooledBox {
    pub(crate) session_box: SessionBox,
    /// The proxy of the box; `None` without network access.
    pub(crate) proxy: Option<SessionProxy>,
    /// Holds the session's files.
    pub(crate) workspace: Workspace,
    /// The exceeded disk quota, if the box was ended for it.
    full: OnceLock<String>,
    contexts: Mutex<BTreeMap<String, Context>>,
}

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) language: Language,
    pub(crate) created_at: Timestamp,
    pub(crate) used_at: Timestamp,
    /// `None` while a cell runs, and before the interpreter is started.
    idle: Option<Interpreter>,
    pub(crate) handle: Option<SessionProcess>,
    pub(crate) doing: Doing,
    /// Number of restarts. A cell that began before the last one does not return its interpreter.
    restarts: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Nothing,
    Running,
}

/// The result of reserving a context for a cell.
#[derive(Debug)]
pub(crate) enum Entered {
    Ready {
        interpreter: Box<Interpreter>,
        restarts: u64,
    },
    /// The interpreter has to be started.
    New {
        restarts: u64,
    },
    Busy,
    /// The context has another language.
    Other(Language),
    TooMany,
}

impl PooledBox {
    pub(crate) fn new(session_box: SessionBox, proxy: Option<SessionProxy>, workspace: Workspace) -> Self {
        Self { session_box, proxy, workspace, full: OnceLock::new(), contexts: Mutex::default() }
    }

    /// Ends the box because a disk quota is exceeded. This also ends background processes of
    /// earlier execs, which may be the ones that write.
    pub(crate) fn end_as_full(&self, words: String) {
        let _ = self.full.set(words);
        self.session_box.kill();
    }

    pub(crate) fn full(&self) -> Option<&str> {
        self.full.get().map(String::as_str)
    }

    pub(crate) fn enter(&self, id: &str, language: Language) -> Entered {
        let mut contexts = self.lock();
        if !contexts.contains_key(id) && contexts.len() >= MAX_CONTEXTS {
            return Entered::TooMany;
        }
        let context = contexts.entry(id.to_owned()).or_insert_with(|| Context {
            language,
            created_at: now(),
            used_at: now(),
            idle: None,
            handle: None,
            doing: Doing::Nothing,
            restarts: 0,
        });
        if context.language != language {
            return Entered::Other(context.language);
        }
        if context.doing == Doing::Running {
            return Entered::Busy;
        }
        context.doing = Doing::Running;
        context.used_at = now();
        match context.idle.take() {
            Some(interpreter) => Entered::Ready { interpreter: Box::new(interpreter), restarts: context.restarts },
            None => Entered::New { restarts: context.restarts },
        }
    }

    /// Stores the handle of the started interpreter. False if the context was restarted or deleted
    /// meanwhile.
    pub(crate) fn begun(&self, id: &str, restarts: u64, handle: &SessionProcess) -> bool {
        let mut contexts = self.lock();
        let own = contexts.get_mut(id).filter(|context| context.restarts == restarts);
        own.map(|context| context.handle = Some(handle.clone())).is_some()
    }

    /// Ends a cell. Stores its interpreter for the next one, or removes the context if there is
    /// none. Does nothing if the context was restarted or deleted meanwhile.
    pub(crate) fn leave(&self, id: &str, restarts: u64, interpreter: Option<Interpreter>) {
        let mut contexts = self.lock();
        let Some(context) = contexts.get_mut(id).filter(|context| context.restarts == restarts) else { return };
        match interpreter {
            Some(interpreter) => {
                context.doing = Doing::Nothing;
                context.used_at = now();
                context.idle = Some(interpreter);
            }
            None => drop(contexts.remove(id)),
        }
    }

    pub(crate) fn read<T>(&self, read: impl FnOnce(&BTreeMap<String, Context>) -> T) -> T {
        read(&self.lock())
    }

    /// Ends the interpreter; the next cell starts a new one. False if there is no such context.
    pub(crate) fn restart(&self, id: &str) -> bool {
        let mut contexts = self.lock();
        let Some(context) = contexts.get_mut(id) else { return false };
        context.restarts += 1;
        context.doing = Doing::Nothing;
        let (idle, handle) = (context.idle.take(), context.handle.take());
        drop(contexts);
        end(idle, handle);
        true
    }

    pub(crate) fn delete(&self, id: &str) -> bool {
        let Some(context) = self.lock().remove(id) else { return false };
        end(context.idle, context.handle);
        true
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Context>> {
        self.contexts.lock()
    }
}

fn end(idle: Option<Interpreter>, handle: Option<SessionProcess>) {
    if let Some(handle) = handle {
        // A `stop` with SIGKILL also works in a paused box, and ends the box if the agent does not
        // kill the process.
        tokio::spawn(async move { handle.stop(Signal::KILL).await });
    }
    drop(idle);
}
