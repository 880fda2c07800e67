//! Starts a box behind gVisor: checks the grant, makes the cgroups and the init process, and runs
//! `runsc create` and `runsc start`.
//!
//! `create` starts gVisor's kernel in the box's cgroups and with the command's streams. `start`
//! begins the command, or prints why it cannot. On any failure, dropping the parts of the box ends
//! them.

use std::ffi::CString;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringwall_jail::CgroupEntry;
use ringwall_jail::plan::Privilege;
use ringwall_jail::report::{Ending, Protection, ProtectionName, ProtectionState};
use ringwall_policy::{Grant, Root, Workspace};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::gvisor_init::GvisorInit;
use super::running::BoxResources;
use super::runsc_root::{BUNDLE, KERNEL, RUNSC, STATE};
use super::{config, runsc_root};
use crate::c_string::literal;
use crate::cgroup::freezer::Pause;
use crate::cgroup::groups::Groups;
use crate::error::{Error, talk};
use crate::executor::Executor;
use crate::plan::limits;
use crate::plan::limits::{GVISOR_THREADS, OUR_PROCESSES, Stay};
use crate::process::program;
use crate::running::{RunningBox, Streams, time_limit};
use crate::session_box::{ProcessDefaults, SessionBox};
use crate::sources::{Sources, check_working_directory, has_own_directory_only, owner, session_path};
use crate::{backend, counters, host, protection};

/// The container's name; each runsc root has one container.
const NAME: &str = "box";
/// The same limit as for docker.
const START_TIMEOUT: Duration = Duration::from_secs(9);
const MAX_STDERR_LEN: u64 = 16 * 1024;
const EACCES: i32 = 13;
const ENOEXEC: i32 = 8;

impl Executor {
    /// The path of `runsc`, or why this backend is not available.
    pub fn gvisor(&self) -> Result<&Path, String> {
        match (&self.runsc, self.host.privilege) {
            (Some(runsc), Privilege::Root) => Ok(runsc),
            (Some(_), Privilege::Rootless) => Err("runsc is installed but needs a server that runs as root".to_owned()),
            (None, _) => Err("there is no runsc in PATH".to_owned()),
        }
    }

    /// Starts the granted command behind gVisor's kernel. When this returns, every protection is in
    /// force and the command has been started.
    pub async fn start_on_gvisor(&self, grant: Grant) -> Result<RunningBox, Error> {
        self.launch_on_gvisor(&grant, Stay::OneCommand).await
    }

    /// Starts a session box behind gVisor's kernel.
    pub async fn start_session_box_on_gvisor(&self, grant: Grant) -> Result<SessionBox, Error> {
        let defaults = ProcessDefaults::of(&Sources::open(&grant, &self.images, self.data.as_deref()).await?);
        let running = self.launch_on_gvisor(&grant, Stay::SessionBox).await?;
        SessionBox::begin(running, grant, defaults).await
    }

    async fn launch_on_gvisor(&self, grant: &Grant, stay: Stay) -> Result<RunningBox, Error> {
        let unavailable = |why| Error::BackendUnavailable { backend: backend::GVISOR, why };
        let runsc = self.gvisor().map_err(unavailable)?;
        match tokio::time::timeout(START_TIMEOUT, self.launch(runsc, grant, stay)).await {
            Ok(started) => started,
            Err(_) => Err(unavailable(format!("the box did not start within {} s", START_TIMEOUT.as_secs()))),
        }
    }

