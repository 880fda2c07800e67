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

use super::argv::{Particulars, Sizes, argv_ahead, image};
use super::container::{Container, Errand};
use super::daemon::{Daemon, Runtime};
use super::environment::EnvironmentFile;
use super::events::{ContainerId, Story};
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
use crate::session_box::{Awake, Resident, Wardrobe};
use crate::sources::{check_working_directory, is_alone, owner};
use crate::uids::SPARE_UIDS;

const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// Making a container uses one CPU for about a third of a second, so no exec may have asked for a
/// box for this long.
const QUIET: Duration = Duration::from_millis(500);
/// Native warm boxes use the other half of these uids.
const MAX_COUNT: u32 = SPARE_UIDS / 2;

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
pub struct ContainerSpare {
    shared: Arc<Shared>,
    shape: ContainerShape,
    awake: Awake,
    /// The container's user, which has the same uid on the host.
    user: Owner,
    init: Init,
    story: watch::Receiver<Story>,
    /// [`Images::changes`](super::images::Images::changes) when the container was made.
    images: u64,
}

impl Docker {
    /// The shape of the warm containers that can serve this grant. `None` if this server is not
    /// root, if the daemon uses a user namespace or is rootless, and for a session with more than
    /// its own files, a network or environment variables.
    pub async fn shape_for(&self, executor: &Executor, grant: &Grant) -> Option<ContainerShape> {
        let shared = self.shared(Runtime::Usual).ok()?;
        let shows_a_session_alone = matches!(grant.workspace(), Workspace::Session(mounts) if is_alone(mounts));
        let fits = shows_a_session_alone && grant.read_only().is_empty() && grant.env().is_empty();
        let fits = fits && grant.effective().net == Net::None && executor.makes_spares();
        if !fits || shared.is_not_for_spares.load(Ordering::Acquire) {
            return None;
        }
        let image = image(grant).ok()?.clone();
        let daemon = shared.find_daemon(Runtime::Usual).await.ok()?;
        let has = |name: &str| daemon.security.iter().any(|option| option.split(',').any(|part| part == name));
        let is_required = check(grant, &protection::protections(&daemon, Runtime::Usual), Runtime::Usual.backend());
        if has("name=userns") || has("name=rootless") || is_required.is_err() {
            return None;
        }
        Some(ContainerShape { daemon, image, sizes: Sizes::of(grant) })
    }

    /// False without a docker client, and once an attempt has shown that warm containers cannot
    /// work here.
    pub fn is_for_spares(&self) -> bool {
        self.shared(Runtime::Usual).is_ok_and(|shared| !shared.is_not_for_spares.load(Ordering::Acquire))
    }

    /// Starts a warm container and checks it. Takes as long as starting any container.
    pub async fn prepare_spare(&self, executor: &Executor, shape: &ContainerShape) -> Result<ContainerSpare, Error> {
        let shared = self.shared(Runtime::Usual)?;
        if !self.is_for_spares() {
            return Err(Error::SpareUnfit("containers cannot be made ahead here"));
        }
        let mut lease = executor.leases.take(MAX_COUNT).ok_or(Error::SpareUnfit("there are too many of them"))?;
        let (user, init) = (lease.owner(), Init::default());
        lease.bind(Arc::clone(&init));
        let images = shared.images.changes();
        let name = name()?;
        let mut container = shared.in_time(Runtime::Usual, launch(shared, shape, user, &name)).await?;
        container.hold(lease);
        let story = container.story();
        let awake = Awake::begin(container.into_running()).await?;
        let proven = async {
            let (pid, id) = find_first_process(shared, &name, &story).await?;
            prove(pid, id, user, &init)?;
            enter(&init, |process| ringwall_jail::late_mounts::check(process, WORKSPACE)).await
        };
        match proven.await {
            Ok(()) => {
                let (shared, shape) = (Arc::clone(shared), shape.clone());
                Ok(ContainerSpare { shared, shape, awake, user, init, story, images })
            }
            Err(error) => {
                awake.end().await;
                shared.note(&error);
                Err(error)
            }
        }
    }

    /// Turns a warm container into the box of a session. On failure the container is removed and
    /// the grant returned.
    pub async fn start_resident_in(
        &self,
        executor: &Executor,
        spare: ContainerSpare,
        grant: Grant,
    ) -> Result<Resident, Box<Unserved>> {
        let served = match self.shape_for(executor, &grant).await {
            Some(shape) if shape == spare.shape => spare.receive(executor, &grant).await,
            Some(_) | None => Err(Error::SpareUnfit("its shape is another")),
        };
        match served {
            Ok(()) => Ok(Resident::of(spare.awake, grant, Wardrobe::Image)),
            Err(error) => {
                spare.shared.note(&error);
                spare.awake.end().await;
                Err(Box::new(Unserved { grant, error }))
            }
        }
    }
}

