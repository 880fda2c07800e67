//! What a probe is: an act that must fail inside the box, its control outside, and a verdict taken from the host.
//! A probe whose control fails is inconclusive, and that is a failure: a dead oracle proves nothing.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tests::support::actor::{Identity, Mode, Skip, tester_is_root};
use tests::support::boxed::BoxRun;
use tests::support::host;
use tests::support::payload::Payload;
use tests::support::process::{Outcome, run};
use tests::support::scratch::Scratch;

/// One attack.
pub(crate) struct Probe {
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    pub(crate) run: fn(&Context) -> Verdict,
}

/// What was seen when the box held, in a few words; or why it cannot be said to have held.
pub(crate) type Verdict = Result<String, Fault>;

pub(crate) enum Fault {
    /// The attack got through.
    Broken(String),
    /// The control failed or the payload never ran, so nothing was shown.
    Inconclusive(String),
    Skipped(Skip),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Inconclusive(error.to_string())
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
        }
    }
}

/// Fails the probe as broken unless `holds`.
pub(crate) fn held(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::Broken(otherwise())) }
}

/// Fails the probe as inconclusive unless the control shows what it must.
pub(crate) fn control(shows: bool, otherwise: impl FnOnce() -> String) -> Result<(), Fault> {
    if shows { Ok(()) } else { Err(Fault::Inconclusive(format!("control: {}", otherwise()))) }
}

/// Fails as broken when a canary changed.
pub(crate) fn untouched(canary: &tests::support::canary::Canary) -> Result<(), Fault> {
    canary.changed().map_or(Ok(()), |change| Err(Fault::Broken(change)))
}

/// What one trial works with.
pub(crate) struct Context {
    pub(crate) mode: Mode,
    pub(crate) binary: PathBuf,
    pub(crate) scratch: Scratch,
    pub(crate) effort: Effort,
}

/// How long races and repetitions go on.
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

impl Context {
    pub(crate) fn new(mode: Mode, binary: &Path, effort: Effort) -> io::Result<Self> {
        Ok(Self { mode, binary: binary.to_owned(), scratch: Scratch::new(mode.identity())?, effort })
    }

    /// A plain `ringwall run`, to be given flags.
    pub(crate) fn boxed(&self) -> BoxRun {
        BoxRun::new(self.mode, &self.binary)
    }

    /// The box's answer to a payload; a payload that did not get to answer shows nothing.
    pub(crate) fn inside(&self, run: &BoxRun, payload: &Payload) -> Result<Value, Fault> {
        parse("inside the box", &run.run_payload(payload)?)
    }

    /// The same payload outside, as the user who starts the product.
    pub(crate) fn outside(&self, payload: &Payload) -> Result<Value, Fault> {
        outside_as(self.mode.identity(), payload)
    }

    /// Runs a program outside as the user who starts the product.
    pub(crate) fn bare<S: AsRef<OsStr>>(&self, words: &[S]) -> io::Result<Outcome> {
        bare_as(self.mode.identity(), words)
    }

    /// Processes of the product that are still there.
    pub(crate) fn left_behind(&self) -> io::Result<Vec<u32>> {
        host::running(&self.binary)
    }
}

/// A control that needs root can only be made when the tests run as root.
pub(crate) fn need_root(why: &str) -> Result<(), Fault> {
    if tester_is_root() {
        return Ok(());
    }
    Err(Fault::Skipped(Skip::Impossible(format!("the control needs root: {why}"))))
}

/// A payload outside, as a chosen identity.
pub(crate) fn outside_as(identity: Identity, payload: &Payload) -> Result<Value, Fault> {
    let outcome = bare_as(identity, &payload.arguments())?;
    parse("control outside the box", &outcome)
}

pub(crate) fn bare_as<S: AsRef<OsStr>>(identity: Identity, words: &[S]) -> io::Result<Outcome> {
    let mut command = identity.command(&words[0]);
    command.args(&words[1..]);
    run(command, None)
}

/// The JSON value that a payload wrote last.
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
