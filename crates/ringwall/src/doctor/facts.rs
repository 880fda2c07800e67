//! The facts about a machine, as plain data.
//!
//! Rows are computed from [`Facts`] alone, so that tests can construct other kernels, distributions and
//! privileges.

use std::path::PathBuf;

use ringwall_executor::{Privilege, Protection, Step};

#[derive(Debug, Clone)]
pub(crate) struct Facts {
    pub(crate) privilege: Privilege,
    /// The path of this binary, for the AppArmor profile in a fix.
    pub(crate) program: PathBuf,
    pub(crate) kernel: Kernel,
    pub(crate) probe_box: ProbeBox,
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
    /// Major and minor; `None` if the release does not start with them.
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

    /// `true` for an unknown version; the probe box shows whether the kernel is new enough.
    pub(crate) fn is_at_least(&self, major: u32, minor: u32) -> bool {
        self.version.is_none_or(|version| version >= (major, minor))
    }
}

/// The result of the probe box.
#[derive(Debug, Clone)]
pub(crate) enum ProbeBox {
    /// `command` is `None` if the box started but no program of the host could be executed in it.
    Made {
        protections: Vec<Protection>,
        command: Option<String>,
    },
    Failed(ProbeBoxFailure),
}

#[derive(Debug, Clone)]
pub(crate) struct ProbeBoxFailure {
    /// The step of the box's set-up that failed; `None` if something else failed.
    pub(crate) step: Option<Step>,
    /// The kernel's error number, or 0.
    pub(crate) errno: i32,
    /// The error message.
    pub(crate) text: String,
    pub(crate) hint: Option<String>,
}

/// Settings that can forbid this process to create namespaces. `None`: the kernel has no such setting.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespaces {
    /// Debian's `kernel.unprivileged_userns_clone`.
    pub(crate) unprivileged_clone: Option<bool>,
    /// Ubuntu's `kernel.apparmor_restrict_unprivileged_userns`.
    pub(crate) apparmor_restricts: Option<bool>,
    /// The names of the `user.max_*_namespaces` settings that are 0.
    pub(crate) closed: Vec<&'static str>,
    pub(crate) selinux_enforcing: bool,
    /// This process has a seccomp filter, for example from a container or a service manager.
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
    /// The parent directories of the boxes' cgroups, or why boxes have no cgroups.
    pub(crate) parents: Result<CgroupParents, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hierarchy {
    NotMounted,
    Version1,
    /// Version 1 controllers and a version 2 tree.
    Hybrid,
    Version2,
}

/// Per controller, the directory in which the boxes' cgroups are created.
#[derive(Debug, Clone, Default)]
pub(crate) struct CgroupParents {
    pub(crate) memory: Option<String>,
    pub(crate) pids: Option<String>,
    pub(crate) cpu: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overlay {
    /// In /proc/filesystems.
    Listed,
    /// Not loaded, but among the kernel's modules.
    Module,
    Absent,
}

#[derive(Debug, Clone)]
pub(crate) struct Docker {
    pub(crate) client: Option<PathBuf>,
    pub(crate) daemon: Daemon,
}

/// The result of a request to Docker's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Daemon {
    /// The socket does not exist.
    Absent,
    Answers {
        socket: PathBuf,
        api: Option<String>,
    },
    /// The socket exists, but no process listens on it.
    NotListening {
        socket: PathBuf,
    },
    Forbidden {
        socket: PathBuf,
    },
    NoAnswer {
        socket: PathBuf,
    },
    /// The connection failed, or the response is not one of Docker.
    NotDocker {
        socket: PathBuf,
        what: String,
    },
    /// `DOCKER_HOST` is not the address of a local socket. Only its scheme is kept, because the rest may
    /// contain a secret.
    NotLocal {
        scheme: String,
    },
}

/// The state of the external AIO service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Aio {
    NotConfigured,
    Answers {
        version: String,
    },
    /// It did not answer, refused the key, or its configuration is invalid.
    Unusable {
        why: String,
        fix: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Facts {
        /// Root on a machine that supports everything.
        pub(crate) fn sample() -> Self {
            let parent = |name: &str| Some(format!("/sys/fs/cgroup/{name}"));
            Facts {
                privilege: Privilege::Root,
                program: "/usr/local/bin/ringwall".into(),
                kernel: Kernel::parse("6.18.5"),
                probe_box: ProbeBox::Made {
                    protections: ringwall_executor::ProtectionName::ALL.into_iter().map(Protection::enforced).collect(),
                    command: Some("/usr/bin/true".into()),
                },
                namespaces: Namespaces::default(),
                landlock: Landlock::Version(7),
                cgroups: Cgroups {
                    hierarchy: Hierarchy::Version2,
                    parents: Ok(CgroupParents { memory: parent("boxes"), pids: parent("boxes"), cpu: parent("boxes") }),
                },
                overlay: Overlay::Listed,
                docker: Docker { client: None, daemon: Daemon::Absent },
                aio: Aio::NotConfigured,
                runsc: None,
                chromium: None,
            }
        }

        /// The same machine as [`Facts::sample`], without root.
        pub(crate) fn rootless() -> Self {
            Facts { privilege: Privilege::Rootless, ..Facts::sample() }
        }

        /// The same machine with a probe box that failed.
        pub(crate) fn failed(self, step: Step, errno: i32) -> Self {
            let text = format!("could not {}", step.phrase());
            Facts { probe_box: ProbeBox::Failed(ProbeBoxFailure { step: Some(step), errno, text, hint: None }), ..self }
        }
    }

    #[test]
    fn kernel_releases_of_distributions_are_parsed() {
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
    fn kernel_versions_compare_as_numbers() {
        assert!(Kernel::parse("5.12.0").is_at_least(5, 12));
        assert!(Kernel::parse("6.1.0").is_at_least(5, 12));
        assert!(!Kernel::parse("5.9.0").is_at_least(5, 12));
        assert!(Kernel::parse("strange").is_at_least(5, 12));
    }
}
