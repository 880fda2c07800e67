//! Starts a server: repairs what the previous one left, and runs a test box before serving
//! requests.
//!
//! The order matters. The lock comes first, because execs may be marked as lost only if no other
//! server uses this directory. The test box comes last, because "ready" means that a box can be
//! created.

use std::collections::HashMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use ringwall_executor::docker::Docker;
use ringwall_executor::{Executor, Host};
use ringwall_ids::ExecId;
use ringwall_record::{Database, Scope, Store};
use ringwall_workspace::{Baselines, RecordEntry, Workspaces};
use rustix::fs::FlockOperation;
use tokio::runtime::Handle;

use crate::auth::Auth;
use crate::auth::digest_key::DigestKey;
use crate::auth::logins::Logins;
use crate::auth::tickets::Tickets;
use crate::auth::token;
use crate::blocking;
use crate::boxes::browser::Browsers;
use crate::boxes::{BoxBackends, BoxPool, Boxes, SessionGates};
use crate::disk::Quotas;
use crate::error::{Error, causes};
use crate::exec::assess::Assessors;
use crate::exec::queue::ExecQueue;
use crate::exec::registry::Registry;
use crate::metrics::Counters;
use crate::ops::health::ProbeError;
use crate::paths::log_path_control;
use crate::service::{Inner, Service};
use crate::settings::{PinnedSettings, Settings, setting_variable};
use crate::skills::Skills;
use crate::time::now;
use crate::workspace_locks::Locks;

const LOCK: &str = "server.lock";
const WORKSPACES: &str = "workspaces";
const SKILLS: &str = "skills";
const BASELINES: &str = "baselines";

/// The resolved start-up configuration.
#[derive(Debug, Clone)]
pub struct Config {
    /// Contains `workspaces`, `baselines`, `skills`, `owner.token`, `digest.key`, and the
    /// database unless that is elsewhere.
    pub data: PathBuf,
    pub database: Database,
    pub auth: Auth,
    /// Settings from flags, environment and file, which override the stored ones.
    pub pinned: PinnedSettings,
    /// The configuration file. Hidden from every box, because it may contain passwords.
    pub file: Option<PathBuf>,
}

impl Service {
    /// Opens a data directory, closes what a crash left unfinished and runs a test box.
    pub async fn open(config: Config) -> Result<Self, Error> {
        let (data, lock, digest_key) = blocking::in_place(|| {
            let lock = lock_data(&config.data)?;
            let data = ringwall_executor::real_path(&config.data).map_err(Error::start("open the data directory"))?;
            let digest_key = DigestKey::ensure(&data)?;
            Ok((data, lock, digest_key))
        })
        .await?;
        let store = open_record(config.database, &digest_key).await?;
        let settings = Settings::load(&store, &config.pinned).await?;
        for key in &settings.ignored {
            let variable = setting_variable(key);
            tracing::warn!(
                key,
                variable,
                "ignored a stored setting that only start-up configuration may set; to set it, restart the server with the variable"
            );
        }
        let aio = settings.aio.assigned()?;
        let owner_token = match config.auth {
            Auth::Tokens => Some(token::ensure_owner_token(&store, &data).await?),
            Auth::Disabled => None,
        };
        let skills_root = settings.skills.root.clone().map_or_else(|| data.join(SKILLS), PathBuf::from);
        let default_root = data.join(WORKSPACES);
        let default_root = default_root.to_str().ok_or("the data directory's name is not UTF-8");
        let workspace_root = settings.sandbox.root(default_root.map_err(Error::start("name the workspaces"))?);
        let workspace_root = workspace_root.map_err(Error::start("find the workspaces"))?;
        let workspaces_path = PathBuf::from(&workspace_root.host_path_native);
        let workspaces = blocking::in_place(|| open_workspaces(&workspaces_path, &store)).await?;
        let (baselines, skills) = blocking::in_place(|| open_skills(&data.join(BASELINES), &skills_root)).await?;
        let (executor, docker) = blocking::in_place(|| {
            let executor = Executor::new(Host::probe(), &data).map_err(Error::start("prepare the box executor"))?;
            executor.sweep();
            let docker = Docker::new(settings.sandbox.docker.asked(), &data);
            Ok((executor, docker.map_err(Error::start("prepare the docker client"))?))
        })
        .await?;
        let mut own_paths = vec![data, workspaces_path.clone(), skills_root];
        own_paths.extend(config.file.as_deref().and_then(|file| std::path::absolute(file).ok()));
        // Resolved now, because all of them exist by now and symbolic links in their paths can be
        // followed.
        let mut hidden: Vec<PathBuf> = own_paths.iter().map(|path| ringwall_executor::resolve(path)).collect();
        hidden.sort();
        hidden.dedup();
        let lock = Arc::new(lock);
        let backends = Arc::new(BoxBackends { executor, docker, _lock: lock.clone() });
        let inner = Arc::new(Inner {
            auth: config.auth,
            logins: Logins::default(),
            owner_token,
            pinned: config.pinned,
            store,
            digest_key,
            workspaces: Arc::new(workspaces),
            baselines: Arc::new(baselines),
            workspaces_path,
            hidden,
            workspace_root,
            browsers: Browsers::default(),
            boxes: BoxPool::new(Boxes::of(&backends), settings.pool.bounds()),
            backends,
            aio,
            skills: Arc::new(skills),
            exec_queue: ExecQueue::new((&settings).into()),
            settings: RwLock::new(Arc::new(settings)),
            registry: Arc::new(Registry::default()),
            open_approvals: Arc::default(),
            tickets: Tickets::default(),
            counters: Counters::default(),
            agent_locks: Locks::default(),
            session_gates: SessionGates::default(),
            agent_boxes: Locks::default(),
            quotas: Quotas::default(),
            assessors: Assessors::default(),
            last_check: tokio::sync::Mutex::default(),
            docker_seen: tokio::sync::Mutex::default(),
            uids: Mutex::new(HashMap::new()),
            background: Mutex::default(),
            _lock: lock,
        });
        let service = Self { inner };
        service.load_recorded().await?;
        service.try_native().await.map_err(|error| match error {
            ProbeError::Box(error) => Error::start("run a box")(error),
            other => Error::start("run a box")(other),
        })?;
        log_path_control(service.path_control().await?);
        service.sweep_containers();
        service.expire_approvals();
        service.prune_on_schedule();
        service.sample_load();
        service.check_box_quotas_on_schedule();
        service.inner.boxes.keep(service.default_spec(&service.settings_now()));
        Ok(service)
    }

