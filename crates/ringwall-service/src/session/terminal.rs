//! A terminal in a session box: an exec with an attached client. It ends when the client
//! disconnects.
//!
//! Its output goes to the exec's output file, as for every exec, and to the client in pieces. At
//! most 4 pieces are queued; a client that does not read blocks its own command only. The command
//! is assessed, the input is not: the box confines what the client types.

use std::sync::Arc;

use parking_lot::Mutex;
use ringwall_executor::WindowSize;
use ringwall_ids::ExecId;
use ringwall_record::{Reason, Status};
use tokio::sync::{mpsc, oneshot};

use crate::auth::principal::Principal;
use crate::boxes::{Keyboard, Pressed, TerminalHandle};
use crate::error::Error;
use crate::exec::code::{CodeRequest, Input};
use crate::exec::registry::{Cancellation, RunningExec};
use crate::exec::spec::{Backend, Target};
use crate::service::Service;
use crate::session_ref::SessionAddress;

/// Pieces of output, each at most 64 KiB, that are queued for the client.
const MAX_PIECES: usize = 4;
/// The default command. Not every image has bash.
const SHELL: &str = "command -v bash >/dev/null && exec bash -i; exec sh -i";

/// The client's end of a terminal. Dropping it cancels the exec.
#[derive(Debug)]
pub struct Terminal {
    exec_id: ExecId,
    service: Service,
    by: Principal,
    running: Option<Arc<RunningExec>>,
    screen: mpsc::Receiver<Vec<u8>>,
    keyboard: Keyboard,
    has_ended: bool,
}

#[derive(Debug)]
pub enum TerminalEvent {
    /// The command has started.
    Begun,
    Shown(Vec<u8>),
    /// Input was written, so `has_room` may be true again.
    Typed,
    /// Sent once, after all output.
    Ended(TerminalEnd),
}

#[derive(Debug)]
pub struct TerminalEnd {
    pub status: Status,
    pub exit_code: Option<i32>,
    pub reason: Option<Reason>,
}

/// The result of opening a terminal.
#[derive(Debug)]
pub enum OpenedTerminal {
    There(Box<Terminal>),
    /// The command needs an approval. Terminals do not wait for one, so the exec is cancelled.
    NeedsPerson(ExecId),
}

impl Service {
    /// Opens a terminal and returns when its intent is recorded. The default command is a shell.
    /// Its timeout is the longest that the policy allows in a session.
    pub async fn open_terminal(
        &self,
        by: &Principal,
        address: SessionAddress,
        command: Option<String>,
        size: WindowSize,
    ) -> Result<OpenedTerminal, Error> {
        let is_default = command.is_none();
        let line = command.unwrap_or_else(|| SHELL.to_owned());
        let request = CodeRequest::in_session_box(address, line, None, None);
        let (sender, screen) = mpsc::channel(MAX_PIECES);
        let (offered, keys) = oneshot::channel();
        let handle = TerminalHandle { size, screen: sender, keys: Mutex::new(Some(offered)) };
        let mut spec = self.read_request(by, request, Input::Terminal(handle)).await?;
        if is_default && spec.argv.is_ok() {
            spec.words = ["sh", "-c", SHELL].map(str::to_owned).to_vec();
            spec.argv = Ok(spec.words.iter().map(Into::into).collect());
        }
        // Local backends are not checked here: some gVisor versions have no terminals either, and
        // starting the terminal fails then.
        if spec.backend == Backend::AioService {
            let why = "an external AIO service has no terminals; start a process without one".to_owned();
            return Err(Error::BackendUnavailable { backend: spec.backend.key().to_owned(), why });
        }
        let asks_person = matches!(&spec.target, Target::Code(code) if code.asks_person());
        let begun = self.begin_spec(spec).await?;
        let terminal = Terminal {
            running: begun.running,
            exec_id: begun.exec_id,
            service: self.clone(),
            by: by.clone(),
            screen,
            keyboard: Keyboard::new(keys),
            has_ended: false,
        };
        match begun.status {
            Status::AwaitingApproval if asks_person => Ok(OpenedTerminal::NeedsPerson(terminal.exec_id.clone())),
            _ => Ok(OpenedTerminal::There(Box::new(terminal))),
        }
    }
}

impl Terminal {
    pub fn exec_id(&self) -> &ExecId {
        &self.exec_id
    }

    /// Waits for the next event. Cancel-safe: no event is lost if the future is dropped.
    pub async fn next(&mut self) -> Result<TerminalEvent, Error> {
        if self.has_ended {
            return std::future::pending().await;
        }
        let shown = tokio::select! {
            shown = self.screen.recv() => shown,
            pressed = self.keyboard.advance() => return Ok(match pressed {
                Pressed::Begun => TerminalEvent::Begun,
                Pressed::Read => TerminalEvent::Typed,
            }),
        };
        if let Some(shown) = shown {
            return Ok(TerminalEvent::Shown(shown));
        }
        let view = self.service.finished(&self.by, &self.exec_id).await?;
        self.has_ended = true;
        let end =
            TerminalEnd { status: view.summary.status, exit_code: view.summary.exit_code, reason: view.error_reason };
        Ok(TerminalEvent::Ended(end))
    }

    /// False while the input buffer is full.
    pub fn has_room(&self) -> bool {
        self.keyboard.has_room()
    }

    pub fn press(&mut self, bytes: &[u8]) {
        self.keyboard.press(bytes);
    }

    pub fn resize(&mut self, size: WindowSize) {
        self.keyboard.resize(size);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(running) = &self.running {
            running.cancel(Cancellation::HungUp);
        }
    }
}