impl ContainerSpare {
    /// True if the container runs, no docker command touched it since its start, and no image name
    /// has changed its meaning.
    pub fn is_alive(&self) -> bool {
        let story = *self.story.borrow();
        let is_as_made = !story.is_touched && !is_over(&self.init) && self.images == self.shared.images.changes();
        is_as_made && self.awake.is_alive()
    }

    /// Ends the container. When this returns, all its processes are dead.
    pub async fn end(self) {
        self.awake.end().await;
    }

    /// Mounts the session's directory at `/workspace` and checks that the agent can enter it.
    async fn receive(&self, executor: &Executor, grant: &Grant) -> Result<(), Error> {
        if !self.is_alive() {
            return Err(Error::SpareUnfit("it does not wait any more"));
        }
        let whose = owner(grant).ok_or(Error::SpareUnfit("it shows a session's files alone"))?;
        let places = self.shared.open(grant)?;
        check_working_directory(grant, &places)?;
        let opened = places.iter().find_map(|place| place.content.as_ref());
        let (directory, access) = opened.ok_or(Error::SpareUnfit("it shows a session's files alone"))?;
        let source = Source { path: directory.path.clone(), identity: Some(directory.identity), owner: Some(whose) };
        let show = Operation::Bind { source, at: literal(WORKSPACE), kind: FileKind::Directory, access: *access };
        let mut mapping =
            |owner| executor.mappings.get(owner, self.user, || executor.spawner.mapping(owner, self.user));
        let tree = ringwall_jail::sources::open(&[show], &mut mapping).map_err(Error::Setup)?.pop();
        let tree = tree.ok_or(Error::SpareUnfit("it shows a session's files alone"))?;
        enter(&self.init, move |process| ringwall_jail::late_mounts::replace(&tree, process, WORKSPACE)).await?;
        // `is_alive` once more: events of a change may have arrived since the first check.
        match self.awake.reaches(WORKSPACE).await && self.is_alive() {
            true => Ok(()),
            false => Err(Error::SpareUnfit("it does not see the files")),
        }
    }
}

impl Shared {
    /// Stops further attempts after an error that would occur again: a failed proof, or a kernel or
    /// file system that refuses the mounts.
    fn note(&self, error: &Error) {
        let is_for_good = match error {
            Error::NoSparesHere(_) => true,
            Error::Setup(failure) => {
                let refusals = [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::PERM];
                refusals.iter().any(|errno| errno.raw_os_error() == failure.errno)
            }
            _ => false,
        };
        if is_for_good {
            self.is_not_for_spares.store(true, Ordering::Release);
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
    let particulars = Particulars {
        name,
        instance: &shared.instance,
        runtime: Runtime::Usual,
        environment: &environment.path(),
        python: Python::AsNamed,
        stay: Stay::Resident,
        program: Some(&program),
        doorway: None,
    };
    let words = argv_ahead(&shape.image, shape.sizes, (user.uid, user.gid), &shape.daemon, &particulars)?;
    let protections = protection::protections(&shape.daemon, Runtime::Usual);
    let errand = Errand { command: AGENT.to_owned(), time_limit: None };
    let mut container = shared.run(words, name, Runtime::Usual, protections, errand)?;
    shared.wait_for_start(&mut container, &shape.image, Runtime::Usual).await?;
    Ok(container)
}

/// A random name, because the exec or session is not known yet.
fn name() -> Result<ContainerName, Error> {
    let random = kernel_file::read("/proc/sys/kernel/random/uuid");
    let random = random.map_err(|_| Error::SpareUnfit("there is no random name for it"))?;
    ContainerName::of_exec(&format!("ahead-{}", random.trim()))
}

/// Inspects the container by name and returns its first process. The id must be the one that the
/// events reported.
async fn find_first_process(
    shared: &Shared,
    name: &ContainerName,
    story: &watch::Receiver<Story>,
) -> Result<(Pid, ContainerId), Error> {
    let words = ["inspect", "--type=container", "--format={{.Id}} {{.State.Pid}}", name.as_str()];
    let said = shared.client.call(words, ANSWERED_WITHIN).await;
    let said = said.map_err(|failure| unavailable(Runtime::Usual, failure.why()))?;
    let (id, pid) = said.trim().split_once(' ').unwrap_or_default();
    let followed = story.borrow().id;
    match (ContainerId::read(id), pid.parse().ok().and_then(Pid::from_raw)) {
        (Some(id), Some(pid)) if followed == Some(id) => Ok((pid, id)),
        _ => Err(Error::SpareUnfit("the daemon does not know it")),
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
        (Err(_), _) | (_, Ok(None) | Err(_)) => Err(Error::SpareUnfit("its mounts were not reached")),
    }
}
