//! Who acts: the two ways in which the product is run, and the identities that a test takes on for them.
//! A mode that cannot run here says why; it is never dropped in silence. Nothing here starts the product.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// The uid and gid of the rootless actor when the tests themselves run as root: an id that owns nothing.
pub const ROOTLESS_ID: u32 = 54321;

/// Process ids are added to it.
const FIRST_ALONE_ID: u32 = 1_700_000_000;

/// The two ways in which the product is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Root,
    Rootless,
}

/// As whom a process is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// As the user of the tests.
    Tester,
    /// As a user without privileges: the rootless id, or the tester when already unprivileged.
    Unprivileged,
    /// As an unprivileged user whom only this test process uses: for tests that exhaust what the kernel counts per
    /// user. Needs a tester who is root.
    Alone,
}

/// Why a mode or a probe did not run.
#[derive(Clone, Debug)]
pub enum Skip {
    /// The machine cannot do it even with all packages installed.
    Impossible(String),
    /// Something is missing that could be there: a failure where the suite must be complete.
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

    /// The identity that starts the product in this mode.
    pub fn identity(self) -> Identity {
        match self {
            Self::Root => Identity::Tester,
            Self::Rootless => Identity::Unprivileged,
        }
    }

    /// Says whether the mode can run on this machine, by trying rather than by reading settings.
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
    /// The numeric user and group id, as the host sees them.
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

    /// A command that runs `program` under this identity, with an environment that holds only `PATH` and `HOME`.
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
