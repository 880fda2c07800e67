//! A box before its command is known: its namespaces and its host user.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;

use ringwall_jail::plan::{CgroupVersion, Owner, Privilege};
use ringwall_jail::{NetworkSource, Request, wire};
use ringwall_policy::Grant;
use rustix::process::Pid;

use crate::cgroup::layout;
use crate::error::{Error, talk};
use crate::executor::Executor;
use crate::host;
use crate::host::Host;
use crate::plan::lower::{BaseRoot, identity};
use crate::process::spawner::{Parent, Spawner};
use crate::uids::{Lease, MAX_UIDS, box_uid};

/// The box of `ringwall run`, started first: its namespaces are made while the program reads its
/// arguments and probes the host.
#[derive(Debug)]
pub struct Early {
    prepared: Prepared,
    privilege: Privilege,
    init: Option<Pid>,
}

impl Early {
    /// Call it before any other work, while the process has one thread.
    pub fn begin() -> Result<Self, Error> {
        ringwall_jail::restrict::allow_core_limit();
        let privilege = host::privilege();
        let (number, host, network) = (0, host::ids(privilege, box_uid(0)), NetworkSource::New);
        // On cgroup v2 PID 1 is created later, in its cgroup. Without Landlock a box could reach the
        // executable of its PID 1, and only the spawner runs from a copy.
        if layout::is_version_2() || ringwall_jail::landlock_version().is_err() {
            return Ok(Early { prepared: Prepared::new(number, host, network)?, privilege, init: None });
        }
        let (control, pid) = ringwall_jail::spawn_init(&identity(privilege, host)).map_err(Error::Setup)?;
        let init = InitProcess::Spawned(BaseRoot::Host);
        let prepared = Prepared { control, number, host, network, init, parent: None, lease: None };
        Ok(Early { prepared, privilege, init: Some(pid) })
    }
}

/// A box that has at most its namespaces. Dropping it ends the box.
#[derive(Debug)]
pub struct Prepared {
    pub(super) control: OwnedFd,
    pub(super) number: u64,
    pub(super) host: Owner,
    network: NetworkSource,
    pub(super) init: InitProcess,
    /// The spawner process that makes PID 1, if it was asked already.
    pub(super) parent: Option<Parent>,
    /// A host uid that no other living box has. The next box may have it after this one has ended.
    pub(super) lease: Option<Lease>,
}

/// PID 1 of a prepared box.
#[derive(Debug)]
pub(super) enum InitProcess {
    Spawned(BaseRoot),
    /// The socket end for PID 1.
    NotYet(OwnedFd),
}

impl Prepared {
    fn new(number: u64, host: Owner, network: NetworkSource) -> Result<Self, Error> {
        let (control, theirs) = wire::pair().map_err(talk)?;
        let init = InitProcess::NotYet(theirs);
        Ok(Prepared { control, number, host, network, init, parent: None, lease: None })
    }
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

    /// Prepares a box with empty namespaces for this host user, or for one of its own.
    pub(super) fn prepare_for(&self, owner: Option<Owner>, network: NetworkSource) -> Result<Prepared, Error> {
        match (self.host.privilege, owner) {
            // Boxes of one workspace (a user and agent) share its uid and may share a network namespace.
            (Privilege::Root, Some(owner)) => self.prepare(owner, network),
            (Privilege::Root, None) => {
                let lease = self.own_uids.take().ok_or(Error::NoFreeUid { limit: MAX_UIDS })?;
                self.prepare_leased(lease)
            }
            (Privilege::Rootless, _) => self.prepare(host::ids(Privilege::Rootless, 0), NetworkSource::New),
        }
    }

    /// Prepares a box with a uid of its own, which shares nothing with other boxes.
    pub(super) fn prepare_leased(&self, lease: Lease) -> Result<Prepared, Error> {
        let mut prepared = self.prepare(lease.owner(), NetworkSource::New)?;
        prepared.lease = Some(lease);
        Ok(prepared)
    }

    fn prepare(&self, host: Owner, network: NetworkSource) -> Result<Prepared, Error> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let mut prepared = Prepared::new(number, host, network)?;
        let is_version_2 = self.host.cgroups.as_ref().is_ok_and(|layout| layout.version == CgroupVersion::V2);
        match &prepared.init {
            // On version 1 PID 1 joins its cgroups later; on version 2 it is created in its cgroup.
            InitProcess::NotYet(theirs) if !is_version_2 => {
                let parent = self.request_init(&prepared, &[theirs.as_fd()])?;
                prepared.init = InitProcess::Spawned(parent.base_root);
                prepared.parent = Some(parent);
            }
            InitProcess::NotYet(_) | InitProcess::Spawned(_) => {}
        }
        Ok(prepared)
    }

    /// The root in which PID 1 starts.
    pub(super) fn base_root(&self, prepared: &Prepared) -> Result<BaseRoot, Error> {
        match &prepared.init {
            InitProcess::Spawned(base_root) => Ok(*base_root),
            InitProcess::NotYet(_) => self.spawner.base_root(),
        }
    }

    /// Asks the spawner to create PID 1.
    pub(super) fn request_init(&self, prepared: &Prepared, descriptors: &[BorrowedFd<'_>]) -> Result<Parent, Error> {
        let Prepared { number, host, network, .. } = *prepared;
        let identity = identity(self.host.privilege, host);
        self.spawner.request(&Request::Box { number, identity, network }, descriptors)
    }
}

/// A network namespace with a proxy socket is never reused, because a socket in it may still be
/// open.
pub(super) fn network(grant: &Grant) -> NetworkSource {
    match grant.effective().net {
        ringwall_policy::Net::None => NetworkSource::Reused,
        ringwall_policy::Net::Allowlist { .. } => NetworkSource::New,
    }
}
