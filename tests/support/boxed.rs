//! Runs of `ringwall run` in one of the two modes, or the same command as an exec of a server. Uses only the documented
//! command line and JSON.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::actor::Mode;
use super::asked::{Asked, not_served};
use super::payload::{PYTHON, Payload};
use super::process::{LiveProcess, Outcome, run};
use super::scratch::Scratch;

/// The binary under test: `RINGWALL_BIN`, or this workspace's debug build.
pub fn binary() -> Result<PathBuf, String> {
    let path = std::env::var_os("RINGWALL_BIN")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/debug/ringwall"), PathBuf::from);
    path.canonicalize().map_err(|error| {
        format!(
            "no binary to attack at {}: {error}\nhint: build it with `cargo build -p ringwall`, or set RINGWALL_BIN",
            path.display()
        )
    })
}

/// Copies the binary to a directory that every user can reach. `install` copies it in another process: a descriptor open
/// for writing here would be inherited by a child that another thread forks, and `execve` of the copy would fail with
/// ETXTBSY.
pub fn place(home: &Scratch) -> Result<PathBuf, String> {
    let place = home.join("ringwall");
    let copied = Command::new("install").arg("--mode=755").args([&binary()?, &place]).status();
    match copied {
        Ok(status) if status.success() => Ok(place),
        other => Err(format!("cannot copy the binary: {other:?}")),
    }
}
/// A builder for `ringwall run`.
#[derive(Clone, Debug)]
pub struct BoxRun {
    mode: Mode,
    binary: PathBuf,
    launcher: Vec<OsString>,
    flags: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    asked: Option<Asked>,
}

impl BoxRun {
    pub fn new(mode: Mode, binary: &Path) -> Self {
        let (launcher, flags, environment) = (Vec::new(), Vec::new(), Vec::new());
        Self { mode, binary: binary.to_owned(), launcher, flags, environment, asked: None }
    }

    /// Runs as an exec of a server instead.
    pub fn asked(mut self, asked: Asked) -> Self {
        self.asked = Some(asked);
        self
    }

    pub fn flag(mut self, name: &str) -> Self {
        self.flags.push(name.into());
        self
    }

    pub fn option(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.flags.push(name.into());
        self.flags.push(value.as_ref().to_owned());
        self
    }

    pub fn workspace(self, directory: &Path) -> Self {
        self.option("--workspace", directory)
    }

    pub fn read_only(self, directory: &Path) -> Self {
        self.option("--ro", directory)
    }

    /// Sets a variable for `ringwall run` itself, which the box must not see.
    pub fn host_variable(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts `ringwall run` through a Python launcher, which gets `arguments` and then the command line.
    pub fn through(mut self, launcher: &str, arguments: &[&OsStr]) -> Self {
        self.launcher = vec![PYTHON.into(), "-I".into(), "-c".into(), launcher.into()];
        self.launcher.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    /// Starts `ringwall run` through another program.
    pub fn through_program(mut self, words: &[&str]) -> Self {
        self.launcher = words.iter().map(OsString::from).collect();
        self
    }

    pub fn command<S: AsRef<OsStr>>(&self, words: &[S]) -> Command {
        let mut line = self.launcher.clone();
        line.push(self.binary.clone().into());
        line.push("run".into());
        line.extend(self.flags.iter().cloned());
        line.push("--".into());
        line.extend(words.iter().map(|word| word.as_ref().to_owned()));
        let mut command = self.mode.identity().command(&line[0]);
        command.args(&line[1..]);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// The command, or an error if a server's exec cannot do this.
    fn started<S: AsRef<OsStr>>(&self, words: &[S]) -> io::Result<Command> {
        let Some(asked) = &self.asked else { return Ok(self.command(words)) };
        if !self.launcher.is_empty() || !self.environment.is_empty() {
            return Err(not_served("a server starts its boxes itself, so a launcher or variable has no effect"));
        }
        let words = words.iter().map(|word| word.as_ref().to_owned()).collect();
        let line = asked.line(&self.flags, words)?;
        let mut command = self.mode.identity().command(&line[0]);
        command.args(&line[1..]);
        Ok(command)
    }

    pub fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> io::Result<Outcome> {
        run(self.started(words)?, None)
    }

    pub fn run_payload(&self, payload: &Payload) -> io::Result<Outcome> {
        self.run(&payload.arguments())
    }

    pub fn start<S: AsRef<OsStr>>(&self, words: &[S]) -> io::Result<LiveProcess> {
        LiveProcess::start(self.started(words)?)
    }

    pub fn start_payload(&self, payload: &Payload) -> io::Result<LiveProcess> {
        self.start(&payload.arguments())
    }

    /// Runs with `--json`. Standard output must be one object.
    pub fn report<S: AsRef<OsStr>>(self, words: &[S]) -> io::Result<Report> {
        let outcome = self.flag("--json").run(words)?;
        Report::read(outcome)
    }

    pub fn report_payload(self, payload: &Payload) -> io::Result<Report> {
        self.report(&payload.arguments())
    }
}

/// The JSON object of a run, and the run's outcome.
#[derive(Clone, Debug)]
pub struct Report {
    pub value: Value,
    pub outcome: Outcome,
}

impl Report {
    pub fn read(outcome: Outcome) -> io::Result<Self> {
        match serde_json::from_slice::<Value>(&outcome.stdout) {
            Ok(value) if value.is_object() => Ok(Self { value, outcome }),
            Ok(_) => Err(io::Error::other(format!("--json gave no object: {}", outcome.describe()))),
            Err(error) => Err(io::Error::other(format!("--json gave no JSON ({error}): {}", outcome.describe()))),
        }
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.value.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    pub fn number(&self, pointer: &str) -> Option<u64> {
        self.value.pointer(pointer).and_then(Value::as_u64)
    }

    pub fn stdout(&self) -> &str {
        self.value.get("stdout").and_then(Value::as_str).unwrap_or("")
    }

    pub fn stderr(&self) -> &str {
        self.value.get("stderr").and_then(Value::as_str).unwrap_or("")
    }

    /// The protections whose name contains `part`, each as (name, state, why).
    pub fn protections(&self, part: &str) -> Vec<(String, String, String)> {
        let text = |entry: &Value, key: &str| entry.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
        self.value
            .get("protections")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|entry| (text(entry, "name"), text(entry, "state"), text(entry, "why")))
            .filter(|(name, _, _)| name.contains(part))
            .collect()
    }

    /// The report without its long fields, for messages.
    pub fn summary(&self) -> String {
        let mut value = self.value.clone();
        if let Some(object) = value.as_object_mut() {
            for long in ["stdout", "stderr", "protections", "setup", "limits"] {
                object.remove(long);
            }
        }
        let tail: String = self.stderr().chars().rev().take(300).collect::<Vec<_>>().into_iter().rev().collect();
        format!("{value}; stderr of the command {tail:?}; stderr of ringwall {:?}", self.outcome.errors())
    }
}
