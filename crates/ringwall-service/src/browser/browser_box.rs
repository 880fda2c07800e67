//! The box of a browser: starts a box of its own or uses the session's box, and closes browsers
//! that died or were idle for `browser.idle_timeout_s`.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use ringwall_executor::egress::{Proxy, Resolver};
use ringwall_executor::pool::OnBusy;
use ringwall_policy::{
    BrowserKind, ExternalMode, Field, Isolation, Net, NetList, NetMode, NetRequest, PathAccess, PathControl, Request,
    Root, SessionMounts, UnknownHost, Workspace, profile,
};
use ringwall_record::SessionKey;
use tokio::time::Instant;

use crate::blocking;
use crate::boxes::browser::{BrowserBox, BrowserGate, BrowserHost, BrowserSlot, Fault, Reach, grant};
use crate::boxes::{BoxKey, WORKSPACE};
use crate::egress::NetRule;
use crate::error::Error;
use crate::service::{Inner, Service};
use crate::session::session_box_grant;
use crate::settings::layers;

/// Address of the egress proxy inside every box that has one.
const PROXY: &str = "http://127.0.0.1:3128";
/// `argv[0]` of the box's first process, the agent.
const AGENT: &str = "ringwall-agent";

impl Service {
    pub(super) async fn browser_box(&self, session: &SessionKey, kind: BrowserKind) -> Result<BrowserBox, Fault> {
        // Starting a browser may be the first use of a session.
        let workspace = self.session_workspace(session).await?;
        blocking::in_place(|| Ok(workspace.session(&session.session_id)?.create_directories()?)).await?;
        match kind {
            BrowserKind::External => self.start_own_box().await,
            BrowserKind::Sandbox => self.use_session_box(session).await,
        }
    }

    /// Starts a box that contains only the host's programs and no session files.
    async fn start_own_box(&self) -> Result<BrowserBox, Fault> {
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
        let external = move || {
            let server = server.upgrade();
            server.map_or(ExternalMode::Off, |inner| Service { inner }.settings_now().browser.external)
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
                tracing::warn!(%error, "could not serve the egress proxy of a browser's box");
            }
        });
        let proxy_socket = ringwall_browser::Egress::Proxy(PROXY.to_owned());
        Ok(BrowserBox { host: BrowserHost::Own(Box::new(session_box)), request, layers, gate, proxy_socket })
    }

    /// Uses the session's box and starts it if necessary.
    async fn use_session_box(&self, session: &SessionKey) -> Result<BrowserBox, Fault> {
        let isolation = self.session_isolation(self.session_rules(session).await?.mode).await?;
        if isolation != Isolation::Native {
            return Err(Fault::refused(format!(
                "this session has a {isolation} box, and the sandbox browser runs only in native boxes; use the external \
                 browser: leave out is_research and needs_file_access"
            )));
        }
        let work = self.session_work(session);
        let owner = self.owner_of(&session.user_id, &session.agent_id).await?;
        let owner = ringwall_policy::Owner::new(owner.uid, owner.gid)?;
        let mounts = SessionMounts { work, owner, control: PathControl::On(PathAccess::default()), hidden: Vec::new() };
        let layers = layers(profile::FILES, self.settings_now().operator.clone(), Vec::new());
        let request = request(Workspace::Session(Box::new(mounts)));
        let own = grant(&request, &[AGENT.to_owned()], &layers)?;
        let net = own.effective().net.clone();
        let box_grant = || session_box_grant(&own, &layers, &[AGENT.to_owned()]);
        let key = BoxKey::new(session, isolation);
        let name = format!("box-{}", ringwall_ids::random_digits::<16>().map_err(Error::from)?);
        let lease = self.enter_box(&key, box_grant, name, OnBusy::Wait).await?;
        let pooled = lease.session_box().clone();
        let Some(hold) = lease.hold() else { return Err(Fault::failed("the session's box is ending; try again")) };
        let proxy_socket = match net {
            Net::None => ringwall_browser::Egress::None,
            Net::Allowlist { .. } => ringwall_browser::Egress::Proxy(PROXY.to_owned()),
        };
        let lifted = pooled.proxy.as_ref().map(|proxy| proxy.lifted().clone()).unwrap_or_default();
        let (rule, questions) = (NetRule::new(net, lifted), self.host_questions());
        let gate = Arc::new(BrowserGate::new(Reach::AsCode { rule, questions }));
        Ok(BrowserBox { host: BrowserHost::Session { pooled, _hold: hold }, request, layers, gate, proxy_socket })
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

/// Watches one browser until it is closed. Holds only weak references, so it keeps neither the
/// server nor the slot alive.
pub(super) async fn close_when_idle(
    inner: Weak<Inner>,
    slot: Weak<BrowserSlot>,
    number: u64,
    ended: impl Future<Output = ()>,
) {
    tokio::pin!(ended);
    let Some(mut settings) = inner.upgrade().map(|inner| inner.browsers.settings_changes()) else { return };
    let due = |inner: &Inner, slot: &BrowserSlot| slot.last_used() + inner.settings.read().browser.idle_timeout();
    loop {
        settings.borrow_and_update();
        let Some(until) = inner.upgrade().zip(slot.upgrade()).map(|(inner, slot)| due(&inner, &slot)) else { return };
        let died = tokio::select! {
            biased;
            () = &mut ended => Some("it has crashed or was killed"),
            () = tokio::time::sleep_until(until) => None,
            Ok(()) = settings.changed() => continue,
        };
        let Some((inner, slot)) = inner.upgrade().zip(slot.upgrade()) else { return };
        let mut turn = slot.turn().await;
        let Some(instance) = turn.as_ref().filter(|instance| instance.number == number) else { return };
        if instance.is_paused() {
            // A paused browser is not idle, and it could not be closed.
            slot.used();
        }
        if died.is_some() || due(&inner, &slot) <= Instant::now() {
            slot.end(&inner.store, turn.take(), Some(died.unwrap_or("it was idle for too long"))).await;
            return;
        }
    }
}
