//! Gives a warm box its grant: mounts the files and starts the command.
//!
//! Sources, rules and command are those of a cold box. Any failure before the command starts
//! returns the grant, and a cold box is made from it.

use ringwall_jail::plan::{Assignment, Completion, Identity, Operation, Owner, Privilege};
use ringwall_jail::report::Report;
use ringwall_policy::Grant;
use rustix::io::Errno;

use super::interpreter;
use super::warm_box::{WarmBox, WarmKind};
use crate::box_layout;
use crate::error::{Error, Unserved, talk};
use crate::executor::Executor;
use crate::plan::limits::Stay;
use crate::plan::lower;
use crate::process::receive;
use crate::process::spawner::TIMEOUT;
use crate::protection::protection_of;
use crate::running::{RunningBox, time_limit};
use crate::sources::{Sources, owner};
use crate::uids::Lease;

impl Executor {
    /// Starts the granted command in a warm box. Returns when every protection is in force and the
    /// command starts.
    pub async fn start_warm_box(&self, warm_box: WarmBox, grant: Grant) -> Result<RunningBox, Box<Unserved>> {
        match self.serve(warm_box, &grant).await {
            Ok(running) => Ok(running),
            Err(error) => Err(Box::new(Unserved { grant, error })),
        }
    }

    async fn serve(&self, warm_box: WarmBox, grant: &Grant) -> Result<RunningBox, Error> {
        if self.shape_for(grant).as_ref() != Some(warm_box.shape()) {
            return Err(Error::WarmBoxUnfit("its shape is another"));
        }
        let kind = warm_box.kind();
        let whose = owner(grant).ok_or(Error::WarmBoxUnfit("it shows a workspace alone"))?;
        let sources = Sources::open(grant, &self.images, self.data.as_deref()).await?;
        let completion = self.complete(kind, grant, &sources, whose)?;
        let WarmBox { mut native, streams, .. } = warm_box;
        let host = native.lease.as_ref().map(Lease::owner).ok_or(Error::WarmBoxUnfit("it is nobody"))?;
        let mut mapping = |owner| self.mappings.get(owner, host, || self.spawner.mapping(owner, host));
        let trees = ringwall_jail::sources::open(&completion.operations, &mut mapping).map_err(Error::Setup)?;
        match ringwall_jail::send_completion(native.socket(), completion, &trees) {
            // If the box has ended, its report is read next.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => return Err(talk(errno)),
        }
        drop(trees);
        native.forget_steps();
        match tokio::time::timeout(TIMEOUT, receive(native.socket())).await {
            Ok(Ok(Some((Report::Started { protections, steps }, _)))) => native.started(protections, steps, None),
            Ok(Ok(Some((Report::Failed(failure), _)))) => {
                native.clean_up().await;
                return Err(Error::Setup(failure));
            }
            Ok(Ok(_)) => {
                native.clean_up().await;
                return Err(Error::JailDied);
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                native.give_up().await;
                return Err(Error::NoAnswer { from: "its first process", timeout: TIMEOUT });
            }
        }
        Ok(native.into_running(streams, None, Stay::OneCommand, time_limit(grant)))
    }

    fn complete(&self, kind: WarmKind, grant: &Grant, sources: &Sources, whose: Owner) -> Result<Completion, Error> {
        // The identity of a cold box of the workspace's owner.
        let identity = Identity {
            privilege: Privilege::Root,
            inside_uid: box_layout::UID,
            inside_gid: box_layout::GID,
            host_uid: whose.uid,
            host_gid: whose.gid,
        };
        let mut operations = lower::shown(sources, &identity, self.data.as_deref());
        show_as_its_own(&mut operations, whose);
        let command = lower::command(grant, lower::home(sources), sources.python, false)?;
        let assignment = match kind {
            WarmKind::Plain => Assignment::Execute(command),
            WarmKind::Python => interpreter::assignment(&command)?,
        };
        let required = grant.effective().require.iter().map(|requirement| protection_of(*requirement));
        Ok(Completion { operations, access: lower::access(sources), required: required.collect(), assignment })
    }
}

/// Maps mounts to the workspace's owner, so that a warm box has the same rights as a cold box of
/// that owner. Mounts of other owners are mapped already.
fn show_as_its_own(operations: &mut [Operation], whose: Owner) {
    for operation in operations {
        if let Operation::Bind { source, .. } = operation {
            source.owner.get_or_insert(whose);
        }
    }
}
