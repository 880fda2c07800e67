//! A probe: an act that must fail inside the box, a control that succeeds outside, and a verdict
//! from the host.
//!
//! A probe whose control fails is inconclusive, which counts as a failure.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::support::actor::{Identity, Mode, Skip, tester_is_root};
use tests::support::asked::{Asked, NotServed, SERVED_INPUTS, SERVED_WORKSPACE};
use tests::support::boxed::BoxRun;
use tests::support::canary::Canary;
use tests::support::host;
use tests::support::payload::{Payload, WITH_ORACLE};
use tests::support::process::{DEADLINE, LiveProcess, Outcome, run};
use tests::support::scratch::Scratch;
use tests::support::server::Server;

/// One attack.
pub(crate) struct Probe {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) run: fn(&Context) -> Verdict,
}

/// The observation in a few words, or the reason of the failure.
pub(crate) type Verdict = Result<String, Fault>;

pub(crate) enum Fault {
    /// The attack got through.
    Broken(String),
    /// The control failed or the payload did not run, so the attack proves nothing.
    Inconclusive(String),
    Skipped(Skip),
    /// The probe does not apply to this column (the reason).
    Senseless(String),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<NotServed>()) {
            Some(NotServed(why)) => Self::Senseless(why.clone()),
            None => Self::Inconclusive(error.to_string()),
        }
    }
}

impl From<rustix::io::Errno> for Fault {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Inconclusive(error.to_string())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(what) => write!(formatter, "BROKEN: {what}"),
            Self::Inconclusive(what) => write!(formatter, "INCONCLUSIVE: {what}"),
            Self::Skipped(skip) => write!(formatter, "skipped: {}", skip.reason()),
            Self::Senseless(why) => write!(formatter, "not asked here: {why}"),
        }
    }
}

/// Fails the probe as broken unless `holds`.
pub(crate) fn held(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::Broken(otherwise())) }
}

/// Fails the probe as inconclusive unless the control's result is `true`.
pub(crate) fn control(shows: bool, otherwise: impl FnOnce() -> String) -> Result<(), Fault> {
    if shows { Ok(()) } else { Err(Fault::Inconclusive(format!("control: {}", otherwise()))) }
}

/// Fails as broken when a canary changed.
pub(crate) fn untouched(canary: &Canary) -> Result<(), Fault> {
    canary.changed().map_or(Ok(()), |change| Err(Fault::Broken(change)))
}

/// How boxes are started: a column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// By `ringwall run`.
    Run(Mode),
    /// By one server for all probes, as root.
    Served,
}

impl Column {
    pub(crate) const ALL: [Self; 3] = [Self::Run(Mode::Root), Self::Run(Mode::Rootless), Self::Served];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Run(mode) => mode.name(),
            Self::Served => "served",
        }
    }

    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Run(mode) => mode,
            Self::Served => Mode::Root,
        }
    }
}

/// The context of one test.
pub(crate) struct Context {
    pub(crate) mode: Mode,
    served: Option<Served>,
    pub(crate) binary: PathBuf,
    pub(crate) scratch: Scratch,
    pub(crate) effort: Effort,
}

/// The duration of races and repetitions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    Short,
    Soak,
}

impl Effort {
    pub(crate) fn choose<T>(self, short: T, soak: T) -> T {
        match self {
            Self::Short => short,
            Self::Soak => soak,
        }
    }
}

/// A canary that a box can see and must not change.
pub(crate) struct Guarded {
    pub(crate) canary: Canary,
    /// Its path in the box.
    pub(crate) inside: String,
    /// The box in which it is visible.
    pub(crate) run: BoxRun,
}

/// One of several users of a server.
pub(crate) struct Tenant {
    pub(crate) token: String,
    pub(crate) asked: Asked,
    pub(crate) run: BoxRun,
}

/// The suite's server and this test's project.
struct Served {
    server: Arc<Server>,
    asked: Asked,
}

impl Context {
    pub(crate) fn new(mode: Mode, binary: &Path, effort: Effort, server: Option<Arc<Server>>) -> io::Result<Self> {
        let served = server.map(|server| Served { asked: Asked::of(&server, &server.token, "default"), server });
        // Creating the project used a box whose PID 1 ends soon; later boxes belong to the probe.
        if let Some(served) = &served {
            comes(|| boxes(&served.server).is_ok_and(|left| left.is_empty()));
        }
        Ok(Self { mode, served, binary: binary.to_owned(), scratch: Scratch::new(mode.identity())?, effort })
    }

    /// A `ringwall run` or an exec of the server, without flags.
    pub(crate) fn boxed(&self) -> BoxRun {
        let run = BoxRun::new(self.mode, &self.binary);
        match &self.served {
            Some(served) => run.asked(served.asked.clone()),
            None => run,
        }
    }

    /// As `boxed`, under the oracle that the payload's `judged` uses. The suite's server runs without the oracle, so there
    /// `judged` returns `no oracle`.
    pub(crate) fn with_oracle(&self) -> BoxRun {
        if self.is_served() { self.boxed() } else { self.boxed().through(WITH_ORACLE, &[]) }
    }

    /// The server, for probes that need one.
    pub(crate) fn server(&self) -> Result<&Server, Fault> {
        let served = self.served.as_ref().map(|served| &*served.server);
        served.ok_or_else(|| Fault::Senseless("the probe needs a server".into()))
    }

    /// A user of the server with a new project.
    pub(crate) fn tenant(&self, user: &str) -> Result<Tenant, Fault> {
        let server = self.server()?;
        let token = server.make_token(&["--role", "user", "--user", user]);
        let asked = Asked::of(server, &token, user);
        Ok(Tenant { run: BoxRun::new(self.mode, &self.binary).asked(asked.clone()), token, asked })
    }

