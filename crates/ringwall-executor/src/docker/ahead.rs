//! Warm containers: started with our agent, an empty `/workspace` and a host user of their own,
//! before their session is known.
//!
//! The command line is that of a session's container without the files. When a session takes a warm
//! container, its directory is mounted into it from outside, through an ID mapping that shows the
//! owner's files as the container user's. The container then belongs to that session only. A
//! container that was touched through docker, or that fails a check, is removed. Every failure
//! returns the grant, and a cold container is made from it.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringwall_jail::agent::AGENT;
use ringwall_jail::plan::{FileKind, Operation, Owner, Source};
use ringwall_jail::report::Failure;
use ringwall_policy::{DockerImage, Grant, Net, Workspace};
use rustix::io::Errno;
use rustix::process::Pid;
use tokio::sync::{oneshot, watch};

use super::argv::{ContainerParams, Sizes, argv_ahead, image};
use super::container::{Container, Errand};
use super::daemon::{Daemon, Runtime};
use super::environment::EnvironmentFile;
use super::events::{ContainerId, ContainerState};
use super::launch::{Docker, Shared, unavailable};
use super::name::ContainerName;
use super::proof::prove;
use super::protection;
use crate::box_layout::WORKSPACE;
use crate::c_string::literal;
use crate::error::{Error, Unserved};
use crate::executor::Executor;
use crate::host::python::Python;
use crate::kernel_file;
use crate::pidfd::{Init, is_over};
use crate::plan::limits::Stay;
use crate::pool::{Pace, Sort};
use crate::process::program;
use crate::protection::check;
use crate::session_box::{AgentConnection, SessionBox, Wardrobe};
use crate::sources::{check_working_directory, is_alone, owner};
use crate::uids::WARM_UIDS;

const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Making a container uses one CPU for about a third of a second, so no exec may have asked for a
/// box for this long.
const QUIET: Duration = Duration::from_millis(500);
/// Native warm boxes use the other half of these uids.
const MAX_COUNT: u32 = WARM_UIDS / 2;

/// The properties that are fixed when a warm container is made. Grants of the same shape differ
/// only in their files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerShape {
    /// Part of the shape because the command line depends on the daemon's abilities.
    daemon: Daemon,
    image: DockerImage,
    sizes: Sizes,
}

impl Sort for ContainerShape {
    fn pause(&self, _waiting: usize) -> Duration {
        QUIET
    }

    fn pace(&self) -> Pace {
        Pace::Slow
    }
}

/// A warm container that no session has taken yet.
#[derive(Debug)]
pub struct WarmContainer {
    shared: Arc<Shared>,
    shape: ContainerShape,
    agent: AgentConnection,
    /// The container's user, which has the same uid on the host.
    user: Owner,
    init: Init,
    container_state: watch::Receiver<ContainerState>,
    /// [`Images::changes`](super::images::Images::changes) when the container was made.
    images: u64,
}

impl Docker {
    /// The shape of the warm containers that can serve this grant. `None` if this server is not
    /// root, if the daemon uses a user namespace or is rootless, and for a session with more than
    /// its own files, a network or environment variables.
    pub async fn shape_for(&self, executor: &Executor, grant: &Grant) -> Option<ContainerShape> {
        let shared = self.shared(Runtime::Default).ok()?;
        let shows_a_session_alone = matches!(grant.workspace(), Workspace::Session(mounts) if is_alone(mounts));
        let fits = shows_a_session_alone && grant.read_only().is_empty() && grant.env().is_empty();
        let fits = fits && grant.effective().net == Net::None && executor.makes_warm_boxes();
        if !fits || shared.is_not_for_warm_boxes.load(Ordering::Acquire) {
            return None;
        }
        let image = image(grant).ok()?.clone();
        let daemon = shared.find_daemon(Runtime::Default).await.ok()?;
        let has = |name: &str| daemon.security.iter().any(|option| option.split(',').any(|part| part == name));
        let is_required = check(grant, &protection::protections(&daemon, Runtime::Default), Runtime::Default.backend());
        if has("name=userns") || has("name=rootless") || is_required.is_err() {
            return None;
        }
        Some(ContainerShape { daemon, image, sizes: Sizes::of(grant) })
    }

