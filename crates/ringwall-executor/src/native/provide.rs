//! Sends PID 1 what it cannot make inside the box: the plan, as root the cloned mounts, and the
//! cgroups.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use ringwall_jail::CgroupReaper;
use ringwall_jail::plan::{Cgroups, Plan, Privilege, WarmMode};
use ringwall_jail::report::{Protection, ProtectionName, Step, StepTime};
use ringwall_jail::restrict;
use rustix::io::Errno;
use rustix::process::Pid;

use crate::cgroup::groups;
use crate::cgroup::groups::Groups;
use crate::error::{Error, talk};
use crate::executor::Executor;
use crate::native::prepare::{Prepared, Spawned, ask_for_birth};
use crate::process::spawner::Parent;

/// The steps done by this process.
pub(crate) const OWN_STEPS: [Step; 2] = [Step::MakeCgroups, Step::OpenSources];

/// Resources made for a box before it starts.
#[derive(Debug, Default)]
pub(crate) struct Resources {
    pub(crate) groups: Groups,
    pub(crate) protections: Vec<Protection>,
    pub(crate) steps: Vec<StepTime>,
    pub(crate) parent: Option<Parent>,
}

/// What to hand over to PID 1.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) plan: Plan,
    /// Set for a warm box.
    pub(crate) ahead: Option<WarmMode>,
    /// The command's ends of the streams.
    pub(crate) streams: &'a [OwnedFd],
    /// The step at which a crash test holds the box.
    pub(crate) hold_at: Option<Step>,
}

impl Executor {
    /// Sends PID 1 its plan, as root the cloned mounts, and then, while it builds the root, the
    /// cgroups. On cgroup v2 the cgroup comes first, because PID 1 is created in it.
    pub(crate) fn provide(
        &self,
        prepared: &Prepared,
        wanted: Wanted<'_>,
        resources: &mut Resources,
    ) -> Result<(), Error> {
        let Wanted { plan, ahead, streams, hold_at } = wanted;
        let mut clock = Instant::now();
        let mut done = |resources: &mut Resources, step| {
            let microseconds = u32::try_from(clock.elapsed().as_micros()).unwrap_or(u32::MAX);
            resources.steps.push(StepTime { step, microseconds });
            clock = Instant::now();
            hold_at == Some(step)
        };
        let (cgroups, required) = (plan.cgroups.clone(), plan.required.clone());
        if let Spawned::NotYet(theirs) = &prepared.birth {
            self.make_groups(cgroups.as_ref(), &required, resources)?;
            if done(resources, Step::MakeCgroups) {
                return Ok(());
            }
            let mut descriptors = vec![theirs.as_fd()];
            descriptors.extend(resources.groups.entry());
            let parent = ask_for_birth(&self.spawner, self.host.privilege, prepared, &descriptors)?;
            resources.parent = Some(parent);
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
        sent(ringwall_jail::send_plan(&prepared.control, plan, ahead, streams, &trees))?;
        if let Spawned::In(_) = prepared.birth {
            self.make_groups(cgroups.as_ref(), &required, resources)?;
            if done(resources, Step::MakeCgroups) {
                return Ok(());
            }
        }
        let Groups { join_files, counters, socket_counter, .. } = &resources.groups;
        let protections = resources.protections.clone();
        sent(ringwall_jail::send_limits(&prepared.control, join_files, counters, socket_counter.as_ref(), protections))
    }

    fn make_groups(
        &self,
        cgroups: Option<&Cgroups>,
        required: &[ProtectionName],
        resources: &mut Resources,
    ) -> Result<(), Error> {
        if let Some(cgroups) = cgroups {
            if let Some(init) = self.own_child {
                self.start_cgroup_reaper(init, cgroups)?;
            }
            let kept = self.cache.as_ref().and_then(|cache| cache.take(cgroups));
            let groups = kept.map_or_else(|| Groups::make(cgroups), Ok).map_err(Error::Setup)?;
            resources.protections.extend_from_slice(&groups.protections);
            resources.groups = groups;
        }
        restrict::require(required, &resources.protections).map_err(Error::Setup)
    }

    /// Starts the reaper, which outlives this process, for the groups that will be made. (A spawner
    /// knows them by their names.)
    fn start_cgroup_reaper(&self, init: Pid, cgroups: &Cgroups) -> Result<(), Error> {
        let cgroup_reaper = CgroupReaper::start(init, groups::paths(cgroups)).map_err(talk)?;
        // Set once, because this process makes one box.
        let _ = self.cgroup_reaper.set(cgroup_reaper);
        Ok(())
    }
}

/// If PID 1 has ended, its report is read next.
fn sent(outcome: rustix::io::Result<()>) -> Result<(), Error> {
    match outcome {
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(errno) => Err(talk(errno)),
    }
}
