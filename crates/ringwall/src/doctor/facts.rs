//! Everything that the doctor knows about a machine, as plain data.
//!
//! Rows are made from this and from nothing else, so that a machine with another kernel, another distribution or
//! another owner is a value in a test. Nothing here looks or judges.

use std::path::PathBuf;

use ringwall_executor::{Privilege, Protection, Step};

#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) privilege: Privilege,
    /// This very program, for advice that has to name it.
    pub(crate) program: PathBuf,
    pub(crate) kernel: Kernel,
    pub(crate) trial: Trial,
    pub(crate) namespaces: Namespaces,
    pub(crate) landlock: Landlock,
    pub(crate) cgroups: Cgroups,
    pub(crate) overlay: Overlay,
    pub(crate) docker: Docker,
    pub(crate) aio: Aio,
    pub(crate) runsc: Option<PathBuf>,
    pub(crate) chromium: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub(crate) release: String,
    /// Major and minor, as far as the release begins with them.
    pub(crate) version: Option<(u32, u32)>,
}

impl Kernel {
    pub(crate) fn parse(release: &str) -> Self {
        let number = |part: &str| {
            let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        };
        let mut parts = release.split('.').map(number);
        let version = parts.next().flatten().zip(parts.next().flatten());
        Kernel { release: release.to_owned(), version }
    }

    /// A release that cannot be read is not held against the kernel: the trial box is the judge.
    pub(crate) fn is_at_least(&self, major: u32, minor: u32) -> bool {
        self.version.is_none_or(|version| version >= (major, minor))
    }
}

/// What came of the trial box.
#[derive(Debug, Clone)]
pub(crate) enum Trial {
    /// `command` ran in it; `None` when the box stood, and no program of the host could be started in it.
    Made {
        protections: Vec<Protection>,
        command: Option<String>,
    },
    Failed(TrialFailure),
}

#[derive(Debug, Clone)]
pub(crate) struct TrialFailure {
    /// Where making the box stopped; `None` when it was not the making that failed.
    pub(crate) step: Option<Step>,
    /// The kernel's error number, or 0.
    pub(crate) errno: i32,
    /// What failed and on what, in words.
    pub(crate) text: String,
    pub(crate) hint: Option<String>,
}

/// What stands between this process and new namespaces. `None`: this kernel has no such setting.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespaces {
    /// Debian's `kernel.unprivileged_userns_clone`.
    pub(crate) unprivileged_clone: Option<bool>,
    /// Ubuntu's `kernel.apparmor_restrict_unprivileged_userns`.
    pub(crate) apparmor_restricts: Option<bool>,
    /// The `user.max_*_namespaces` settings that are zero, by their names.
    pub(crate) closed: Vec<&'static str>,
    pub(crate) selinux_enforcing: bool,
    /// Somebody put a system call filter on this process: a container, or a service manager.
    pub(crate) filtered: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Landlock {
    Version(u32),
    NotBuilt,
    NotEnabled,
    Refused,
}

#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    pub(crate) hierarchy: Hierarchy,
    /// Where boxes' groups are made, or why nowhere.
    pub(crate) places: Result<Places, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hierarchy {
    NotMounted,
    Version1,
    /// Version 1 controllers beside a version 2 tree.
    Hybrid,
    Version2,
}

/// The directory in which each controller's groups are made.
#[derive(Debug, Clone, Default)]
pub(crate) struct Places {
    pub(crate) memory: Option<String>,
    pub(crate) pids: Option<String>,
    pub(crate) cpu: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overlay {
    /// In /proc/filesystems.
    Listed,
    /// Not in use yet; the kernel's modules include it.
    Module,
    Absent,
}

#[derive(Debug, Clone)]
pub(crate) struct Docker {
    pub(crate) client: Option<PathBuf>,
    pub(crate) daemon: Daemon,
}

/// What was found at the other end of Docker's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Daemon {
    /// Nobody has made a socket.
    Absent,
    Answers {
        socket: PathBuf,
        api: Option<String>,
    },
    /// The socket is there, and nobody listens.
    Refuses {
        socket: PathBuf,
    },
    Forbidden {
        socket: PathBuf,
    },
    Silent {
        socket: PathBuf,
    },
    /// It said something that Docker does not say, or the connection broke.
    Strange {
        socket: PathBuf,
        what: String,
    },
    /// `DOCKER_HOST` names something that is not a local socket. Only its scheme is kept: the rest may hold a secret.
    Elsewhere {
        scheme: String,
    },
}

/// What is known of an external AIO service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Aio {
    NotConfigured,
    Answers {
        version: String,
    },
    /// Why not, and what to do.
    Unusable {
        why: String,
        fix: String,
    },
}

#[cfg(test)]
impl Facts {
    /// A machine on which everything is as it should be, as root.
    pub(crate) fn sample() -> Self {
        let place = |name: &str| Some(format!("/sys/fs/cgroup/{name}"));
        Facts {
            privilege: Privilege::Root,
            program: "/usr/local/bin/ringwall".into(),
            kernel: Kernel::parse("6.18.5"),
            trial: Trial::Made {
                protections: ringwall_executor::ProtectionName::ALL.into_iter().map(Protection::enforced).collect(),
                command: Some("/usr/bin/true".into()),
            },
            namespaces: Namespaces::default(),
            landlock: Landlock::Version(7),
            cgroups: Cgroups {
                hierarchy: Hierarchy::Version2,
                places: Ok(Places { memory: place("boxes"), pids: place("boxes"), cpu: place("boxes") }),
            },
            overlay: Overlay::Listed,
            docker: Docker { client: None, daemon: Daemon::Absent },
            aio: Aio::NotConfigured,
            runsc: None,
            chromium: None,
        }
    }

    /// The same machine, without root.
    pub(crate) fn rootless() -> Self {
        Facts { privilege: Privilege::Rootless, ..Facts::sample() }
    }

    /// Where no box could be made.
    pub(crate) fn failed(self, step: Step, errno: i32) -> Self {
        let text = format!("could not {}", step.words());
        Facts { trial: Trial::Failed(TrialFailure { step: Some(step), errno, text, hint: None }), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_of_all_distributions_are_read() {
        let table = [
            ("6.18.5", Some((6, 18))),
            ("5.10.0-28-amd64", Some((5, 10))),
            ("5.15-rc3", Some((5, 15))),
            ("4.18.0-553.el8_10.x86_64", Some((4, 18))),
            ("6.6.87.2-microsoft-standard-WSL2", Some((6, 6))),
            ("unknown", None),
            ("", None),
        ];
        for (release, version) in table {
            assert_eq!(Kernel::parse(release).version, version, "{release}");
        }
    }

    #[test]
    fn versions_compare_as_numbers() {
        assert!(Kernel::parse("5.12.0").is_at_least(5, 12));
        assert!(Kernel::parse("6.1.0").is_at_least(5, 12));
        assert!(!Kernel::parse("5.9.0").is_at_least(5, 12));
        assert!(Kernel::parse("strange").is_at_least(5, 12));
    }
}
