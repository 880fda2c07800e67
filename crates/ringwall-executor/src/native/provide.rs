//! Sends PID 1 what it cannot make inside the box: the plan, the cgroups, and as root the cloned
//! mounts.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use ringwall_jail::CgroupReaper;
use ringwall_jail::plan::{Cgroups, Plan, Privilege, WarmKind};
use ringwall_jail::report::{Protection, ProtectionName, Step, StepTime};
use ringwall_jail::restrict;
use rustix::io::Errno;

use crate::cgroup::groups;
use crate::cgroup::groups::Groups;
use crate::error::{Error, talk};
use crate::executor::Executor;
use crate::native::prepare::{InitProcess, Prepared};
use crate::process::spawner::Parent;

/// The steps done by this process.
pub(super) const OWN_STEPS: [Step; 2] = [Step::MakeCgroups, Step::OpenSources];

/// Resources made for a box before it starts.
#[derive(Debug, Default)]
pub(super) struct Resources {
    pub(super) groups: Groups,
    pub(super) protections: Vec<Protection>,
    pub(super) steps: Vec<StepTime>,
    pub(super) parent: Option<Parent>,
}

impl Executor {
    /// Sends PID 1 its plan, as root the cloned mounts, and then, while it builds the root, the
    /// cgroups. On cgroup v2 the cgroup comes first, because PID 1 is created in it. `streams` are the
    /// command's ends. Stops at a step at which the plan holds the box.
    pub(super) fn provide(
        &self,
        prepared: &Prepared,
        plan: Plan,
        warm: Option<WarmKind>,
        streams: &[OwnedFd],
        resources: &mut Resources,
    ) -> Result<(), Error> {
        let (mut clock, hold_at) = (Instant::now(), plan.hold_at);
        let mut done = |resources: &mut Resources, step| {
            let microseconds = u32::try_from(clock.elapsed().as_micros()).unwrap_or(u32::MAX);
            resources.steps.push(StepTime { step, microseconds });
            clock = Instant::now();
            hold_at == Some(step)
        };
        let (cgroups, required) = (plan.cgroups.clone(), plan.required.clone());
        if let InitProcess::NotYet(theirs) = &prepared.init {
            self.make_groups(cgroups.as_ref(), &required, resources)?;
            if done(resources, Step::MakeCgroups) {
                return Ok(());
            }
            let mut descriptors = vec![theirs.as_fd()];
            descriptors.extend(resources.groups.entry());
            resources.parent = Some(self.request_init(prepared, &descriptors)?);
        }
        let mut trees = Vec::new();
        if self.host.privilege == Privilege::Root {
            let mut mapping = |owner| match self.own_child {
                Some(_) => ringwall_jail::sources::mapping(owner, prepared.host),
                None => self.spawner.mapping(owner, prepared.host),
            };
            trees = ringwall_jail::sources::open(&plan.operations, &mut mapping).map_err(Error::Setup)?;
        }
        if done(resources, Step::OpenSources) {
            return Ok(());
        }
        unless_ended(ringwall_jail::send_plan(&prepared.control, plan, warm, streams, &trees))?;
        if let InitProcess::Spawned(_) = prepared.init {
            self.make_groups(cgroups.as_ref(), &required, resources)?;
            if done(resources, Step::MakeCgroups) {
                return Ok(());
            }
        }
        let Groups { join_files, counters, socket_counter, .. } = &resources.groups;
        let protections = resources.protections.clone();
        unless_ended(ringwall_jail::send_limits(
            &prepared.control,
            join_files,
            counters,
            socket_counter.as_ref(),
            protections,
        ))
    }

    fn make_groups(
        &self,
        cgroups: Option<&Cgroups>,
        required: &[ProtectionName],
        resources: &mut Resources,
    ) -> Result<(), Error> {
        if let Some(cgroups) = cgroups {
            if let Some(init) = self.own_child {
                // It outlives this process. A spawner knows the groups by their names.
                let reaper = CgroupReaper::start(init, groups::paths(cgroups)).map_err(talk)?;
                // Set once, because this process makes one box.
                let _ = self.cgroup_reaper.set(reaper);
            }
            let cached = self.cache.as_ref().and_then(|cache| cache.take(cgroups));
            let groups = cached.map_or_else(|| Groups::make(cgroups), Ok).map_err(Error::Setup)?;
            resources.protections.extend_from_slice(&groups.protections);
            resources.groups = groups;
        }
        restrict::require(required, &resources.protections).map_err(Error::Setup)
    }
}

/// The result of a message to PID 1. If it has ended, that is no error: its report is read next.
pub(super) fn unless_ended(sent: rustix::io::Result<()>) -> Result<(), Error> {
    match sent {
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(errno) => Err(talk(errno)),
    }
}
