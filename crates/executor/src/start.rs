//! From a grant to a running box: lower it, provide what PID 1 cannot have from inside, wait until all is in force.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use jail::plan::{CgroupVersion, Cgroups, Identity, Owner, Plan, Privilege};
use jail::report::{Protection, ProtectionName, Report, Step, StepTime};
use jail::{NetworkSource, Request, Undertaker, restrict, wire};
use policy::Grant;
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions};
use tokio::net::UnixStream;

use crate::error::{Error, talk};
use crate::groups::{self, Groups};
use crate::host::{self, Host};
use crate::image::Store;
use crate::lower::{Birthplace, Particulars, lower};
use crate::running::{Running, Streams, receive};
use crate::shelf::Shelf;
use crate::sources::{self, Sources};
use crate::spawner::{PATIENCE, Parent, Spawner};
use crate::{cgroup, etc};

/// The first of the user ids that boxes get as root: in the range that systemd's table of ids leaves unused.
const FIRST_BOX_UID: u32 = 1_880_000_000;

/// Makes boxes.
#[derive(Debug)]
pub struct Executor {
    host: Host,
    spawner: Spawner,
    images: Store,
    /// Our own files, hidden from every box; `None` while there are none.
    data: Option<PathBuf>,
    started: AtomicU64,
    /// Cgroups for the next box, where they can be used again.
    shelf: Option<Arc<Shelf>>,
    /// A PID 1 that is a child of this very process, and whoever removes its cgroups should this process be killed.
    own_child: Option<Pid>,
    undertaker: OnceLock<Undertaker>,
}

/// The one box of a program that makes one, begun before the program knows anything else: its namespaces get ready while
/// it reads its arguments and looks at the host.
#[derive(Debug)]
pub struct Early {
    prepared: Prepared,
    privilege: Privilege,
    init: Option<Pid>,
}

impl Early {
    /// Call it first of all, while there is one thread.
    pub fn begin() -> Result<Self, Error> {
        let (number, privilege) = (0, host::privilege());
        let host = host::ids(privilege, box_uid(number));
        // On version 2 it is born into its cgroup, later. Without Landlock a box could reach the program that its PID 1
        // runs from, and only a spawner runs from a copy.
        if cgroup::is_version_2() || jail::landlock_version().is_err() {
            let (control, theirs) = wire::pair().map_err(talk)?;
            let prepared = Prepared { control, number, host, birth: Born::NotYet(theirs), parent: None };
            return Ok(Early { prepared, privilege, init: None });
        }
        let (control, init) = jail::bear_alone(&identity(privilege, host)).map_err(Error::Setup)?;
        let birth = Born::In(Birthplace::Host);
        let prepared = Prepared { control, number, host, birth, parent: None };
        Ok(Early { prepared, privilege, init: Some(init) })
    }
}

/// A box of which at most the namespaces exist.
#[derive(Debug)]
pub struct Prepared {
    control: OwnedFd,
    number: u64,
    host: Owner,
    birth: Born,
    /// Whoever bears it, where that is the spawner and it was asked already.
    parent: Option<Parent>,
}

/// Whether PID 1 is there already.
#[derive(Debug)]
enum Born {
    In(Birthplace),
    /// Its end of the socket.
    NotYet(OwnedFd),
}

/// What is no permission: how the box is shown, and where a test wants it to stop.
#[derive(Debug, Default, Clone, Copy)]
pub struct Options {
    pub terminal: Option<jail::plan::WindowSize>,
    pub hold_at: Option<Hold>,
}

/// Stop half-made at this step, say so, and wait for the end: crash tests kill boxes at each step.
#[derive(Debug, Clone, Copy)]
pub struct Hold {
    pub step: Step,
    pub held: fn(Step),
}

impl Executor {
    pub fn new(host: Host, data: &Path) -> Result<Self, Error> {
        let spawner = Spawner::new(&host)?;
        let mut executor = Self::with(host, data, spawner);
        executor.shelf = executor.spawner.keeps_groups().then(Arc::default);
        Ok(executor)
    }

    /// For a program that makes one box and ends, and has begun it already.
    pub fn of_one(early: Result<Early, Error>, data: &Path) -> Result<(Self, Prepared), Error> {
        let Early { prepared, privilege, init } = early?;
        let host = Host::probe_as(privilege);
        let spawner = Spawner::new(&host)?;
        let mut executor = Self::with(host, data, spawner);
        executor.own_child = init;
        executor.started.store(1, Ordering::Relaxed);
        Ok((executor, prepared))
    }