    /// False without a docker client, and once an attempt has shown that warm containers cannot
    /// work here.
    pub fn is_for_warm_boxes(&self) -> bool {
        self.shared(Runtime::Default).is_ok_and(|shared| !shared.is_not_for_warm_boxes.load(Ordering::Acquire))
    }

    /// Starts a warm container and checks it. Takes as long as starting any container.
    pub async fn prepare_warm_box(&self, executor: &Executor, shape: &ContainerShape) -> Result<WarmContainer, Error> {
        let shared = self.shared(Runtime::Default)?;
        if !self.is_for_warm_boxes() {
            return Err(Error::WarmBoxUnfit("containers cannot be made ahead here"));
        }
        let mut lease = executor.leases.take(MAX_COUNT).ok_or(Error::WarmBoxUnfit("there are too many of them"))?;
        let (user, init) = (lease.owner(), Init::default());
        lease.bind(Arc::clone(&init));
        let images = shared.images.changes();
        let name = name()?;
        let mut container = shared.in_time(Runtime::Default, launch(shared, shape, user, &name)).await?;
        container.hold(lease);
        let container_state = container.container_state();
        let agent = AgentConnection::begin(container.into_running()).await?;
        let proven = async {
            let (pid, id) = find_first_process(shared, &name, &container_state).await?;
            prove(pid, id, user, &init)?;
            enter(&init, |process| ringwall_jail::late_mounts::check(process, WORKSPACE)).await
        };
        match proven.await {
            Ok(()) => {
                let (shared, shape) = (Arc::clone(shared), shape.clone());
                Ok(WarmContainer { shared, shape, agent, user, init, container_state, images })
            }
            Err(error) => {
                agent.end().await;
                shared.note(&error);
                Err(error)
            }
        }
    }

    /// Turns a warm container into the box of a session. On failure the container is removed and
    /// the grant returned.
    pub async fn start_session_box_in(
        &self,
        executor: &Executor,
        warm_box: WarmContainer,
        grant: Grant,
    ) -> Result<SessionBox, Box<Unserved>> {
        let served = match self.shape_for(executor, &grant).await {
            Some(shape) if shape == warm_box.shape => warm_box.receive(executor, &grant).await,
            Some(_) | None => Err(Error::WarmBoxUnfit("its shape is another")),
        };
        match served {
            Ok(()) => Ok(SessionBox::of(warm_box.agent, grant, Wardrobe::Image)),
            Err(error) => {
                warm_box.shared.note(&error);
                warm_box.agent.end().await;
                Err(Box::new(Unserved { grant, error }))
            }
        }
    }
}

impl WarmContainer {
    /// True if the container runs, no docker command touched it since its start, and no image name
    /// has changed its meaning.
    pub fn is_alive(&self) -> bool {
        let container_state = *self.container_state.borrow();
        let is_as_made =
            !container_state.is_touched && !is_over(&self.init) && self.images == self.shared.images.changes();
        is_as_made && self.agent.is_alive()
    }

    /// Ends the container. When this returns, all its processes are dead.
    pub async fn end(self) {
        self.agent.end().await;
    }

    /// Mounts the session's directory at `/workspace` and checks that the agent can enter it.
    async fn receive(&self, executor: &Executor, grant: &Grant) -> Result<(), Error> {
        if !self.is_alive() {
            return Err(Error::WarmBoxUnfit("it does not wait any more"));
        }
        let whose = owner(grant).ok_or(Error::WarmBoxUnfit("it shows a session's files alone"))?;
        let places = self.shared.open(grant)?;
        check_working_directory(grant, &places)?;
        let opened = places.iter().find_map(|place| place.content.as_ref());
        let (directory, access) = opened.ok_or(Error::WarmBoxUnfit("it shows a session's files alone"))?;
        let source = Source { path: directory.path.clone(), identity: Some(directory.identity), owner: Some(whose) };
        let show = Operation::Bind { source, at: literal(WORKSPACE), kind: FileKind::Directory, access: *access };
        let mut mapping =
            |owner| executor.mappings.get(owner, self.user, || executor.spawner.mapping(owner, self.user));
        let tree = ringwall_jail::sources::open(&[show], &mut mapping).map_err(Error::Setup)?.pop();
        let tree = tree.ok_or(Error::WarmBoxUnfit("it shows a session's files alone"))?;
        enter(&self.init, move |process| ringwall_jail::late_mounts::replace(&tree, process, WORKSPACE)).await?;
        // `is_alive` once more: events of a change may have arrived since the first check.
        match self.agent.reaches(WORKSPACE).await && self.is_alive() {
            true => Ok(()),
            false => Err(Error::WarmBoxUnfit("it does not see the files")),
        }
    }
}

