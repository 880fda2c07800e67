//! One warm box: made, checked and ended. Dropping it ends its box.

use std::os::fd::AsFd;
use std::time::Instant;

use ringwall_jail::plan::{RootKind, WarmMode};
use ringwall_jail::report::Report;
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use super::shape::Shape;
use super::sort::WarmSpec;
use crate::error::{Error, talk};
use crate::executor::Executor;
use crate::native::prepare::Spawned;
use crate::native::provide::Wanted;
use crate::native::running::NativeBox;
use crate::plan::lower::BaseRoot;
use crate::process::receive;
use crate::process::spawner::TIMEOUT;
use crate::running::Streams;

/// What waits in a warm box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WarmKind {
    /// Only PID 1: any command can be started.
    Plain,
    /// An interpreter for code that `python3 -c` would run.
    Python,
}

/// A box that waits for its command.
#[derive(Debug)]
pub struct WarmBox {
    sort: WarmSpec,
    pub(super) native: NativeBox,
    pub(super) streams: Streams,
    made: Instant,
}

impl Executor {
    /// Makes a warm box, which takes as long as a cold one plus the start of the interpreter.
    pub async fn prepare_warm_box(&self, sort: &WarmSpec) -> Result<WarmBox, Error> {
        let WarmSpec { kind, shape } = sort;
        let mut lease = self.leases.take().ok_or(Error::WarmBoxUnfit("there are too many of them"))?;
        let owner = lease.owner();
        let prepared = self.prepare_alone(owner)?;
        let spawned = match &prepared.birth {
            Spawned::In(base_root) => *base_root,
            Spawned::NotYet(_) => self.spawner.base_root()?,
        };
        if (shape.root(), spawned) == (RootKind::Base, BaseRoot::Host) {
            return Err(Error::WarmBoxUnfit("whoever makes boxes was replaced meanwhile"));
        }
        let plan = shape.plan_for(owner, &self.group_name(&prepared));
        let (streams, theirs) = Streams::pipes(owner).map_err(talk)?;
        let ahead = match *kind {
            WarmKind::Plain => WarmMode::Plain,
            WarmKind::Python => WarmMode::Interpreter,
        };
        let wanted = Wanted { plan, ahead: Some(ahead), streams: &theirs, hold_at: None };
        let mut native = self.hand_over(prepared, wanted).await?;
        drop(theirs);
        lease.bind(native.init());
        native.lease = Some(lease);
        match tokio::time::timeout(TIMEOUT, receive(native.socket())).await {
            Ok(Ok(Some((Report::Waiting, descriptors)))) => {
                if let Some(init) = descriptors.into_iter().next() {
                    native.set_init(init);
                }
            }
            Ok(Ok(Some((Report::Failed(failure), _)))) => {
                native.clean_up().await;
                return Err(Error::Setup(failure));
            }
            Ok(Ok(Some((Report::NotExecuted { tried, .. }, _)))) => {
                native.clean_up().await;
                return Err(Error::CommandNotFound { command: tried.to_string_lossy().into_owned() });
            }
            Ok(Ok(_)) => {
                native.clean_up().await;
                return Err(Error::JailDied);
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                if let Some(parent) = native.parent() {
                    self.spawner.retire(parent);
                }
                native.give_up().await;
                return Err(Error::NoAnswer { from: "its first process", timeout: TIMEOUT });
            }
        }
        Ok(WarmBox { sort: sort.clone(), native, streams, made: Instant::now() })
    }
}

impl WarmBox {
    pub fn kind(&self) -> WarmKind {
        self.sort.kind
    }

    pub fn shape(&self) -> &Shape {
        &self.sort.shape
    }

    pub fn made(&self) -> Instant {
        self.made
    }

    /// True if it still waits. A box that has ended or sent a message is never used.
    pub fn is_alive(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut events = [PollFd::from_borrowed_fd(self.native.socket().as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut events, Some(&at_once)).is_ok_and(|ready| ready == 0)
    }

    /// Ends it and waits for its last process.
    pub async fn end(self) {
        self.native.end().await;
    }

    /// The host PID of its PID 1, for measurements.
    pub fn init_pid(&self) -> Option<u32> {
        self.native.init_pid()
    }
}
