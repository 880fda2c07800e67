//! A box before its command is known: its namespaces and its host user.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use ringwall_jail::plan::{CgroupVersion, Identity, Owner, Privilege};
use ringwall_jail::{NetworkSource, Request, wire};
use ringwall_policy::Grant;
use rustix::process::Pid;

use crate::cgroup::layout;
use crate::error::{Error, talk};
use crate::executor::Executor;
use crate::host::Host;
use crate::plan::lower::BaseRoot;
use crate::process::spawner::{Parent, Spawner};
use crate::uids::{Lease, OWN_UIDS, box_uid};
use crate::{box_layout, host};

/// The box of `ringwall run`, started first: its namespaces are made while the program reads its
/// arguments and probes the host.
#[derive(Debug)]
pub struct Early {
    pub(crate) prepared: Prepared,
    pub(crate) privilege: Privilege,
    pub(crate) init: Option<Pid>,
}

impl Early {
    /// Call it before any other work, while the process has one thread.
    pub fn begin() -> Result<Self, Error> {
        ringwall_jail::restrict::allow_core_limit();
        let (number, privilege) = (0, host::privilege());
        let host = host::ids(privilege, box_uid(0));
        // On cgroup v2 it is created later, in its cgroup. Without Landlock a box could reach the
        // executable of its PID 1, and only the spawner runs from a copy.
        if layout::is_version_2() || ringwall_jail::landlock_version().is_err() {
            let (control, theirs) = wire::pair().map_err(talk)?;
            let birth = Spawned::NotYet(theirs);
            let network = NetworkSource::New;
            let prepared = Prepared { control, number, host, network, birth, parent: None, lease: None };
            return Ok(Early { prepared, privilege, init: None });
        }
        let (control, init) = ringwall_jail::spawn_init(&identity(privilege, host)).map_err(Error::Setup)?;
        let birth = Spawned::In(BaseRoot::Host);
        let network = NetworkSource::New;
        let prepared = Prepared { control, number, host, network, birth, parent: None, lease: None };
        Ok(Early { prepared, privilege, init: Some(init) })
    }
}

/// A box that has at most its namespaces.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) control: OwnedFd,
    pub(crate) number: u64,
    pub(crate) host: Owner,
    /// Whether the network namespace is new or reused.
    pub(crate) network: NetworkSource,
    pub(crate) birth: Spawned,
    /// The spawner process that makes PID 1, if it was asked already.
    pub(crate) parent: Option<Parent>,
    /// The uid of a box without a workspace; the next box may have it after this one has ended.
    pub(crate) lease: Option<Lease>,
}

/// Whether PID 1 exists.
#[derive(Debug)]
pub(crate) enum Spawned {
    In(BaseRoot),
    /// The socket end for PID 1.
    NotYet(OwnedFd),
}

impl Executor {
    /// For a program that makes one box, which it has begun.
    pub fn of_one(early: Result<Early, Error>, data: &Path) -> Result<(Self, Prepared), Error> {
        let Early { prepared, privilege, init } = early?;
        let host = Host::probe_as(privilege);
        let spawner = Spawner::new(&host)?;
        let mut executor = Self::with(host, data, spawner);
        executor.own_child = init;
        executor.started.store(1, Ordering::Relaxed);
        Ok((executor, prepared))
    }

    /// Prepares a box with empty namespaces for this host user, or for one of its own. Dropping it
    /// ends the box.
    pub(crate) fn prepare_as(&self, owner: Option<Owner>, network: NetworkSource) -> Result<Prepared, Error> {
        let number = self.next_number();
        match (self.host.privilege, owner) {
            // Boxes of one workspace (a user and agent) share its uid and may share a network namespace.
            (Privilege::Root, Some(owner)) => self.begin(number, owner, network),
            // A box without a workspace has a uid that no other living box has.
            (Privilege::Root, None) => {
                let lease = self.own_uids.take().ok_or(Error::NoFreeUid { limit: OWN_UIDS })?;
                let mut prepared = self.begin(number, lease.owner(), NetworkSource::New)?;
                prepared.lease = Some(lease);
                Ok(prepared)
            }
            (Privilege::Rootless, _) => self.begin(number, host::ids(Privilege::Rootless, 0), NetworkSource::New),
        }
    }

    /// The same for a uid that serves boxes of different agents one after another: they share
    /// nothing.
    pub(crate) fn prepare_alone(&self, host: Owner) -> Result<Prepared, Error> {
        self.begin(self.next_number(), host, NetworkSource::New)
    }

    fn next_number(&self) -> u64 {
        self.started.fetch_add(1, Ordering::Relaxed)
    }

    /// Requests PID 1 now, or leaves it for later.
    fn begin(&self, number: u64, host: Owner, network: NetworkSource) -> Result<Prepared, Error> {
        let (control, theirs) = wire::pair().map_err(talk)?;
        let birth = Spawned::NotYet(theirs);
        let mut prepared = Prepared { control, number, host, network, birth, parent: None, lease: None };
        match &self.host.cgroups {
            // Created later, directly in its cgroup.
            Ok(layout) if layout.version == CgroupVersion::V2 => {}
            // Created at once; it joins its cgroups later.
            _ => {
                let Spawned::NotYet(theirs) = &prepared.birth else { return Ok(prepared) };
                let parent = ask_for_birth(&self.spawner, self.host.privilege, &prepared, &[theirs.as_fd()])?;
                prepared.birth = Spawned::In(parent.base_root);
                prepared.parent = Some(parent);
            }
        }
        Ok(prepared)
    }
}

/// A network namespace with a proxy socket is never reused, because a socket in it may still be
/// open.
pub(crate) fn network(grant: &Grant) -> NetworkSource {
    match grant.effective().net {
        ringwall_policy::Net::None => NetworkSource::Reused,
        ringwall_policy::Net::Allowlist { .. } => NetworkSource::New,
    }
}

pub(crate) fn ask_for_birth(
    spawner: &Spawner,
    privilege: Privilege,
    prepared: &Prepared,
    descriptors: &[BorrowedFd<'_>],
) -> Result<Parent, Error> {
    let Prepared { number, host, network, .. } = *prepared;
    spawner.request(&Request::Box { number, identity: identity(privilege, host), network }, descriptors)
}

fn identity(privilege: Privilege, host: Owner) -> Identity {
    Identity {
        privilege,
        inside_uid: box_layout::UID,
        inside_gid: box_layout::GID,
        host_uid: host.uid,
        host_gid: host.gid,
    }
}
