//! The modes in which the product is run, and the users that tests run programs as. A mode that this machine cannot run is
//! printed as skipped, with its reason.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// The uid and gid of the rootless mode if the tests run as root. The id owns nothing.
pub const ROOTLESS_ID: u32 = 54321;

/// The first uid of [`Identity::Alone`]; the PID of the tests is added.
const FIRST_ALONE_ID: u32 = 1_700_000_000;

/// The two modes of the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Root,
    Rootless,
}

/// The user of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The user of the tests.
    Tester,
    /// A user without privileges: [`ROOTLESS_ID`], or the tester if that is not root.
    Unprivileged,
    /// An unprivileged user that only this test process uses, for tests that exhaust kernel counters of a user. Needs
    /// root.
    Alone,
}

/// Why a mode or a probe did not run.
#[derive(Clone, Debug)]
pub enum Skip {
    /// The machine cannot do it even with all packages installed.
    Impossible(String),
    /// A package is missing. With `CI` set this is a failure.
    Missing(String),
}

impl Skip {
    pub fn reason(&self) -> &str {
        match self {
            Self::Impossible(reason) | Self::Missing(reason) => reason,
        }
    }
}

impl Mode {
    pub const ALL: [Self; 2] = [Self::Root, Self::Rootless];

    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Rootless => "rootless",
        }
    }

    /// The modes that this machine can run. Prints the others with the reason.
    #[expect(clippy::print_stdout, reason = "prints skipped tests")]
    pub fn runnable() -> Vec<Self> {
        let mut modes = Self::ALL.to_vec();
        modes.retain(|mode| match mode.available() {
            Ok(()) => true,
            Err(skip) => {
                println!("skipped: all tests as {}, because {}", mode.name(), skip.reason());
                false
            }
        });
        modes
    }

    /// The identity that starts the product in this mode.
    pub fn identity(self) -> Identity {
        match self {
            Self::Root => Identity::Tester,
            Self::Rootless => Identity::Unprivileged,
        }
    }

    /// Tests whether this machine can run the mode by trying it.
    pub fn available(self) -> Result<(), Skip> {
        match self {
            Self::Root if tester_is_root() => Ok(()),
            Self::Root => Err(Skip::Impossible("the tests do not run as root".into())),
            Self::Rootless => {
                if tester_is_root() && !succeeds(Command::new("setpriv").arg("--version")) {
                    return Err(Skip::Missing("setpriv (util-linux) is not installed".into()));
                }
                let mut unshare = self.identity().command("unshare");
                unshare.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "--net", "true"]);
                if succeeds(&mut unshare) {
                    Ok(())
                } else {
                    Err(Skip::Impossible("this kernel gives unprivileged users no user namespaces".into()))
                }
            }
        }
    }
}

impl Identity {
    /// The uid and gid on the host.
    pub fn id(self) -> (u32, u32) {
        if let Some(id) = self.other_id() {
            return (id, id);
        }
        (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
    }

    /// The id to change to.
    fn other_id(self) -> Option<u32> {
        let id = match self {
            Self::Tester => return None,
            Self::Unprivileged => ROOTLESS_ID,
            Self::Alone => FIRST_ALONE_ID + std::process::id(),
        };
        tester_is_root().then_some(id)
    }

    /// A command that runs `program` as this user, with only `PATH` and `HOME` in the environment.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut command = if let Some(id) = self.other_id() {
            let mut command = Command::new("setpriv");
            command
                .arg(format!("--reuid={id}"))
                .arg(format!("--regid={id}"))
                .args(["--clear-groups", "--inh-caps=-all", "--"])
                .arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/nonexistent")
            .current_dir("/");
        command
    }
}

/// True if the tests run as root.
pub fn tester_is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