    fn with(host: Host, data: &Path, spawner: Spawner) -> Self {
        Executor {
            host,
            spawner,
            images: Store::open(data),
            data: sources::follow(data),
            started: AtomicU64::new(0),
            shelf: None,
            own_child: None,
            undertaker: OnceLock::new(),
        }
    }

    /// Removes what executors that were killed together with their spawners left behind.
    pub fn sweep(&self) {
        if let Ok(layout) = &self.host.cgroups {
            layout.sweep();
        }
    }

    pub fn host(&self) -> &Host {
        &self.host
    }

    /// Begins a box: empty namespaces, in which nothing runs and nothing is mounted, of this user on the host where one is
    /// said. Dropping them ends them.
    fn prepare_as(&self, owner: Option<Owner>) -> Result<Prepared, Error> {
        let birth = match &self.host.cgroups {
            Ok(layout) if layout.version == CgroupVersion::V2 => Birth::IntoCgroup,
            _ => Birth::Early,
        };
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let own = host::ids(self.host.privilege, box_uid(number));
        let host = match self.host.privilege {
            Privilege::Root => owner.unwrap_or(own),
            Privilege::Rootless => own,
        };
        begin(&self.spawner, number, self.host.privilege, host, birth)
    }

    /// Starts the granted command. When this returns, every protection is in force and the command begins.
    pub async fn start(&self, grant: Grant, options: Options) -> Result<Running, Error> {
        let prepared = self.prepare_as(owner(&grant))?;
        self.start_prepared(prepared, grant, options).await
    }

