//! The box that a browser is in: one of its own, or its session's. Whatever is done in it has a grant of its own.
//!
//! Small commands of ours in the same box bring files in and out, so that the server never opens anything that the box has
//! made: what is read is what the command printed, up to a bound.

use std::fs::File;
use std::io::{Read, Take};
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ringwall_executor::egress::{Proxy, Resolver};
use ringwall_executor::pool::{Hold, OnBusy};
use ringwall_executor::session_box::{Enabled, Resident, StartedProcess, VisitOptions, VisitStreams};
use ringwall_executor::{Ending, Outcome};
use ringwall_policy::{
    BrowserKind, ExternalMode, Field, Grant, Isolation, Layers, Net, NetList, NetMode, NetRequest, PathAccess,
    PathControl, Request, Root, SecurityMode, SessionMounts, UnknownHost, Verdict, Workspace, decide, profile,
};
use tokio::io::AsyncReadExt;

use super::fault::Fault;
use super::gate::{BrowserGate, Reach, UnderWay};
use crate::agent_files::execute::WORKSPACE;
use crate::egress::{Asking, NetRule, OnDuty, Questions};
use crate::exec::order::layers;
use crate::pool::Boxes;
use crate::service::Service;
use crate::session::Place;
use crate::session::context::{BoxKey, SessionBox};
use crate::session::residents::home_grant;

/// Where the way out is, in every box that has one.
const PROXY: &str = "http://127.0.0.1:3128";
/// What the box's own command is called, before it is the agent.
const AGENT: &str = "ringwall-agent";
const DONE_WITHIN: Duration = Duration::from_secs(60);
/// As much of a file as is on its way into a box.
const PORTION: usize = 64 << 10;
/// What is being killed may still finish what it began in a folder.
const ATTEMPTS_TO_WIPE: usize = 5;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Home {
    rooms: Rooms,
    request: Request,
    layers: Layers,
    pub(super) gate: Arc<BrowserGate>,
    pub(super) way_out: ringwall_browser::Egress,
}

#[derive(Debug)]
enum Rooms {
    Own(Box<Resident>),
    Session { home: Arc<SessionBox>, _hold: Hold<Boxes> },
}

impl Home {
    fn resident(&self) -> &Resident {
        match &self.rooms {
            Rooms::Own(resident) => resident,
            Rooms::Session { home, .. } => &home.resident,
        }
    }

    /// Whether nothing in it moves: then nothing in it ends either.
    pub(super) fn is_paused(&self) -> bool {
        self.resident().is_paused()
    }

    /// From now on what the browser asks of the network is this action's.
    pub(super) fn begin(&self, asking: Asking) -> UnderWay {
        let under_way = self.gate.begin(asking);
        if let Rooms::Session { home, .. } = &self.rooms
            && let Some(way) = &home.way
        {
            way.put_on_duty(self.gate.clone());
        }
        under_way
    }

    /// Starts a command beside what is there.
    pub(super) async fn start(&self, argv: &[String], options: VisitOptions) -> Result<StartedProcess, Fault> {
        let grant = grant(&self.request, argv, &self.layers)?;
        Ok(self.resident().visit(grant, options).await?)
    }

    /// Runs a small command to its end, and gives what it printed; one that prints more or takes long fails.
    pub(super) async fn run(&self, words: &[&str], input: Option<Take<&File>>, most: u64) -> Result<Vec<u8>, Fault> {
        let argv: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let stdin = if input.is_some() { Enabled::Yes } else { Enabled::No };
        let options = VisitOptions { stdin, ..VisitOptions::default() };
        // Its other streams are dropped here: output that nobody reads would hold it up.
        let StartedProcess { streams: VisitStreams { stdin, stdout, .. }, running, .. } =
            self.start(&argv, options).await?;
        let failed = |why: &str| Fault::failed(format!("{} in the browser's box {why}", words.join(" ")));
        let feed = async {
            let (Some(mut stdin), Some(mut input)) = (stdin, input) else { return Ok(()) };
            let mut portion = vec![0; PORTION];
            loop {
                match tokio::task::block_in_place(|| input.read(&mut portion)) {
                    Ok(0) => break,
                    // Whoever does not read it fails for that reason.
                    Ok(count) if stdin.write(&portion[..count]).await.is_err() => break,
                    Ok(_) => {}
                    Err(error) => return Err(error),
                }
            }
            stdin.close().await;
            Ok(())
        };
        let mut printed = Vec::new();
        let mut bounded = stdout.take(most + 1);
        let work = async {
            let (read, fed) = tokio::join!(bounded.read_to_end(&mut printed), feed);
            fed.and(read).map_err(|error| error.to_string())
        };
        let read = tokio::time::timeout(DONE_WITHIN, work).await;
        match read {
            Ok(Ok(count)) if count as u64 <= most => {}
            Ok(Ok(_)) => return Err(failed(&format!("gave more than {most} bytes"))),
            Ok(Err(why)) => return Err(failed(&why)),
            Err(_) => return Err(failed("took too long")),
        }
        drop(bounded);
        match tokio::time::timeout(DONE_WITHIN, running.wait()).await {
            Ok(Ok(Outcome { ending: Ending::Exited(0), .. })) => Ok(printed),
            Ok(Ok(Outcome { ending, .. })) => Err(failed(&format!("ended with {ending:?}"))),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(failed("took too long")),
        }
    }