    /// An empty host directory for a workspace.
    pub(crate) fn workspace(&self, name: &str) -> io::Result<PathBuf> {
        match &self.served {
            Some(served) => Ok(served.asked.work()),
            None => self.scratch.directory(name),
        }
    }

    /// The path of the workspace inside the box.
    pub(crate) fn place(&self) -> &'static str {
        if self.served.is_some() { SERVED_WORKSPACE } else { "/workspace" }
    }

    /// A canary in a directory that boxes see read-only, although permissions would allow changes.
    pub(crate) fn guarded(&self) -> io::Result<Guarded> {
        let Some(Served { asked, .. }) = &self.served else {
            let directory = self.scratch.directory("guarded")?;
            let canary = Canary::plant(&self.scratch, "guarded/file")?;
            let (inside, run) = (canary.text(), self.boxed().read_only(&directory));
            return Ok(Guarded { canary, inside, run });
        };
        let work = std::fs::metadata(asked.work())?;
        let (owner, directory) = ((work.uid(), work.gid()), asked.inputs().join("guarded"));
        std::fs::create_dir(&directory)?;
        let canary = Canary::plant_at(directory.join("file"), owner)?;
        std::os::unix::fs::chown(&directory, Some(owner.0), Some(owner.1))?;
        Ok(Guarded { canary, inside: format!("{SERVED_INPUTS}/guarded/file"), run: self.boxed() })
    }

    /// The result of a probe that does not apply to a server's exec, with the reason.
    pub(crate) fn not_served(&self, why: &str) -> Result<(), Fault> {
        if self.is_served() { Err(Fault::Senseless(why.into())) } else { Ok(()) }
    }

    pub(crate) fn is_served(&self) -> bool {
        self.served.is_some()
    }

    /// The process whose descendants are the processes of a box.
    pub(crate) fn above(&self, live: &LiveProcess) -> u32 {
        self.served.as_ref().map_or_else(|| live.id(), |served| served.server.id())
    }

    /// Runs a payload in a box. A payload without an answer makes the probe inconclusive.
    pub(crate) fn inside(&self, run: &BoxRun, payload: &Payload) -> Result<Value, Fault> {
        parse("inside the box", &run.run_payload(payload)?)
    }

    /// Runs the same payload on the host as the user who starts boxes.
    pub(crate) fn outside(&self, payload: &Payload) -> Result<Value, Fault> {
        outside_as(self.mode.identity(), payload)
    }

    /// Runs a program on the host as the user who starts boxes.
    pub(crate) fn bare<S: AsRef<OsStr>>(&self, words: &[S]) -> io::Result<Outcome> {
        bare_as(self.mode.identity(), words)
    }

    /// Our processes that are still running.
    pub(crate) fn left_behind(&self) -> io::Result<Vec<u32>> {
        let Some(served) = &self.served else { return host::running(&self.binary) };
        // A server's exec ends with its last process except PID 1, which ends a moment later.
        comes(|| boxes(&served.server).is_ok_and(|left| left.is_empty()));
        boxes(&served.server)
    }
}

const GLANCE: Duration = Duration::from_millis(2);

/// Waits until the condition is true. False if it does not become true in time.
pub(crate) fn comes(true_at_last: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if true_at_last() {
            return true;
        }
        if begun.elapsed() > DEADLINE {
            return false;
        }
        thread::sleep(GLANCE);
    }
}

/// The processes of a server's boxes: all beneath it that are not in the host's own pid namespace.
pub(crate) fn boxes(server: &Server) -> io::Result<Vec<u32>> {
    let own = std::fs::read_link("/proc/self/ns/pid")?;
    let is_boxed = |number: &u32| std::fs::read_link(format!("/proc/{number}/ns/pid")).is_ok_and(|id| id != own);
    Ok(host::descendants(server.id())?.into_iter().filter(is_boxed).collect())
}

/// A control that needs root is possible only if the tests run as root.
pub(crate) fn need_root(why: &str) -> Result<(), Fault> {
    if tester_is_root() {
        return Ok(());
    }
    Err(Fault::Skipped(Skip::Impossible(format!("the control needs root: {why}"))))
}

/// Runs a payload on the host as this identity.
pub(crate) fn outside_as(identity: Identity, payload: &Payload) -> Result<Value, Fault> {
    let outcome = bare_as(identity, &payload.arguments())?;
    parse("control outside the box", &outcome)
}

pub(crate) fn bare_as<S: AsRef<OsStr>>(identity: Identity, words: &[S]) -> io::Result<Outcome> {
    let mut command = identity.command(&words[0]);
    command.args(&words[1..]);
    run(command, None)
}

/// The last JSON value that a payload printed.
pub(crate) fn parse(place: &str, outcome: &Outcome) -> Result<Value, Fault> {
    let text = outcome.text();
    let last = text.lines().last().unwrap_or("");
    serde_json::from_str(last.trim())
        .map_err(|_| Fault::Inconclusive(format!("no answer {place}: {}", outcome.describe())))
}

/// The entries of an answer `{act: outcome}` whose outcome is not among `accepted`.
pub(crate) fn surprises(answer: &Value, accepted: &[&str]) -> Vec<String> {
    let Some(entries) = answer.as_object() else {
        return vec![format!("no table of outcomes: {answer}")];
    };
    entries
        .iter()
        .filter(|(_, outcome)| !outcome.as_str().is_some_and(|text| accepted.contains(&text)))
        .map(|(act, outcome)| format!("{act} → {outcome}"))
        .collect()
}