    /// Removes old containers in the background, because a hanging Docker daemon must not delay the
    /// native backend.
    fn sweep_containers(&self) {
        let docker = self.inner.backends.docker.clone();
        tokio::spawn(async move {
            match docker.sweep().await {
                Ok(0) => {}
                Ok(count) => tracing::warn!(count, "removed containers of an earlier run"),
                Err(error) => tracing::debug!(error = %causes(&error), "could not look for old containers"),
            }
        });
    }
}

/// Opens the database and closes what the previous run left open in it.
async fn open_record(database: Database, digest_key: &DigestKey) -> Result<Store, Error> {
    let store = Store::open(database, Some(digest_key.head_key())).await.map_err(Error::start("open the record"))?;
    store.sign_head(now()).await?;
    let lost = store.mark_unfinished_lost(now()).await?;
    if !lost.is_empty() {
        tracing::warn!(execs = lost.len(), "marked unfinished execs of the previous run as LOST");
    }
    let lost = store.mark_browser_actions_lost(now()).await?;
    if lost > 0 {
        tracing::warn!(actions = lost, "marked unfinished browser actions of the previous run as lost");
    }
    let expired = store.expire_pending_approvals(now(), "ringwall", "the server was restarted").await?;
    if expired > 0 {
        tracing::warn!(expired, "expired the open approvals of the previous run");
    }
    Ok(store)
}

/// Opens the workspaces and removes leftover files of execs. Blocks.
fn open_workspaces(root: &Path, store: &Store) -> Result<Workspaces, Error> {
    let workspaces = Workspaces::open(root).map_err(Error::start("open the workspaces"))?;
    // If the database cannot answer, the files are kept.
    let recorded = |exec: &ExecId| match Handle::current().block_on(store.exec(exec, &Scope::All)) {
        Ok(Some(exec)) => exec.summary.project_id.parse().map_or(RecordEntry::Unknown, RecordEntry::InProject),
        Ok(None) => RecordEntry::Missing,
        Err(_) => RecordEntry::Unknown,
    };
    let swept = workspaces.sweep(|_| false, recorded);
    if let Some(error) = swept.first_failure {
        tracing::warn!(failed = swept.failed, error = %causes(&error), "could not remove all leftover files of execs");
    }
    Ok(workspaces)
}

/// Opens the baselines of agents and the skills with a manifest. Blocks.
fn open_skills(baselines: &Path, skills: &Path) -> Result<(Baselines, Skills), Error> {
    let baselines = Baselines::open(baselines).map_err(Error::start("open the baselines of skills"))?;
    for error in baselines.unreadable() {
        tracing::error!(error = %causes(error), "the baselines of an agent cannot be read");
    }
    let skills = Skills::open(skills).map_err(Error::start("open the skills"))?;
    if let Err(error) = skills.publish_schema() {
        tracing::warn!(error = %causes(&error), "could not write the schema of manifests");
    }
    Ok((baselines, skills))
}

/// How long to retry if another process holds the lock. A child that was just started by a killed
/// server holds the lock until it calls exec.
const LOCK_RETRY: Duration = Duration::from_millis(500);
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Creates the data directory and locks it for this server.
fn lock_data(data: &Path) -> Result<File, Error> {
    let failed = |source: std::io::Error| Error::start("create or open the data directory")(source);
    DirBuilder::new().recursive(true).mode(0o700).create(data).map_err(failed)?;
    let lock = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(data.join(LOCK));
    let lock = lock.map_err(failed)?;
    let began = Instant::now();
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(rustix::io::Errno::WOULDBLOCK) if began.elapsed() < LOCK_RETRY => std::thread::sleep(LOCK_RETRY_PAUSE),
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::DataInUse),
            Err(errno) => return Err(failed(errno.into())),
        }
    }
}
