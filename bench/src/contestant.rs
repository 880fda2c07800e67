//! The contestants, and how a run is started and timed.
//!
//! A run is timed from before its start to after its end, with one clock. Programs are started by
//! `std::process::Command`, which uses posix_spawn here, without shell, terminal or input.

use std::ffi::OsString;
use std::fs::FileType;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::boxes::{Boxes, Limits, Timed};
use crate::error::Error;

/// The measured commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    True,
    Python,
}

impl Task {
    pub(crate) const ALL: [Task; 2] = [Task::True, Task::Python];

    pub(crate) fn command(self) -> &'static [&'static str] {
        match self {
            Task::True => &["/bin/true"],
            Task::Python => &["/usr/bin/python3", "-c", "1"],
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Contestant {
    Bare,
    Bubblewrap,
    BoxAlone,
    BoxWithoutCgroups,
    RingwallRun,
}

impl Contestant {
    pub(crate) const ALL: [Contestant; 5] = [
        Contestant::Bare,
        Contestant::Bubblewrap,
        Contestant::BoxAlone,
        Contestant::BoxWithoutCgroups,
        Contestant::RingwallRun,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Contestant::Bare => "fork+exec",
            Contestant::Bubblewrap => "bwrap",
            Contestant::BoxAlone => "native box",
            Contestant::BoxWithoutCgroups => "native box without cgroups",
            Contestant::RingwallRun => "ringwall run",
        }
    }

    /// The name that programs read.
    pub(crate) fn key(self) -> &'static str {
        match self {
            Contestant::Bare => "bare",
            Contestant::Bubblewrap => "bwrap",
            Contestant::BoxAlone => "box_alone",
            Contestant::BoxWithoutCgroups => "box_without_cgroups",
            Contestant::RingwallRun => "ringwall_run",
        }
    }
}

/// Everything that has to be there before the first run.
#[derive(Debug)]
pub(crate) struct Field {
    ringwall: PathBuf,
    bubblewrap: Vec<OsString>,
    pub(crate) boxes: Boxes,
    _data: TempDir,
}

/// How long a run took and, for a box made in this process, what else was seen of it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) total: Duration,
    pub(crate) timed: Option<Timed>,
}

impl Field {
    pub(crate) fn gather() -> Result<Self, Error> {
        let data = TempDir::new().map_err(Error::Scratch)?;
        // Installed, as its users and bubblewrap have it: a file fresh from the linker lies in the page cache in small
        // pieces and costs 0.1 ms more to start.
        let ringwall = data.path().join("ringwall");
        std::fs::copy(ringwall_binary()?, &ringwall).map_err(Error::Scratch)?;
        Ok(Field { ringwall, bubblewrap: bubblewrap_arguments(), boxes: Boxes::prepare(data.path())?, _data: data })
    }

    /// The installed binary.
    pub(crate) fn ringwall(&self) -> &Path {
        &self.ringwall
    }

    /// Bubblewrap, about to run these words.
    pub(crate) fn bubblewrap(&self, words: &[&str]) -> Command {
        let mut command = Command::new("bwrap");
        command.args(&self.bubblewrap).args(words);
        command
    }

    /// One run of one contestant.
    pub(crate) fn run(&self, runtime: &Runtime, contestant: Contestant, task: Task) -> Result<Run, Error> {
        let limits = match contestant {
            Contestant::BoxAlone => Limits::Cgroups,
            Contestant::BoxWithoutCgroups => Limits::WithoutCgroups,
            Contestant::Bare | Contestant::Bubblewrap | Contestant::RingwallRun => {
                return self.start_and_wait(contestant, task).map(|total| Run { total, timed: None });
            }
        };
        let timed = self.boxes.run(runtime, limits, task.command())?;
        Ok(Run { total: timed.total, timed: Some(timed) })
    }

    fn start_and_wait(&self, contestant: Contestant, task: Task) -> Result<Duration, Error> {
        let words = task.command();
        let mut command = match contestant {
            Contestant::Bubblewrap => self.bubblewrap(words),
            Contestant::RingwallRun => {
                let mut command = Command::new(&self.ringwall);
                command.args(["run", "--"]).args(words);
                command
            }
            Contestant::Bare | Contestant::BoxAlone | Contestant::BoxWithoutCgroups => {
                let mut command = Command::new(words[0]);
                command.args(&words[1..]);
                command
            }
        };
        time(&mut command)
    }
}

/// Starts a program and waits for its end, which must be a good one.
pub(crate) fn time(command: &mut Command) -> Result<Duration, Error> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let began = Instant::now();
    let status = command.status();
    let total = began.elapsed();
    let program = || command.get_program().to_string_lossy().into_owned();
    match status {
        Ok(status) if status.success() => Ok(total),
        Ok(status) => Err(Error::Failed { program: program(), status }),
        Err(source) => Err(Error::Start { program: program(), source }),
    }
}

/// `RINGWALL_BIN`, or the binary beside this program.
fn ringwall_binary() -> Result<PathBuf, Error> {
    let path = match std::env::var_os("RINGWALL_BIN") {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe().map_err(Error::OwnPath)?.with_file_name("ringwall"),
    };
    if path.is_file() { Ok(path) } else { Err(Error::BinaryMissing(path)) }
}

/// The same namespaces as ours and a comparable root. Ours has more to do: it also has an /etc of its own, masks
/// parts of /proc, installs a system call filter and Landlock rules, and sets limits.
fn bubblewrap_arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(OsString::from));
    add(&["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]);
    for path in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
        let kind = Path::new(path).symlink_metadata().map(|metadata| metadata.file_type());
        if kind.as_ref().is_ok_and(FileType::is_dir) {
            add(&["--ro-bind", path, path]);
        } else if let Some(target) = std::fs::read_link(path).ok().as_deref().and_then(Path::to_str) {
            add(&["--symlink", target, path]);
        }
    }
    add(&[
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--tmpfs",
        "/workspace",
        "--chdir",
        "/workspace",
        "--",
    ]);
    arguments
}
