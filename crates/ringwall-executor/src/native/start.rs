//! Starts a native box: lowers the grant to a plan, provides what PID 1 cannot make inside, and
//! waits until all protections are in force.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use ringwall_jail::plan::{Plan, Privilege, Resource, Source, WarmKind};
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
use crate::native::prepare::{Prepared, network};
use crate::native::provide::{OWN_STEPS, Resources};
use crate::native::running::NativeBox;
use crate::plan::limits::Stay;
use crate::plan::lower::{BaseRoot, BoxParams, lower};
use crate::process::program;
use crate::process::spawner::TIMEOUT;
use crate::running::{RunningBox, Streams, time_limit};
use crate::session_box::{ProcessDefaults, SessionBox};
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
        let prepared = self.prepare_for(owner(&grant), network(&grant))?;
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
        self.launch_box(prepared, &grant, sources, options, None).await
    }

    /// Starts a session box with the grant's files and limits, but without its command and time
    /// limit. Returns when every protection is in force and the agent runs.
    pub async fn start_session_box(&self, grant: Grant) -> Result<SessionBox, Error> {
        let sources = Sources::open(&grant, &self.images, self.data.as_deref()).await?;
        let defaults = ProcessDefaults::of(&sources);
        let agent = Some(program::agent(self.host.privilege)?);
        let prepared = self.prepare_for(owner(&grant), network(&grant))?;
        let running = self.launch_box(prepared, &grant, sources, Options::default(), agent).await?;
        SessionBox::begin(running, grant, defaults).await
    }

    /// `sources` must be those of the grant. With an `agent` the box is a session box.
    async fn launch_box(
        &self,
        prepared: Prepared,
        grant: &Grant,
        mut sources: Sources,
        options: Options,
        agent: Option<Source>,
    ) -> Result<RunningBox, Error> {
        // Namespaces prepared for another user cannot be used.
        let prepared = match owner(grant) {
            Some(owner) if self.host.privilege == Privilege::Root && prepared.host != owner => {
                self.prepare_for(Some(owner), network(grant))?
            }
            _ => prepared,
        };
        let owner = prepared.host;
        if agent.is_some() && sources.image.is_none() {
            // The commands are not known yet.
            sources.python = Python::in_root(Path::new("/"), OsStr::new(SEARCH));
        }
        // Without the base rootfs if the host has replaced files that it shows.
        let base_root = if self.spawner.is_current() { self.base_root(&prepared)? } else { BaseRoot::Host };
        let params = BoxParams {
            name: self.group_name(&prepared),
            owner,
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
            agent,
        };
        let plan = lower(grant, &self.host, &sources, &params)?;
        let (stay, time_limit) = match params.stay() {
            Stay::OneCommand => (Stay::OneCommand, time_limit(grant)),
            // The session decides how long it lives; each process has its own limit.
            Stay::SessionBox => (Stay::SessionBox, None),
        };
        let has_proxy = plan.proxy_port.is_some();
        let (mut streams, theirs) = match options.terminal {
            Some(_) => (Streams::default(), Vec::new()),
            None => Streams::pipes(owner).map(|(ours, theirs)| (ours, theirs.into())).map_err(talk)?,
        };
        let mut proxy_socket = None;
        let mut native = self.hand_over(prepared, plan, None, &theirs).await?;
        drop(theirs);
        if let Some(hold) = options.hold_at.filter(|hold| OWN_STEPS.contains(&hold.step)) {
            return Err(native.hold(hold).await);
        }
        let deadline = tokio::time::Instant::now() + TIMEOUT;
        loop {
            let (report, descriptors) = native.next_report(&self.spawner, deadline).await?;
            let mut descriptors = descriptors.into_iter();
            match (report, options.hold_at) {
                (Report::Started { protections, steps }, _) => {
                    native.started(protections, steps, descriptors.next());
                    break;
                }
                (Report::Terminal, _) => streams = descriptors.next().map(Streams::of_terminal).unwrap_or_default(),
                (Report::ProxySocket, _) => proxy_socket = descriptors.next(),
                (Report::Holding(_), Some(hold)) => return Err(native.hold(hold).await),
                _ => return Err(native.died_early().await),
            }
        }
        if has_proxy && proxy_socket.is_none() {
            return Err(Error::NoProxySocket);
        }
        drop(sources);
        Ok(native.into_running(streams, proxy_socket, stay, time_limit))
    }

    /// Sends PID 1 what it needs to make the box. `streams` are the command's ends.
    pub(super) async fn hand_over(
        &self,
        mut prepared: Prepared,
        plan: Plan,
        warm: Option<WarmKind>,
        streams: &[OwnedFd],
    ) -> Result<NativeBox, Error> {
        let mut limits = plan.resource_limits.iter();
        let open_files =
            limits.find(|limit| limit.resource == Resource::OpenFiles).map_or(u64::MAX, |limit| limit.value);
        let protections = plan.protections.clone();
        let mut resources = Resources { protections, parent: prepared.parent.take(), ..Resources::default() };
        if let Err(error) = self.provide(&prepared, plan, warm, streams, &mut resources) {
            resources.groups.remove().await;
            return Err(reported_failure(&prepared.control).unwrap_or(error));
        }
        let Resources { groups, steps, parent, .. } = resources;
        let groups = ReusableGroups::new(groups, self.cache.clone());
        // Closes the other end, so that the end of PID 1 is seen.
        let Prepared { control, init, lease, .. } = prepared;
        drop(init);
        rustix::io::ioctl_fionbio(&control, true).map_err(talk)?;
        let (control, groups) =
            register_control(control, groups, |control| UnixStream::from_std(control.into())).await?;
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
async fn register_control<T>(
    control: OwnedFd,
    groups: ReusableGroups,
    wrap: impl Fn(OwnedFd) -> std::io::Result<T>,
) -> Result<(T, ReusableGroups), Error> {
    Ok((register(control, wrap).await.map_err(Error::Talk)?, groups))
}

/// The reason why PID 1 failed. Its cgroups may have been removed meanwhile, and an error from that
/// is not the cause.
fn reported_failure(control: &OwnedFd) -> Option<Error> {
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
    async fn groups_return_to_cache_if_control_socket_is_not_registered() {
        for is_cancelled in [false, true] {
            let parent = tempfile::tempdir().unwrap();
            let (plan, groups) = empty_group(parent.path());
            let cache = Arc::new(CgroupCache::default());
            let (control, theirs) = wire::pair().unwrap();
            // ENOSPC is retried, EPERM is not.
            let errno = if is_cancelled { ENOSPC } else { EPERM };
            let full = |_| Err::<(), _>(std::io::Error::from_raw_os_error(errno));
            let mut registering =
                Box::pin(register_control(control, ReusableGroups::new(groups, Some(Arc::clone(&cache))), full));
            if is_cancelled {
                assert!(registering.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                drop(registering);
            } else {
                assert!(matches!(registering.await, Err(Error::Talk(_))));
            }
            assert!(cache.take(&plan).is_some(), "cancelled: {is_cancelled}");
            assert!(matches!(wire::receive::<Report>(&theirs), Ok(None)), "cancelled: {is_cancelled}");
        }
    }
}