    /// The same in namespaces that were begun before.
    pub async fn start_prepared(&self, prepared: Prepared, grant: Grant, options: Options) -> Result<Running, Error> {
        // Namespaces that were begun for somebody else are of no use.
        let prepared = match owner(&grant) {
            Some(owner) if self.host.privilege == Privilege::Root && prepared.host != owner => {
                self.prepare_as(Some(owner))?
            }
            _ => prepared,
        };
        let Prepared { control, number, host: owner, birth, parent } = prepared;
        let sources = Sources::open(&grant, &self.images, self.data.as_deref())?;
        let particulars = Particulars {
            name: match self.host.cgroups {
                Ok(_) => self.spawner.group_name(number),
                Err(_) => String::new(),
            },
            host_uid: owner.uid,
            host_gid: owner.gid,
            terminal: options.terminal,
            hold_at: options.hold_at.map(|hold| hold.step),
            hidden: self.data.clone(),
            birthplace: match &birth {
                // Whoever is born in something outdated has to make everything.
                _ if !self.spawner.is_current() => Birthplace::Host,
                Born::In(birthplace) => *birthplace,
                Born::NotYet(_) => self.spawner.birthplace()?,
            },
        };
        let plan = lower(&grant, &self.host, &sources, &particulars)?;
        let time_limit = grant.effective().limits.get(policy::Field::TimeoutMs);
        let (mut streams, theirs) = match options.terminal {
            Some(_) => (None, Vec::new()),
            None => pipes(owner).map(|(ours, theirs)| (Some(ours), theirs)).map_err(talk)?,
        };
        let protections = plan.protections.clone();
        let mut belongings = Belongings { protections, parent, ..Belongings::default() };
        if let Err(error) = self.provide(&control, plan, number, owner, birth, &theirs, &options, &mut belongings) {
            belongings.groups.remove().await;
            return Err(last_words(&control).unwrap_or(error));
        }
        let Belongings { groups, steps, parent, .. } = belongings;
        drop(theirs);
        rustix::io::ioctl_fionbio(&control, true).map_err(talk)?;
        let control = UnixStream::from_std(control.into()).map_err(Error::Talk)?;
        let mut running = Running::new(control, time_limit, groups, self.shelf.clone(), steps, parent);
        if let Some(hold) = options.hold_at.filter(|hold| OWN_STEPS.contains(&hold.step)) {
            (hold.held)(hold.step);
            running.hold().await;
            return Err(Error::Held(hold.step));
        }
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let Ok(report) = tokio::time::timeout_at(deadline, receive(running.control())).await else {
                if let Some(parent) = running.parent() {
                    self.spawner.retire(parent);
                }
                running.give_up().await;
                return Err(Error::NoAnswer { from: "its first process" });
            };
            match report? {
                Some((Report::Started { protections, steps }, descriptors)) => {
                    running.started(protections, steps, descriptors.into_iter().next());
                    break;
                }
                Some((Report::Terminal, descriptors)) => {
                    streams = descriptors.into_iter().next().map(Streams::Terminal);
                }
                Some((Report::Failed(failure), _)) => {
                    running.clean_up().await;
                    return Err(Error::Setup(failure));
                }
                Some((Report::Holding(step), _)) => {
                    if let Some(hold) = options.hold_at {
                        (hold.held)(step);
                    }
                    running.hold().await;
                    return Err(Error::Held(step));
                }
                Some((Report::NotExecuted { .. } | Report::Ended { .. }, _)) | None => {
                    running.clean_up().await;
                    return Err(Error::JailDied);
                }
            }
        }
        running.streams = streams;
        drop(sources);
        Ok(running)
    }

    /// Gives PID 1 its plan and what it cannot have from inside: as root the trees that are mounted, then, while it
    /// builds, the cgroups. (One that is born into its cgroup gets that first.)
    #[expect(clippy::too_many_arguments, reason = "the parts of one box, each used once")]
    fn provide(
        &self,
        control: &OwnedFd,
        plan: Plan,
        number: u64,
        host: Owner,
        birth: Born,
        streams: &[OwnedFd],
        options: &Options,
        belongings: &mut Belongings,
    ) -> Result<(), Error> {
        let mut clock = Instant::now();
        let mut done = |belongings: &mut Belongings, step| {
            let microseconds = u32::try_from(clock.elapsed().as_micros()).unwrap_or(u32::MAX);
            belongings.steps.push(StepTime { step, microseconds });
            clock = Instant::now();
            options.hold_at.is_some_and(|hold| hold.step == step)
        };
        let (cgroups, required) = (plan.cgroups.clone(), plan.required.clone());
        if let Born::NotYet(theirs) = &birth {
            self.make_groups(cgroups.as_ref(), &required, belongings)?;
            if done(belongings, Step::MakeCgroups) {
                return Ok(());
            }
            let mut descriptors = vec![theirs.as_fd()];
            descriptors.extend(belongings.groups.birthplace());
            let parent = ask_for_birth(&self.spawner, number, self.host.privilege, host, &descriptors)?;
            belongings.parent = Some(parent);
        }
        let mut trees = Vec::new();
        if self.host.privilege == Privilege::Root {
            let mut mapping = |owner| match self.own_child {
                Some(_) => jail::sources::mapping(owner, host),
                None => self.spawner.mapping(owner, host),
            };
            trees = jail::sources::open(&plan.operations, &mut mapping).map_err(Error::Setup)?;
        }
        if done(belongings, Step::OpenSources) {
            return Ok(());
        }
        sent(jail::send_plan(control, plan, streams, &trees))?;
        if let Born::In(_) = birth {
            self.make_groups(cgroups.as_ref(), &required, belongings)?;
            if done(belongings, Step::MakeCgroups) {
                return Ok(());
            }
        }
        let Groups { doors, counters, .. } = &belongings.groups;
        sent(jail::send_limits(control, doors, counters, belongings.protections.clone()))
    }

    fn make_groups(
        &self,
        cgroups: Option<&Cgroups>,
        required: &[ProtectionName],
        belongings: &mut Belongings,
    ) -> Result<(), Error> {
        if let Some(cgroups) = cgroups {
            if let Some(init) = self.own_child {
                self.tell_undertaker(init, cgroups)?;
            }
            let kept = self.shelf.as_ref().and_then(|shelf| shelf.take(cgroups));
            let groups = kept.map_or_else(|| Groups::make(cgroups), Ok).map_err(Error::Setup)?;
            belongings.protections.extend_from_slice(&groups.protections);
            belongings.groups = groups;
        }
        restrict::require(required, &belongings.protections).map_err(Error::Setup)
    }

    /// Tells somebody who outlives this process which groups it is about to make. (A spawner knows them by their names.)
    fn tell_undertaker(&self, init: Pid, cgroups: &Cgroups) -> Result<(), Error> {
        let undertaker = jail::keep_watch(init, groups::paths(cgroups)).map_err(talk)?;
        // There is one box of our own, so there was none before.
        let _ = self.undertaker.set(undertaker);
        Ok(())
    }
}

/// The steps that this process does itself.
const OWN_STEPS: [Step; 2] = [Step::MakeCgroups, Step::OpenSources];

