//! The protections of a container, reported under the same names as those of native boxes.
//!
//! They are derived from `docker info` and from our command line, and are not tested. In a native
//! box PID 1 tests them.

use ringwall_jail::report::{Protection, ProtectionName};

use super::daemon::{Daemon, Runtime};
use crate::protection::OF_EVERY_BACKEND;
use crate::{counters, host};

pub(crate) fn protections(daemon: &Daemon, runtime: Runtime) -> Vec<Protection> {
    let either = |holds, name, why: &str| match holds {
        true => Protection::enforced(name),
        false => Protection::not_available(name, why),
    };
    let mut found: Vec<_> = OF_EVERY_BACKEND.map(Protection::enforced).into();
    found.push(either(
        daemon.has_security("name=userns") || daemon.has_security("name=rootless"),
        ProtectionName::UserNamespace,
        "this docker daemon maps no user ids; the box runs as a user of this machine, and never as root",
    ));
    found.push(match runtime {
        Runtime::Gvisor => Protection::partial(ProtectionName::Seccomp, "gVisor's own kernel answers the calls"),
        Runtime::Default if daemon.has_security("profile=unconfined") || !daemon.has_security("name=seccomp") => {
            Protection::not_available(ProtectionName::Seccomp, "this docker daemon filters no system calls")
        }
        Runtime::Default => Protection::partial(ProtectionName::Seccomp, "the filter is docker's, not Ringwall's"),
    });
    found.push(Protection::not_available(ProtectionName::Landlock, "docker does not use it"));
    let pools = "terminals, asynchronous I/O and BPF filters come from pools of the machine";
    let limits = match daemon.core_limit {
        true => format!("core files and open files only; {pools}"),
        false => format!(
            "open files only: the docker daemon is rootless and the hard core size limit is 0, so a crash starts the host's \
             piped core handler, if it has one; {pools}"
        ),
    };
    found.push(Protection::partial(ProtectionName::ResourceLimits, limits));
    let lacking = "this docker daemon cannot enforce it";
    found.push(either(daemon.memory_limit, ProtectionName::MemoryLimit, lacking));
    found.push(match runtime {
        Runtime::Gvisor if daemon.pids_limit => {
            Protection::partial(ProtectionName::PidsLimit, "gVisor's own threads count too, and have room of their own")
        }
        _ => either(daemon.pids_limit, ProtectionName::PidsLimit, lacking),
    });
    found.push(either(daemon.cpu_quota, ProtectionName::CpuLimit, lacking));
    found.push(Protection::not_available(ProtectionName::IoLimit, "containers are started without a disk limit"));
    found.push(Protection::partial(
        ProtectionName::OpenFiles,
        "4,096 descriptors per process; nothing limits the open files of all processes of a container",
    ));
    found.extend(counters::protections_of_container(host::privilege()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::daemon::test_daemon;
    use crate::error::Error;
    use crate::protection::check;

    #[test]
    fn daemon_without_seccomp_filter_is_refused() {
        let grant = crate::docker::argv::tests::grant(&[], &[]);
        let default = protections(&test_daemon(), Runtime::Default);
        assert!(check(&grant, &default, "docker").is_ok());
        for security in [vec![], vec!["name=seccomp,profile=unconfined".to_owned()]] {
            let daemon = Daemon { security, ..test_daemon() };
            let lacking = protections(&daemon, Runtime::Default);
            let refused = check(&grant, &lacking, "docker");
            assert!(matches!(refused, Err(Error::ProtectionMissing { name: ProtectionName::Seccomp, .. })));
        }
    }

    #[test]
    fn missing_core_limit_is_reported() {
        let why = |core_limit| {
            let found = protections(&Daemon { core_limit, ..test_daemon() }, Runtime::Default);
            let limits = found.into_iter().find(|protection| protection.name == ProtectionName::ResourceLimits);
            limits.and_then(|limits| limits.why).unwrap_or_default()
        };
        assert!(!why(true).contains("core handler"));
        assert!(why(false).contains("core handler"));
    }

    #[test]
    fn missing_required_protection_is_refused() {
        use ringwall_policy::Requirement;
        let landlock = crate::docker::argv::tests::grant(&[], &[Requirement::Landlock]);
        let memory = crate::docker::argv::tests::grant(&[], &[Requirement::Memory]);
        let all = protections(&test_daemon(), Runtime::Default);
        assert!(check(&landlock, &all, "docker").is_err());
        assert!(check(&memory, &all, "docker").is_ok());
        let daemon = Daemon { memory_limit: false, ..test_daemon() };
        assert!(check(&memory, &protections(&daemon, Runtime::Default), "docker").is_err());
    }
}
