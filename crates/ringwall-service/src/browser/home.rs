//! Provides the box in which a browser runs: its own box or the session's box.

use std::path::PathBuf;
use std::sync::Arc;

use ringwall_executor::egress::{Proxy, Resolver};
use ringwall_executor::pool::OnBusy;
use ringwall_policy::{
    BrowserKind, ExternalMode, Field, Isolation, Net, NetList, NetMode, NetRequest, PathAccess, PathControl, Request,
    Root, SecurityMode, SessionMounts, UnknownHost, Workspace, profile,
};

use crate::blocking;
use crate::boxes::browser::{BrowserGate, BrowserHost, Fault, Home, Reach, grant};
use crate::boxes::{BoxKey, WORKSPACE};
use crate::egress::NetRule;
use crate::service::Service;
use crate::session::boxes::home_grant;
use crate::session_ref::SessionRef;
use crate::settings::layers;

/// Address of the egress proxy inside every box that has one.
const PROXY: &str = "http://127.0.0.1:3128";
/// `argv[0]` of the box's first process, the agent.
const AGENT: &str = "ringwall-agent";

impl Service {
    pub(super) async fn make_home(&self, place: &SessionRef, window: BrowserKind) -> Result<Home, Fault> {
        // Starting a browser may be the first use of a session.
        let workspace = self.session_workspace(&place.name).await?;
        blocking::in_place(|| Ok(workspace.session(&place.id)?.create_directories()?)).await?;
        match window {
            BrowserKind::External => self.make_own_home().await,
            BrowserKind::Sandbox => self.join_session(place).await,
        }
    }

    /// Starts a box that contains only the host's programs and no session files.
    async fn make_own_home(&self) -> Result<Home, Fault> {
        let settings = self.settings_now();
        let mut operator = settings.operator.clone();
        operator.limits.insert(Field::MemoryMb, settings.browser.memory_mb.get().into());
        operator.limits.insert(Field::Pids, settings.browser.pids.get().into());
        // Enables the proxy with an empty allowlist; `BrowserGate` decides which hosts are allowed.
        operator.net = Some(NetRequest {
            mode: NetMode::Allowlist,
            allow: Some(NetList::default()),
            unknown: Some(UnknownHost::Deny),
        });
        let layers = layers(profile::FILES, operator, Vec::new());
        let request = request(Workspace::Private);
        let mut session_box =
            self.inner.backends.executor.start_session_box(grant(&request, &[AGENT.to_owned()], &layers)?).await?;
        let lifted = settings.browser.allowed_hosts.clone();
        let server = Arc::downgrade(&self.inner);
        let external = move || match server.upgrade() {
            Some(server) => server.settings.read().browser.external,
            None => ExternalMode::Off,
        };
        let reach = Reach::Public { lifted: lifted.clone(), external: Box::new(external) };
        let gate = Arc::new(BrowserGate::new(reach));
        let Some(listener) = session_box.proxy_socket.take() else {
            return Err(ringwall_executor::Error::NoProxySocket.into());
        };
        let proxy = Proxy::new(gate.clone(), Resolver::system(), lifted);
        let gone = session_box.gone();
        tokio::spawn(async move {
            if let Err(error) = proxy.serve(listener, gone).await {
                // Without the proxy the browser has no network.
                tracing::warn!(%error, "could not serve the way out of a browser's box");
            }
        });
        let proxy_socket = ringwall_browser::Egress::Proxy(PROXY.to_owned());
        Ok(Home { host: BrowserHost::Own(Box::new(session_box)), request, layers, gate, proxy_socket })
    }

    /// Uses the session's box and starts it if necessary.
    async fn join_session(&self, place: &SessionRef) -> Result<Home, Fault> {
        let mode: SecurityMode = self.session_rules(place).await?.mode;
        let isolation = self.session_isolation(mode).await?;
        if isolation != Isolation::Native {
            return Err(Fault::refused(format!(
                "the boxes of this session are {isolation} ones, and the sandbox browser is in native ones alone; leave \
                 is_research and needs_file_access out for the external browser"
            )));
        }
        let work = self.session_work(place);
        let owner = self.owner_of(&place.name.user_id, &place.name.agent_id).await?;
        let owner = ringwall_policy::Owner::new(owner.uid, owner.gid)?;
        let mounts = SessionMounts { work, owner, control: PathControl::On(PathAccess::default()), hidden: Vec::new() };
        let layers = layers(profile::FILES, self.settings_now().operator.clone(), Vec::new());
        let request = request(Workspace::Session(Box::new(mounts)));
        let own = grant(&request, &[AGENT.to_owned()], &layers)?;
        let net = own.effective().net.clone();
        let home = || home_grant(&own, &layers, &[AGENT.to_owned()]);
        let key = BoxKey::new(place, isolation);
        let name = format!("box-{}", ringwall_ids::random_digits::<16>().map_err(crate::error::Error::from)?);
        let lease = self.enter_box(&key, isolation, home, name, OnBusy::Wait).await?;
        let home = lease.session_box().clone();
        let Some(hold) = lease.hold() else { return Err(Fault::failed("the session's box is ending; try again")) };
        let proxy_socket = match net {
            Net::None => ringwall_browser::Egress::None,
            Net::Allowlist { .. } => ringwall_browser::Egress::Proxy(PROXY.to_owned()),
        };
        let lifted = home.way.as_ref().map(|way| way.lifted().clone()).unwrap_or_default();
        let (rule, questions) = (NetRule::new(net, lifted), self.host_questions());
        let gate = Arc::new(BrowserGate::new(Reach::AsCode { rule, questions }));
        Ok(Home { host: BrowserHost::Session { home, _hold: hold }, request, layers, gate, proxy_socket })
    }
}

fn request(workspace: Workspace) -> Request {
    Request {
        argv: Vec::new(),
        env: Default::default(),
        cwd: Some(PathBuf::from(WORKSPACE)),
        root: Root::Host,
        workspace,
        read_only: Vec::new(),
    }
}