    async fn launch(&self, runsc: &Path, grant: &Grant, stay: Stay) -> Result<RunningBox, Error> {
        if let Root::Image(_) = grant.root() {
            return Err(Error::NotForGvisor("an imported image"));
        }
        match grant.workspace() {
            Workspace::Project(_) => {}
            Workspace::Session(mounts) if has_own_directory_only(mounts) => {}
            Workspace::Session(_) => return Err(Error::NotForGvisor("paths of the host")),
            Workspace::Private | Workspace::Directory(_) | Workspace::Agent(_) => {
                return Err(Error::NotForGvisor("a workspace that is neither a project's nor a session's"));
            }
        }
        if !grant.read_only().is_empty() {
            return Err(Error::NotForGvisor("directories beside the workspace's"));
        }
        if grant.effective().net != ringwall_policy::Net::None {
            return Err(Error::NotForGvisor("a network"));
        }
        let owner = owner(grant).ok_or(Error::NotForGvisor("a box without an owner on the host"))?;
        let mut sources = Sources::open(grant, &self.images, self.data.as_deref()).await?;
        sources.project.extend(sources.workspace.take().map(session_path));
        check_working_directory(grant, &sources.project)?;
        let config = config::config(grant, &self.host, &sources, owner, stay)?;
        let (masked, config) = (host::kernel_mounts()?, config.to_string().into_bytes());
        let mut operations = runsc_root::operations(&self.host, &masked, &sources, owner, runsc, config)?;
        if stay == Stay::SessionBox {
            operations.extend(runsc_root::agent(&program::agent(self.host.privilege)?));
        }

        let name = self.spawner.group_name(self.started.fetch_add(1, Ordering::Relaxed));
        let allowed = &grant.effective().limits;
        let (cgroups, mut protections) =
            limits::cgroups(allowed, &self.host, &name, OUR_PROCESSES + GVISOR_THREADS, Stay::OneCommand);
        let version = cgroups.as_ref().map(|cgroups| cgroups.version);
        let groups = cgroups.as_ref().map(Groups::make).transpose().map_err(Error::Setup)?.unwrap_or_default();
        protections.extend_from_slice(&groups.protections);
        let mut resources = BoxResources::new(groups);
        add_protections(&mut protections);
        protection::check(grant, &protections, backend::GVISOR)?;

        let gvisor_init = resources.set_init(GvisorInit::begin(self.spawner.program(), &operations).await?);
        let (streams, theirs) = Streams::pipes(owner).map_err(talk)?;
        let create = runsc_command(&["create", "--bundle", BUNDLE, "--pid-file", KERNEL, NAME]);
        let created = gvisor_init.run(create, theirs, resources.cgroup_entry(version)).await;
        if created != Some(Ending::Exited(0)) {
            let words = match streams.into_pipes() {
                Some([_, _, stderr]) => read_text(stderr).await,
                None => String::new(),
            };
            return Err(Error::GvisorRefused { words });
        }
        // Follows before `start`, because the command may end at once. gVisor's kernel ends with
        // the command and with its exit code.
        let ended = gvisor_init.follow(literal(KERNEL)).ok_or(Error::JailDied)?;
        let (stderr, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(talk)?;
        let started = gvisor_init.run(runsc_command(&["start", NAME]), [null()?, null()?, theirs], NO_CGROUP);
        let (started, message) = tokio::join!(started, read_text(stderr));
        if started != Some(Ending::Exited(0)) {
            return Err(explain(grant, message));
        }
        drop(sources);
        let time_limit = match stay {
            Stay::OneCommand => time_limit(grant),
            Stay::SessionBox => None,
        };
        Ok(resources.into_running(gvisor_init, ended, streams, protections, time_limit))
    }
}

/// For a program that joins no cgroup.
pub(super) const NO_CGROUP: (CgroupEntry, Vec<BorrowedFd<'static>>) = (CgroupEntry::None, Vec::new());

/// A `runsc` command line. No `--platform` is given, because the platforms depend on gVisor's
/// version.
fn runsc_command(command: &[&str]) -> Vec<CString> {
    // The cgroups are ours, and the box has no network.
    let always = [RUNSC, "--root", STATE, "--network=none", "--ignore-cgroups"];
    always.iter().chain(command).map(|word| literal(word)).collect()
}

/// Freezes or thaws every process of the box.
pub(super) fn pause_command(pause: Pause) -> Vec<CString> {
    let verb = match pause {
        Pause::Begin => "pause",
        Pause::End => "resume",
    };
    runsc_command(&[verb, NAME])
}

/// Sends a signal to every process of the box.
pub(super) fn kill_command(signal: Signal) -> Vec<CString> {
    runsc_command(&["kill", "--all", NAME, &signal.as_raw().to_string()])
}

pub(super) fn null() -> Result<OwnedFd, Error> {
    rustix::fs::open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).map_err(talk)
}

/// Reads a pipe to its end, up to [`MAX_STDERR_LEN`].
async fn read_text(from: OwnedFd) -> String {
    let mut text = Vec::new();
    if let Ok(from) = pipe::Receiver::from_owned_fd(from) {
        let _ = from.take(MAX_STDERR_LEN).read_to_end(&mut text).await;
    }
    String::from_utf8_lossy(&text).trim().to_owned()
}

/// Adds the protections that do not depend on cgroups.
fn add_protections(protections: &mut Vec<Protection>) {
    use ProtectionName::{CgroupNamespace, Landlock, OpenFiles, PidsLimit, ResourceLimits, Seccomp, UserNamespace};
    let limits_pids =
        protections.iter().any(|known| known.name == PidsLimit && known.state == ProtectionState::Enforced);
    protections.extend(protection::OF_EVERY_BACKEND.map(Protection::enforced));
    let mut own = vec![
        Protection::partial(
            CgroupNamespace,
            "gVisor's own kernel shows the box no cgroups; its process on the host has no such namespace",
        ),
        Protection::partial(UserNamespace, "gVisor's kernel runs as nobody; to it the box is its workspace's owner"),
        Protection::partial(Seccomp, "gVisor's own kernel answers the calls"),
        Protection::not_available(Landlock, "gVisor's kernel does not have it"),
        Protection::partial(
            OpenFiles,
            "gVisor's kernel opens the files on the host; only the descriptors of its process limit them",
        ),
        Protection::partial(ResourceLimits, "kept by gVisor's own kernel"),
    ];
    if limits_pids {
        own.push(Protection::partial(PidsLimit, "gVisor's own threads count too; the limit is raised for them"));
    }
    protections.retain(|known| own.iter().all(|own| own.name != known.name));
    protections.append(&mut own);
    protections.extend(counters::protections_of_gvisor(host::privilege()));
    protections.sort_by_key(|protection| protection.name);
}

/// Determines from the text of `runsc start` why the command was not started; its exit code does
/// not tell.
fn explain(grant: &Grant, message: String) -> Error {
    let command = grant.argv().first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
    if !["error finding executable", "failed to load"].iter().any(|text| message.contains(text)) {
        return Error::GvisorRefused { words: message };
    }
    if message.ends_with("no such file or directory") {
        return Error::CommandNotFound { command };
    }
    let errno = if message.ends_with("exec format error") { ENOEXEC } else { EACCES };
    Error::CommandNotExecutable { command, errno }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::tests::grant;

    #[test]
    fn runsc_errors_map_to_command_errors() {
        let about = |words: &str| {
            explain(&grant(&[], &[]), format!("starting container: starting root container: starting sandbox: {words}"))
        };
        let missing = about("error finding executable \"x\" in PATH [/bin]: no such file or directory");
        assert!(matches!(missing, Error::CommandNotFound { .. }), "{missing}");
        let closed = about("creating process: failed to load /etc/passwd: permission denied");
        assert!(matches!(closed, Error::CommandNotExecutable { errno: EACCES, .. }), "{closed}");
        let foreign = about("creating process: failed to load /x: exec format error");
        assert!(matches!(foreign, Error::CommandNotExecutable { errno: ENOEXEC, .. }), "{foreign}");
        assert!(matches!(about("no such file or directory"), Error::GvisorRefused { .. }));
    }

    #[test]
    fn every_protection_has_a_state() {
        use ProtectionName::{CpuLimit, IoLimit, MemoryLimit, PidsLimit};
        let mut protections = [MemoryLimit, PidsLimit, CpuLimit, IoLimit].map(Protection::enforced).to_vec();
        add_protections(&mut protections);
        let names: Vec<_> = protections.iter().map(|protection| protection.name).collect();
        assert_eq!(names, ProtectionName::ALL);
    }
}