impl Shared {
    /// Stops further attempts after an error that would occur again: a failed proof, or a kernel or
    /// file system that refuses the mounts.
    fn note(&self, error: &Error) {
        let is_for_good = match error {
            Error::NoWarmBoxes(_) => true,
            Error::Setup(failure) => {
                let refusals = [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::PERM];
                refusals.iter().any(|errno| errno.raw_os_error() == failure.errno)
            }
            _ => false,
        };
        if is_for_good {
            self.is_not_for_warm_boxes.store(true, Ordering::Release);
        }
    }
}

async fn launch(
    shared: &Arc<Shared>,
    shape: &ContainerShape,
    user: Owner,
    name: &ContainerName,
) -> Result<Container, Error> {
    let environment = EnvironmentFile::ahead()?;
    shared.keep_watch()?;
    let program = program::place()?;
    let params = ContainerParams {
        name,
        instance: &shared.instance,
        runtime: Runtime::Default,
        environment: &environment.path(),
        python: Python::AsNamed,
        stay: Stay::SessionBox,
        program: Some(&program),
        doorway: None,
    };
    let words = argv_ahead(&shape.image, shape.sizes, (user.uid, user.gid), &shape.daemon, &params)?;
    let protections = protection::protections(&shape.daemon, Runtime::Default);
    let errand = Errand { command: AGENT.to_owned(), time_limit: None };
    let mut container = shared.run(words, name, Runtime::Default, protections, errand)?;
    shared.wait_for_start(&mut container, &shape.image, Runtime::Default).await?;
    Ok(container)
}

/// A random name, because the exec or session is not known yet.
fn name() -> Result<ContainerName, Error> {
    let random = kernel_file::read("/proc/sys/kernel/random/uuid");
    let random = random.map_err(|_| Error::WarmBoxUnfit("there is no random name for it"))?;
    ContainerName::of_exec(&format!("ahead-{}", random.trim()))
}

/// Inspects the container by name and returns its first process. The id must be the one that the
/// events reported.
async fn find_first_process(
    shared: &Shared,
    name: &ContainerName,
    container_state: &watch::Receiver<ContainerState>,
) -> Result<(Pid, ContainerId), Error> {
    let words = ["inspect", "--type=container", "--format={{.Id}} {{.State.Pid}}", name.as_str()];
    let said = shared.client.call(words, ANSWERED_WITHIN).await;
    let said = said.map_err(|failure| unavailable(Runtime::Default, failure.why()))?;
    let (id, pid) = said.trim().split_once(' ').unwrap_or_default();
    let followed = container_state.borrow().id;
    match (ContainerId::read(id), pid.parse().ok().and_then(Pid::from_raw)) {
        (Some(id), Some(pid)) if followed == Some(id) => Ok((pid, id)),
        _ => Err(Error::WarmBoxUnfit("the daemon does not know it")),
    }
}

/// Runs `work` on a thread of its own: `work` moves the thread into the mount namespace of `init`,
/// and it cannot move back.
async fn enter(
    init: &Init,
    work: impl FnOnce(BorrowedFd<'_>) -> Result<(), Failure> + Send + 'static,
) -> Result<(), Error> {
    let (told, done) = oneshot::channel();
    let init = Arc::clone(init);
    let thread = std::thread::Builder::new().name("mounts".to_owned()).spawn(move || {
        // The receiver may have been dropped.
        let _ = told.send(init.get().map(|process| work(process.as_fd())));
    });
    match (thread, done.await) {
        (Ok(_), Ok(Some(done))) => done.map_err(Error::Setup),
        (Err(_), _) | (_, Ok(None) | Err(_)) => Err(Error::WarmBoxUnfit("its mounts were not reached")),
    }
}