/// When PID 1 is born.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Birth {
    /// At once; it writes itself into its cgroups later.
    Early,
    /// When its cgroup is there, directly into it.
    IntoCgroup,
}

/// What is made for a box before it is told to begin.
#[derive(Debug, Default)]
struct Belongings {
    groups: Groups,
    protections: Vec<Protection>,
    steps: Vec<StepTime>,
    parent: Option<Parent>,
}

/// Whose files the box works on, where that says who it is.
fn owner(grant: &Grant) -> Option<Owner> {
    match grant.workspace() {
        policy::Workspace::Project(mounts) => Some(mounts.owner),
        policy::Workspace::Agent(mounts) => Some(mounts.owner),
        policy::Workspace::Private | policy::Workspace::Directory(_) => None,
    }
    .map(|owner| Owner { uid: owner.uid(), gid: owner.gid() })
}

/// A PID 1 that is gone already has said why, and that is read next.
fn sent(outcome: rustix::io::Result<()>) -> Result<(), Error> {
    match outcome {
        Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(()),
        Err(errno) => Err(talk(errno)),
    }
}

/// Why PID 1 failed, where it did: whoever removes its cgroups after it may have removed them under our hands, and that
/// is not what went wrong.
fn last_words(control: &OwnedFd) -> Option<Error> {
    rustix::io::ioctl_fionbio(control, true).ok()?;
    match wire::receive(control) {
        Ok(Some((Report::Failed(failure), _))) => Some(Error::Setup(failure)),
        _ => None,
    }
}

/// Asks for PID 1, or leaves that for later.
fn begin(spawner: &Spawner, number: u64, privilege: Privilege, host: Owner, birth: Birth) -> Result<Prepared, Error> {
    let (control, theirs) = wire::pair().map_err(talk)?;
    let (birth, parent) = match birth {
        Birth::Early => {
            let parent = ask_for_birth(spawner, number, privilege, host, &[theirs.as_fd()])?;
            (Born::In(parent.birthplace), Some(parent))
        }
        Birth::IntoCgroup => (Born::NotYet(theirs), None),
    };
    Ok(Prepared { control, number, host, birth, parent })
}

fn ask_for_birth(
    spawner: &Spawner,
    number: u64,
    privilege: Privilege,
    host: Owner,
    descriptors: &[BorrowedFd<'_>],
) -> Result<Parent, Error> {
    // A user id of its own is no other box's, before or after; a workspace's is that of all its boxes.
    let network = match privilege {
        Privilege::Root if host.uid != box_uid(number) => NetworkSource::OfItsUser,
        Privilege::Root | Privilege::Rootless => NetworkSource::New,
    };
    spawner.request(&Request::Box { number, identity: identity(privilege, host), network }, descriptors)
}

fn identity(privilege: Privilege, host: Owner) -> Identity {
    Identity { privilege, inside_uid: etc::UID, inside_gid: etc::GID, host_uid: host.uid, host_gid: host.gid }
}

impl Drop for Executor {
    /// Waits for a PID 1 of our own; dropping the undertaker or the spawner then waits for the rest, cgroups included.
    fn drop(&mut self) {
        if let Some(init) = self.own_child {
            while matches!(rustix::process::waitpid(Some(init), WaitOptions::empty()), Err(Errno::INTR)) {}
        }
    }
}

/// A user id that no other living box has: process ids are unique while they live, and a process goes through
/// 60 ids of its own before it comes back to the first.
fn box_uid(number: u64) -> u32 {
    const PROCESS_IDS: u32 = 1 << 22;
    FIRST_BOX_UID + (number % 60) as u32 * PROCESS_IDS + std::process::id() % PROCESS_IDS
}

/// Three pipes: our ends and the command's. A box never holds a descriptor of the host's. The pipes belong to the
/// box's user, because programs open their own streams again by name (`> /dev/stderr`).
fn pipes(owner: Owner) -> rustix::io::Result<(Streams, Vec<OwnedFd>)> {
    let make = || -> rustix::io::Result<(OwnedFd, OwnedFd)> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::fs::fchown(&read, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
        Ok((read, write))
    };
    let ((stdin, our_stdin), (our_stdout, stdout), (our_stderr, stderr)) = (make()?, make()?, make()?);
    let ours = Streams::Pipes { stdin: our_stdin, stdout: our_stdout, stderr: our_stderr };
    Ok((ours, vec![stdin, stdout, stderr]))
}
