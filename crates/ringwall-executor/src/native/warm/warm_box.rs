//! One warm box: made for the pool, given its grant, or ended. Dropping it ends its box.
//!
//! Sources, rules and command are those of a cold box. Any failure before the command starts
//! returns the grant, and a cold box is made from it.

use std::os::fd::AsFd;
use std::time::Duration;

use ringwall_jail::plan::{Assignment, Completion, Operation, Owner, Privilege, RootKind, WarmKind};
use ringwall_jail::report::Report;
use ringwall_policy::Grant;
use rustix::event::{PollFd, PollFlags};
use rustix::time::Timespec;

use super::interpreter;
use super::shape::Shape;
use crate::error::{Error, Unserved, talk};
use crate::executor::Executor;
use crate::native::provide::unless_ended;
use crate::native::running::NativeBox;
use crate::plan::limits::Stay;
use crate::plan::lower;
use crate::plan::lower::{BaseRoot, identity};
use crate::pool::PoolKind;
use crate::process::spawner::TIMEOUT;
use crate::protection::protection_of;
use crate::running::{RunningBox, Streams, time_limit};
use crate::sources::{Sources, owner};
use crate::uids::Lease;

/// Pause after the last exec before another box is made. By then that exec has its answer.
const PAUSE: Duration = Duration::from_millis(5);
/// A plain warm box saves little, so it waits longer.
const LONG_PAUSE: Duration = Duration::from_millis(30);

/// Warm boxes of equal specs are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WarmSpec {
    pub kind: WarmKind,
    pub shape: Shape,
}

/// A box that waits for its command.
#[derive(Debug)]
pub struct WarmBox {
    spec: WarmSpec,
    native: NativeBox,
    streams: Streams,
}

impl Executor {
    /// The spec of the warm box that fits this grant best, if there is one.
    pub fn warm_spec_for(&self, grant: &Grant) -> Option<WarmSpec> {
        Some(WarmSpec { shape: self.shape_for(grant)?, kind: interpreter::kind_for(grant) })
    }

    /// Makes a warm box, which takes as long as a cold one plus the start of the interpreter.
    pub async fn prepare_warm_box(&self, spec: &WarmSpec) -> Result<WarmBox, Error> {
        let WarmSpec { kind, shape } = spec;
        let lease = self.warm_uids.take().ok_or(Error::WarmBoxUnfit("there are too many of them"))?;
        let owner = lease.owner();
        let prepared = self.prepare_leased(lease)?;
        if (shape.root(), self.base_root(&prepared)?) == (RootKind::Base, BaseRoot::Host) {
            return Err(Error::WarmBoxUnfit("the spawner was replaced by one without a base rootfs"));
        }
        let plan = shape.plan_for(owner, &self.group_name(&prepared));
        let (streams, theirs) = Streams::pipes(owner).map_err(talk)?;
        let mut native = self.hand_over(prepared, plan, Some(*kind), &theirs).await?;
        drop(theirs);
        match native.next_report(&self.spawner, tokio::time::Instant::now() + TIMEOUT).await? {
            (Report::Waiting, descriptors) => descriptors.into_iter().for_each(|init| native.set_init(init)),
            (Report::NotExecuted { tried, .. }, _) => {
                native.clean_up().await;
                return Err(Error::CommandNotFound { command: tried.to_string_lossy().into_owned() });
            }
            _ => return Err(native.died_early().await),
        }
        Ok(WarmBox { spec: spec.clone(), native, streams })
    }

    /// Starts the granted command in a warm box. Returns when every protection is in force and the
    /// command starts.
    pub async fn start_warm_box(&self, warm_box: WarmBox, grant: Grant) -> Result<RunningBox, Box<Unserved>> {
        match self.serve(warm_box, &grant).await {
            Ok(running) => Ok(running),
            Err(error) => Err(Box::new(Unserved { grant, error })),
        }
    }

    async fn serve(&self, warm_box: WarmBox, grant: &Grant) -> Result<RunningBox, Error> {
        let WarmBox { spec, mut native, streams, .. } = warm_box;
        if self.shape_for(grant).as_ref() != Some(&spec.shape) {
            return Err(Error::WarmBoxUnfit("its shape differs from the grant's"));
        }
        let owner = owner(grant).ok_or(Error::WarmBoxUnfit("the grant has no workspace"))?;
        let sources = Sources::open(grant, &self.images, self.data.as_deref()).await?;
        let completion = self.completion(spec.kind, grant, &sources, owner)?;
        let host = native.lease.as_ref().map(Lease::owner).ok_or(Error::WarmBoxUnfit("it has no user id"))?;
        let mut mapping = |owner| self.spawner.mapping(owner, host);
        let trees = ringwall_jail::sources::open(&completion.operations, &mut mapping).map_err(Error::Setup)?;
        unless_ended(ringwall_jail::send_completion(native.socket(), completion, &trees))?;
        drop(trees);
        native.forget_steps();
        match native.next_report(&self.spawner, tokio::time::Instant::now() + TIMEOUT).await? {
            (Report::Started { protections, steps }, _) => native.started(protections, steps, None),
            _ => return Err(native.died_early().await),
        }
        Ok(native.into_running(streams, None, Stay::OneCommand, time_limit(grant)))
    }

    fn completion(&self, kind: WarmKind, grant: &Grant, sources: &Sources, owner: Owner) -> Result<Completion, Error> {
        // The identity of a cold box of the workspace's owner.
        let mut operations = lower::shown(sources, &identity(Privilege::Root, owner), self.data.as_deref());
        // Maps mounts to the workspace's owner, so that a warm box has the same rights as a cold box
        // of that owner. Mounts of other owners are mapped already.
        for operation in &mut operations {
            if let Operation::Bind { source, .. } = operation {
                source.owner.get_or_insert(owner);
            }
        }
        let command = lower::command(grant, lower::home(sources), sources.python, false)?;
        let assignment = match kind {
            WarmKind::Plain => Assignment::Execute(command),
            WarmKind::Python => interpreter::assignment(&command)?,
        };
        let required = grant.effective().require.iter().map(|requirement| protection_of(*requirement));
        Ok(Completion { operations, access: lower::access(sources), required: required.collect(), assignment })
    }
}

impl WarmBox {
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

impl PoolKind for WarmSpec {
    fn pause(&self, waiting: usize) -> Duration {
        match self.kind {
            // Without a ready interpreter the next exec would wait longer for one than running
            // execs lose by its start.
            WarmKind::Python if waiting == 0 => Duration::ZERO,
            WarmKind::Python => PAUSE,
            WarmKind::Plain => LONG_PAUSE,
        }
    }
}
