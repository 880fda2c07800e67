//! A terminal in a session's box: an exec like any other, at which somebody sits. When they go, it ends.
//!
//! What it shows goes into its file, as every exec's output does, and piece by piece to whoever sits there. Few pieces wait:
//! one who does not look holds up the command, and nobody else. What is typed is not assessed: the command was, and the
//! box is what holds.

use std::sync::{Arc, Mutex};

use ringwall_executor::WindowSize;
use ringwall_record::{ExecId, Reason, Status};
use tokio::sync::{mpsc, oneshot};

use crate::auth::principal::Principal;
use crate::boxes::{Keyboard, Pressed, Seat};
use crate::error::Error;
use crate::exec::backend::Backend;
use crate::exec::code::{CodeRequest, Input};
use crate::exec::order::Ground;
use crate::exec::registry::{Cancellation, Live};
use crate::exec::submit::Answered;
use crate::service::Service;
use crate::session_ref::SessionAddress;

/// Pieces of at most 64 KiB that nobody has looked at yet.
const PIECES: usize = 4;
/// What runs where nothing is said. Not every image has bash.
const SHELL: &str = "command -v bash >/dev/null && exec bash -i; exec sh -i";

/// What whoever sits at a terminal has of it. Dropping it hangs up.
#[derive(Debug)]
pub struct Terminal {
    exec_id: ExecId,
    service: Service,
    by: Principal,
    live: Option<Arc<Live>>,
    screen: mpsc::Receiver<Vec<u8>>,
    keyboard: Keyboard,
    has_ended: bool,
}

#[derive(Debug)]
pub enum TerminalEvent {
    /// Its command runs.
    Begun,
    Shown(Vec<u8>),
    /// There may be room again for what is typed.
    Typed,
    /// Said once, after everything was shown.
    Ended(TerminalEnd),
}

#[derive(Debug)]
pub struct TerminalEnd {
    pub status: Status,
    pub exit_code: Option<i32>,
    pub reason: Option<Reason>,
}

/// What became of the wish for a terminal.
#[derive(Debug)]
pub enum OpenedTerminal {
    There(Box<Terminal>),
    /// Its command deserves a person's word, for which nobody waits at a terminal: the exec is cancelled.
    NeedsPerson(ExecId),
}

impl Service {
    /// Begins, and comes back when that is on record. Without a command it is a shell. It may last as long as anything in a
    /// session may.
    pub async fn open_terminal(
        &self,
        by: &Principal,
        address: SessionAddress,
        command: Option<String>,
        size: WindowSize,
    ) -> Result<OpenedTerminal, Error> {
        let is_usual = command.is_none();
        let line = command.unwrap_or_else(|| SHELL.to_owned());
        let request = CodeRequest::in_session_box(address, line, None, None);
        let (sender, screen) = mpsc::channel(PIECES);
        let (offered, keys) = oneshot::channel();
        let seat = Seat { size, screen: sender, keys: Mutex::new(Some(offered)) };
        let (mut order, trail) = self.read_asked(by, request, Input::Terminal(seat)).await?;
        if is_usual && order.argv.is_ok() {
            order.words = ["sh", "-c", SHELL].map(str::to_owned).to_vec();
            order.argv = Ok(order.words.iter().map(Into::into).collect());
        }
        let mut asks_person = false;
        if let Ground::Code(code) = &order.ground {
            refuse_without_terminals(order.backend)?;
            asks_person = code.asks_person();
        }
        let begun = self.begin_order(order, trail, Answered::WhenIntended).await?;
        let terminal = Terminal {
            live: self.inner.registry.find(&begun.exec_id),
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

    /// What happens next. Given up halfway nothing is lost.
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

    /// Whether more may be typed before some of it was read.
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
        if let Some(live) = &self.live {
            live.cancel(Cancellation::HungUp);
        }
    }
}

/// Whether a box of our own has terminals is seen when one begins: not every gVisor does.
fn refuse_without_terminals(backend: Backend) -> Result<(), Error> {
    match backend {
        Backend::AioService => {
            let why = "an external AIO service has no terminals; `processes` run without".to_owned();
            Err(Error::BackendUnavailable { backend: backend.key().to_owned(), why })
        }
        Backend::Native | Backend::Docker | Backend::Gvisor | Backend::Aio => Ok(()),
    }
}
