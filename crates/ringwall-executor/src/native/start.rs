//! Starts a native box: lowers the grant to a plan, provides what PID 1 cannot make inside, and
//! waits until all protections are in force.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use ringwall_jail::plan::{Privilege, Resource};
use ringwall_jail::report::{Report, Step};
use ringwall_jail::wire;
use ringwall_policy::Grant;
use tokio::net::UnixStream;

use crate::box_layout::SEARCH;
use crate::cgroup::cache::ReusableGroups;
use crate::counters::register;
use crate::error::{Error, talk};
use crate::executor::Executor;
use crate::host;
use crate::host::python::Python;
use crate::native::prepare::{Prepared, Spawned, network};
use crate::native::provide::{OWN_STEPS, Resources, Wanted};
use crate::native::running::NativeBox;
use crate::plan::limits::Stay;
use crate::plan::lower::{BaseRoot, BoxParams, Entrypoint, lower};
use crate::process::program;
use crate::process::receive;
use crate::process::spawner::TIMEOUT;
use crate::running::{RunningBox, Streams, time_limit};
use crate::session_box::{SessionBox, Wardrobe};
use crate::sources::{Sources, owner};

/// Options that are not permissions.
#[derive(Debug, Default, Clone, Copy)]
pub struct Options {
    pub terminal: Option<ringwall_jail::plan::WindowSize>,
    pub hold_at: Option<Hold>,
}

/// Holds the box at a step until it is killed, for crash tests.
#[derive(Debug, Clone, Copy)]
pub struct Hold {
    pub step: Step,
    pub held: fn(Step),
}

impl Executor {
    /// Starts the granted command. Returns when every protection is in force and the command
    /// starts.
    pub async fn start(&self, grant: Grant, options: Options) -> Result<RunningBox, Error> {
        let prepared = self.prepare_as(owner(&grant), network(&grant))?;
        self.start_prepared(prepared, grant, options).await
    }

    /// The same in prepared namespaces.
    pub async fn start_prepared(
        &self,
        prepared: Prepared,
        grant: Grant,
        options: Options,
    ) -> Result<RunningBox, Error> {
        let sources = Sources::open(&grant, &self.images, self.data.as_deref()).await?;
        self.launch_box(prepared, &grant, sources, options, Entrypoint::Command).await
    }

    /// Starts a session box with the grant's files and limits, but without its command and time
    /// limit. Returns when every protection is in force and the agent runs.
    pub async fn start_session_box(&self, grant: Grant) -> Result<SessionBox, Error> {
        let sources = Sources::open(&grant, &self.images, self.data.as_deref()).await?;
        let wardrobe = Wardrobe::of(&sources);
        let entrypoint = Entrypoint::Agent(program::agent(self.host.privilege)?);
        let prepared = self.prepare_as(owner(&grant), network(&grant))?;
        let running = self.launch_box(prepared, &grant, sources, Options::default(), entrypoint).await?;
        SessionBox::begin(running, grant, wardrobe).await
    }