    /// Ends what is the browser's own, whose processes are gone. An error means that some of its files are left; those go with
    /// the session's box.
    pub(super) async fn end(self, folder: &str) -> Result<(), Fault> {
        match &self.rooms {
            Rooms::Own(resident) => {
                resident.end().await;
                Ok(())
            }
            Rooms::Session { home, .. } => {
                if let Some(way) = &home.way {
                    let gate: Arc<dyn OnDuty> = self.gate.clone();
                    way.leave_duty(&gate);
                }
                let mut wiped = Ok(());
                for _ in 0..ATTEMPTS_TO_WIPE {
                    wiped = match self.run(&["rm", "-rf", "--", folder], None, 0).await {
                        Err(fault) if home.resident.is_alive() => Err(fault),
                        Ok(_) | Err(_) => return Ok(()),
                    };
                    if home.resident.is_paused() {
                        break;
                    }
                    tokio::time::sleep(BETWEEN_ATTEMPTS).await;
                }
                wiped
            }
        }
    }
}

impl Service {
    pub(super) async fn make_home(&self, place: &Place, window: BrowserKind) -> Result<Home, Fault> {
        // A session is made by its first use, whatever that is.
        let workspace = self.session_workspace(&place.name).await?;
        Self::blocking(|| Ok(workspace.session(&place.id)?.create_directories()?)).await?;
        match window {
            BrowserKind::External => self.make_own_home().await,
            BrowserKind::Sandbox => self.join_session(place).await,
        }
    }

    /// A box with nothing in it but the host's programs.
    async fn make_own_home(&self) -> Result<Home, Fault> {
        let settings = self.settings_now();
        let mut operator = settings.operator.clone();
        operator.limits.insert(Field::MemoryMb, settings.browser.memory_mb.get().into());
        operator.limits.insert(Field::Pids, settings.browser.pids.get().into());
        // A way out, and nobody on its list: who may be reached is its own gate's to say.
        operator.net = Some(NetRequest {
            mode: NetMode::Allowlist,
            allow: Some(NetList::default()),
            unknown: Some(UnknownHost::Deny),
        });
        let layers = layers(profile::FILES, operator, Vec::new());
        let request = request(Workspace::Private);
        let mut resident = self.inner.executor.start_resident(grant(&request, &[AGENT.to_owned()], &layers)?).await?;
        let lifted = settings.browser.allowed_hosts.clone();
        let server = Arc::downgrade(&self.inner);
        let external = move || match server.upgrade() {
            Some(server) => server.settings.read().unwrap_or_else(PoisonError::into_inner).browser.external,
            None => ExternalMode::Off,
        };
        let reach = Reach::Public { lifted: lifted.clone(), external: Box::new(external) };
        let gate = Arc::new(BrowserGate::new(reach));
        let Some(listener) = resident.proxy_socket.take() else {
            return Err(ringwall_executor::Error::NoWayOut.into());
        };
        let proxy = Proxy::new(gate.clone(), Resolver::system(), lifted);
        let gone = resident.gone();
        tokio::spawn(async move {
            if let Err(error) = proxy.serve(listener, gone).await {
                // Nobody answers the box then; it has no other way.
                tracing::warn!(%error, "could not serve the way out of a browser's box");
            }
        });
        let way_out = ringwall_browser::Egress::Proxy(PROXY.to_owned());
        Ok(Home { rooms: Rooms::Own(Box::new(resident)), request, layers, gate, way_out })
    }

    /// The session's own box, made where there is none.
    async fn join_session(&self, place: &Place) -> Result<Home, Fault> {
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
        let name = format!("box-{}", crate::auth::token::random_digits::<16>()?);
        let lease = self.enter_box(&key, isolation, home, name, OnBusy::Wait).await?;
        let home = lease.resident().clone();
        let Some(hold) = lease.hold() else { return Err(Fault::failed("the session's box is ending; try again")) };
        let way_out = match net {
            Net::None => ringwall_browser::Egress::None,
            Net::Allowlist { .. } => ringwall_browser::Egress::Proxy(PROXY.to_owned()),
        };
        let lifted = home.way.as_ref().map(|way| way.lifted().clone()).unwrap_or_default();
        let (rule, questions) = (NetRule::new(net, lifted), Questions::new(self));
        let gate = Arc::new(BrowserGate::new(Reach::AsCode { rule, questions }));
        Ok(Home { rooms: Rooms::Session { home, _hold: hold }, request, layers, gate, way_out })
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

fn grant(request: &Request, argv: &[String], layers: &Layers) -> Result<Grant, Fault> {
    let request = Request { argv: argv.iter().map(Into::into).collect(), ..request.clone() };
    match decide(&request, layers) {
        Verdict::Allow(grant) => Ok(grant),
        Verdict::Deny(denial) => Err(Fault::refused(denial.message)),
        Verdict::Ask(_) => Err(Fault::refused("what the browser's box would be shown has to be allowed first")),
    }
}