    /// `sources` must be those of the grant.
    pub(crate) async fn launch_box(
        &self,
        prepared: Prepared,
        grant: &Grant,
        mut sources: Sources,
        options: Options,
        entrypoint: Entrypoint,
    ) -> Result<RunningBox, Error> {
        // Namespaces prepared for another user cannot be used.
        let prepared = match owner(grant) {
            Some(owner) if self.host.privilege == Privilege::Root && prepared.host != owner => {
                self.prepare_as(Some(owner), network(grant))?
            }
            _ => prepared,
        };
        let owner = prepared.host;
        if matches!(entrypoint, Entrypoint::Agent(_)) && sources.image.is_none() {
            // The commands are not known yet.
            sources.python = Python::in_root(Path::new("/"), OsStr::new(SEARCH));
        }
        let base_root = match &prepared.birth {
            // The base rootfs shows files that the host has replaced since, so this box is made
            // without it.
            _ if !self.spawner.is_current() => BaseRoot::Host,
            Spawned::In(base_root) => *base_root,
            Spawned::NotYet(_) => self.spawner.base_root()?,
        };
        let params = BoxParams {
            name: self.group_name(&prepared),
            host_uid: owner.uid,
            host_gid: owner.gid,
            terminal: options.terminal,
            hold_at: options.hold_at.map(|hold| hold.step),
            hidden: self.data.clone(),
            kernel_mounts: match base_root {
                BaseRoot::Host => host::kernel_mounts()?,
                // The base rootfs masks the kernel mounts that existed when its directories were
                // cloned; later mounts do not reach it. A box that shows further host directories
                // masks all (`Sources::covered`).
                BaseRoot::BaseRootfs => Vec::new(),
            },
            base_root,
            entrypoint,
        };
        let plan = lower(grant, &self.host, &sources, &params)?;
        let (stay, time_limit) = match params.entrypoint {
            Entrypoint::Command => (Stay::OneCommand, time_limit(grant)),
            // The session decides how long it lives; each process has its own limit.
            Entrypoint::Agent(_) => (Stay::SessionBox, None),
        };
        let is_open = plan.proxy_port.is_some();
        let (mut streams, theirs) = match options.terminal {
            Some(_) => (Streams::default(), Vec::new()),
            None => Streams::pipes(owner).map(|(ours, theirs)| (ours, theirs.into())).map_err(talk)?,
        };
        let mut proxy_socket = None;
        let wanted = Wanted { plan, ahead: None, streams: &theirs, hold_at: options.hold_at.map(|hold| hold.step) };
        let mut native = self.hand_over(prepared, wanted).await?;
        drop(theirs);
        if let Some(hold) = options.hold_at.filter(|hold| OWN_STEPS.contains(&hold.step)) {
            (hold.held)(hold.step);
            native.hold().await;
            return Err(Error::Held(hold.step));
        }
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let Ok(report) = tokio::time::timeout_at(deadline, receive(native.socket())).await else {
                if let Some(parent) = native.parent() {
                    self.spawner.retire(parent);
                }
                native.give_up().await;
                return Err(Error::NoAnswer { from: "its first process", timeout: TIMEOUT });
            };
            match report? {
                Some((Report::Started { protections, steps }, descriptors)) => {
                    native.started(protections, steps, descriptors.into_iter().next());
                    break;
                }
                Some((Report::Terminal, descriptors)) => {
                    streams = descriptors.into_iter().next().map(Streams::of_terminal).unwrap_or_default();
                }
                Some((Report::ProxySocket, descriptors)) => proxy_socket = descriptors.into_iter().next(),
                Some((Report::Failed(failure), _)) => {
                    native.clean_up().await;
                    return Err(Error::Setup(failure));
                }
                Some((Report::Holding(step), _)) => {
                    if let Some(hold) = options.hold_at {
                        (hold.held)(step);
                    }
                    native.hold().await;
                    return Err(Error::Held(step));
                }
                Some((Report::Waiting | Report::NotExecuted { .. } | Report::Ended { .. }, _)) | None => {
                    native.clean_up().await;
                    return Err(Error::JailDied);
                }
            }
        }
        if is_open && proxy_socket.is_none() {
            return Err(Error::NoProxySocket);
        }
        drop(sources);
        Ok(native.into_running(streams, proxy_socket, stay, time_limit))
    }

    /// Sends PID 1 what it needs to make the box.
    pub(crate) async fn hand_over(&self, mut prepared: Prepared, wanted: Wanted<'_>) -> Result<NativeBox, Error> {
        let protections = wanted.plan.protections.clone();
        let mut limits = wanted.plan.resource_limits.iter();
        let open_files =
            limits.find(|limit| limit.resource == Resource::OpenFiles).map_or(u64::MAX, |limit| limit.value);
        let mut resources = Resources { protections, parent: prepared.parent.take(), ..Resources::default() };
        if let Err(error) = self.provide(&prepared, wanted, &mut resources) {
            resources.groups.remove().await;
            return Err(last_words(&prepared.control).unwrap_or(error));
        }
        let Resources { groups, steps, parent, .. } = resources;
        let groups = ReusableGroups::new(groups, self.cache.clone());
        // Close the other end, so that the end of PID 1 is seen.
        let Prepared { control, birth, lease, .. } = prepared;
        drop(birth);
        rustix::io::ioctl_fionbio(&control, true).map_err(talk)?;
        let (control, groups) = follow(control, groups, |control| UnixStream::from_std(control.into())).await?;
        let mut native = NativeBox::new(control, groups, steps, parent);
        if let Some(mut lease) = lease {
            lease.bind(native.init());
            native.lease = Some(lease);
        }
        if self.host.privilege == Privilege::Rootless {
            let max_passed = self.host.counter_caps.passed(open_files);
            native.watched = Some(self.guard.watch(native.init(), max_passed));
        }
        Ok(native)
    }

    /// The name of the box's cgroups; empty without cgroups.
    pub(crate) fn group_name(&self, prepared: &Prepared) -> String {
        match self.host.cgroups {
            Ok(_) => self.spawner.group_name(prepared.number),
            Err(_) => String::new(),
        }
    }
}

/// Registers a box's control socket with the runtime. This can fail or be cancelled after waiting
/// up to 10 s for a free epoll watch: then the socket closes, which ends PID 1, and the cgroups
/// return to the cache.
async fn follow<T>(
    control: OwnedFd,
    groups: ReusableGroups,
    wrap: impl Fn(OwnedFd) -> std::io::Result<T>,
) -> Result<(T, ReusableGroups), Error> {
    Ok((register(control, wrap).await.map_err(Error::Talk)?, groups))
}

/// The reason why PID 1 failed. Its cgroups may have been removed meanwhile, and an error from that
/// is not the cause.
fn last_words(control: &OwnedFd) -> Option<Error> {
    rustix::io::ioctl_fionbio(control, true).ok()?;
    match wire::receive(control) {
        Ok(Some((Report::Failed(failure), _))) => Some(Error::Setup(failure)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::*;
    use crate::cgroup::cache::CgroupCache;
    use crate::cgroup::cache::tests::empty_group;

    const EPERM: i32 = 1;
    const ENOSPC: i32 = 28;

    #[tokio::test(start_paused = true)]
    async fn groups_return_to_the_shelf_if_the_control_socket_is_not_registered() {
        for is_cancelled in [false, true] {
            let parent = tempfile::tempdir().unwrap();
            let (plan, groups) = empty_group(parent.path());
            let cache = Arc::new(CgroupCache::default());
            let (control, theirs) = wire::pair().unwrap();
            // ENOSPC is retried, EPERM is not.
            let errno = if is_cancelled { ENOSPC } else { EPERM };
            let full = |_| Err::<(), _>(std::io::Error::from_raw_os_error(errno));
            let mut following = Box::pin(follow(control, ReusableGroups::new(groups, Some(Arc::clone(&cache))), full));
            if is_cancelled {
                assert!(following.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                drop(following);
            } else {
                assert!(matches!(following.await, Err(Error::Talk(_))));
            }
            assert!(cache.take(&plan).is_some(), "cancelled: {is_cancelled}");
            assert!(matches!(wire::receive::<Report>(&theirs), Ok(None)), "cancelled: {is_cancelled}");
        }
    }
}
