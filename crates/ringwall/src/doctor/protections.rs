//! The rows about the probe box and its protections: purpose, consequence of a gap, and fix.
//!
//! A protection has a fix only if the user can change something; a kernel may also just lack it.

use ringwall_executor::{Protection, ProtectionName, ProtectionState};

use super::cgroups;
use super::facts::{Facts, Landlock, ProbeBox};
use super::remedy;
use super::report::{Check, State};

/// The probe box, then its protections. If it failed, the only protection reported is Landlock, which
/// the kernel reports without a box.
pub(crate) fn rows(facts: &Facts) -> Vec<Check> {
    let (protections, command) = match &facts.probe_box {
        ProbeBox::Failed(failure) => {
            let step = failure.step.map(|step| format!("stopped at {}: ", json_name(&step)));
            let detail = format!("{}{}", step.unwrap_or_default(), failure.text);
            let row = Check::new("trial_box", State::Missing, detail)
                .costs("nothing can run on this machine, because Ringwall runs every command in a box")
                .fix(remedy::fix_of(facts, failure));
            return vec![row, landlock_without_box(facts)];
        }
        ProbeBox::Made { protections, command } => (protections, command),
    };
    let first = match command {
        Some(command) => Check::new("trial_box", State::Ok, format!("started, and {command} ran in it")),
        None => Check::new("trial_box", State::Partial, "started, but no program of the host could be executed in it")
            .costs("boxes with the host's /usr have no programs; only boxes with an image are useful")
            .fix("import an image (ringwall image import NAME rootfs.tar) and run with --image NAME"),
    };
    let ordered =
        ProtectionName::ALL.iter().filter_map(|name| protections.iter().find(|protection| protection.name == *name));
    std::iter::once(first).chain(ordered.map(|protection| row(facts, protection))).collect()
}

fn row(facts: &Facts, protection: &Protection) -> Check {
    let name = protection.name.key();
    if protection.state == ProtectionState::Enforced {
        return Check::new(name, State::Ok, enforced(facts, protection.name));
    }
    let state = match protection.state {
        ProtectionState::NotAvailable => State::Missing,
        _ => State::Partial,
    };
    let why = protection.why.clone().unwrap_or_else(|| "not enforced".to_owned());
    Check::new(name, state, why)
        .costs(costs(protection.name, protection.state))
        .fix_if_known(fix(facts, protection.name))
}

fn enforced(facts: &Facts, name: ProtectionName) -> String {
    let what = match name {
        ProtectionName::UserNamespace => "the box has its own user ids, none of which is root on the host",
        ProtectionName::MountNamespace => "the box has its own file tree",
        ProtectionName::PidNamespace => "the box sees only its own processes",
        ProtectionName::NetworkNamespace => "the box has only its own loopback interface",
        ProtectionName::IpcNamespace => "the box has its own shared memory and message queues",
        ProtectionName::UtsNamespace => "the box has its own host name",
        ProtectionName::CgroupNamespace => "the box does not see the host's cgroup paths",
        ProtectionName::NoCapabilities => "processes have no capabilities",
        ProtectionName::NoNewPrivileges => "processes cannot gain privileges: setuid bits have no effect",
        ProtectionName::NoExtraGroups => "the box does not have the caller's supplementary groups",
        ProtectionName::Seccomp => "system calls that boxes do not need are refused",
        ProtectionName::Landlock => match facts.landlock {
            Landlock::Version(version) => {
                return format!("version {version}: restricts files in addition to the mounts");
            }
            _ => "restricts files in addition to the mounts",
        },
        ProtectionName::ResourceLimits => "descriptors, core dumps and locked memory of each process are limited",
        ProtectionName::MemoryLimit | ProtectionName::PidsLimit | ProtectionName::CpuLimit => {
            "enforced by the kernel for the box as a whole"
        }
        ProtectionName::IoLimit => "500 writes and 4000 reads per second on each disk for the box as a whole",
        ProtectionName::OpenFiles => "a box can hold at most a quarter of fs.file-max",
        ProtectionName::EpollWatches => "epoll watches of a box count for a user id that no other agent has",
        ProtectionName::InotifyInstances => "inotify instances of a box count for a user id that no other agent has",
        ProtectionName::PendingSignals => "queued signals of a box count for a user id that no other agent has",
        ProtectionName::PipePages => "pipe buffers of a box count for a user id that no other agent has",
        ProtectionName::PassedDescriptors => "descriptors passed in a box count for a user id that no other agent has",
        ProtectionName::UserProcesses => "processes of a box do not count for the user who runs Ringwall",
        ProtectionName::CommandsApart => "commands of one session box cannot access each other",
    };
    what.to_owned()
}

fn costs(name: ProtectionName, state: ProtectionState) -> &'static str {
    match (name, state) {
        (ProtectionName::UtsNamespace, _) => "a box sees the host's name",
        (ProtectionName::CgroupNamespace, _) => "a box can read the path of its cgroup on the host",
        (ProtectionName::NoExtraGroups, _) => "in mounted directories, a box has the access of these groups to files",
        (ProtectionName::Landlock, ProtectionState::Partial) => {
            "Landlock does not cover every access to files; the mounts of the box still do"
        }
        (ProtectionName::Landlock, _) => {
            "only the mounts of a box restrict files; commands of one session can access each other"
        }
        (ProtectionName::ResourceLimits, _) => {
            "one process can use up descriptors or locked memory, or start the host's core dump handler"
        }
        (ProtectionName::MemoryLimit, ProtectionState::Partial) => {
            "a box can exceed its limit for a moment before it is killed"
        }
        (ProtectionName::MemoryLimit, _) => "a box can use all memory of this machine",
        (ProtectionName::PidsLimit, ProtectionState::Partial) => "all boxes of one user share one limit of processes",
        (ProtectionName::PidsLimit, _) => "a box can use up the process ids of this machine",
        (ProtectionName::CpuLimit, _) => "a box can use all processors while it runs",
        (ProtectionName::IoLimit, _) => "a box can keep a disk busy and slow down others",
        (ProtectionName::OpenFiles, _) => {
            "a box can use up fs.file-max; until it ends, no process without root privileges can open a file"
        }
        (ProtectionName::EpollWatches, _) => {
            "a box can use up fs.epoll.max_user_watches: until it is killed, programs in other boxes cannot add epoll \
             watches and new connections to the server wait"
        }
        (ProtectionName::InotifyInstances, _) => {
            "four boxes can use up the default of 128 inotify instances; other boxes then cannot watch files"
        }
        (ProtectionName::PendingSignals, _) => "many boxes together can use up the limit of this user's queued signals",
        (ProtectionName::PipePages, _) => "a box can slow down the pipes of all boxes",
        (ProtectionName::PassedDescriptors, _) => {
            "until a box is killed, it can prevent programs in other boxes (such as Chromium) from passing descriptors"
        }
        (ProtectionName::UserProcesses, _) => "many boxes together can prevent each other from starting processes",
        _ => "the box is less isolated from the host",
    }
}

fn fix(facts: &Facts, name: ProtectionName) -> Option<String> {
    match name {
        ProtectionName::Landlock => landlock_fix(facts.landlock).map(str::to_owned),
        ProtectionName::NoExtraGroups => {
            Some("run as root, or from an account or a service without supplementary groups".to_owned())
        }
        ProtectionName::CgroupNamespace => Some("use a kernel with cgroup namespaces (CONFIG_CGROUPS)".to_owned()),
        ProtectionName::MemoryLimit | ProtectionName::PidsLimit | ProtectionName::CpuLimit => {
            cgroups::fix(facts).map(|_| "see cgroups".to_owned())
        }
        ProtectionName::IoLimit => Some(
            "use cgroup version 2 with the io controller enabled in the parent of the boxes' cgroups; blkio of \
             version 1 limits only a part"
                .to_owned(),
        ),
        ProtectionName::OpenFiles => Some(
            "as root: sysctl -w fs.file-max=9223372036854775807, systemd's default (permanently: in /etc/sysctl.d)"
                .to_owned(),
        ),
        ProtectionName::EpollWatches
        | ProtectionName::PipePages
        | ProtectionName::PassedDescriptors
        | ProtectionName::UserProcesses => {
            Some("run as root; then each agent of a user has its own user id on the host".to_owned())
        }
        ProtectionName::InotifyInstances => {
            Some("as root: sysctl -w fs.inotify.max_user_instances=8192 (permanently: in /etc/sysctl.d)".to_owned())
        }
        _ => None,
    }
}

/// The newest Landlock access rights that boxes use require Linux 6.12.
fn landlock_fix(landlock: Landlock) -> Option<&'static str> {
    match landlock {
        Landlock::Version(_) => Some("use Linux 6.12 or newer"),
        Landlock::NotBuilt => Some("use Linux 5.13 or newer, built with CONFIG_SECURITY_LANDLOCK"),
        Landlock::NotEnabled => Some("add landlock to the list lsm=… on the kernel's command line and reboot"),
        Landlock::Refused => None,
    }
}

fn landlock_without_box(facts: &Facts) -> Check {
    let missing = |why| {
        Check::new("landlock", State::Missing, why)
            .costs(costs(ProtectionName::Landlock, ProtectionState::NotAvailable))
            .fix_if_known(landlock_fix(facts.landlock).map(str::to_owned))
    };
    match facts.landlock {
        Landlock::Version(version) => {
            Check::new("landlock", State::Ok, format!("the kernel has version {version}; not tried in a box"))
        }
        Landlock::NotBuilt => missing("the kernel was built without it"),
        Landlock::NotEnabled => missing("it was not enabled at boot"),
        Landlock::Refused => missing("the kernel refuses the system call"),
    }
}

/// The step's name in JSON.
fn json_name(step: &ringwall_executor::Step) -> String {
    match serde_json::to_value(step) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{step:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::ProbeBoxFailure;

    fn find<'a>(rows: &'a [Check], name: &str) -> &'a Check {
        rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}"))
    }

    fn with(protection: Protection, landlock: Landlock) -> Facts {
        let mut facts = Facts { landlock, ..Facts::rootless() };
        if let ProbeBox::Made { protections, .. } = &mut facts.probe_box {
            protections.retain(|other| other.name != protection.name);
            protections.push(protection);
        }
        facts
    }

    #[test]
    fn enforced_protections_have_one_row_each_without_fix() {
        let rows = rows(&Facts::sample());
        assert_eq!(rows.len(), 1 + ProtectionName::ALL.len());
        assert!(rows.iter().all(|row| row.state == State::Ok && row.costs.is_none() && row.fix.is_none()));
        assert_eq!(find(&rows, "landlock").detail, "version 7: restricts files in addition to the mounts");
    }

    #[test]
    fn row_names_match_the_names_in_run_reports() {
        for protection in ProtectionName::ALL {
            assert_eq!(serde_json::to_value(protection).unwrap(), protection.key());
        }
    }

    #[test]
    fn partial_and_missing_protections_have_costs() {
        for protection in ProtectionName::ALL {
            for (given, state) in [
                (Protection::partial(protection, "half"), State::Partial),
                (Protection::not_available(protection, "none"), State::Missing),
            ] {
                let why = given.why.clone();
                let rows = rows(&with(given, Landlock::NotEnabled));
                let row = find(&rows, protection.key());
                assert_eq!((row.state, Some(row.detail.clone())), (state, why));
                assert!(row.costs.is_some(), "{protection:?}");
                assert_eq!(rows.len(), 1 + ProtectionName::ALL.len());
            }
        }
    }

    #[test]
    fn landlock_fix_depends_on_the_reason() {
        let table = [
            (Protection::not_available(ProtectionName::Landlock, "no"), Landlock::NotEnabled, Some("lsm=")),
            (Protection::not_available(ProtectionName::Landlock, "no"), Landlock::NotBuilt, Some("5.13")),
            (Protection::partial(ProtectionName::Landlock, "no"), Landlock::Version(2), Some("6.12")),
            (Protection::not_available(ProtectionName::Landlock, "no"), Landlock::Refused, None),
        ];
        for (protection, landlock, expected) in table {
            let rows = rows(&with(protection, landlock));
            let fix = find(&rows, "landlock").fix.clone();
            assert_eq!(fix.is_some(), expected.is_some(), "{landlock:?}");
            assert!(fix.unwrap_or_default().contains(expected.unwrap_or_default()), "{landlock:?}");
        }
    }

    #[test]
    fn failed_probe_box_names_step_and_has_no_protection_rows() {
        let failure = ProbeBoxFailure {
            step: Some(ringwall_executor::Step::BuildRoot),
            errno: 1,
            text: "could not build the root file system at /proc: Operation not permitted".into(),
            hint: Some("give the container a whole /proc".into()),
        };
        let rows = rows(&Facts { probe_box: ProbeBox::Failed(failure), ..Facts::sample() });
        assert_eq!(rows.iter().map(|row| row.name).collect::<Vec<_>>(), ["trial_box", "landlock"]);
        assert_eq!(rows[0].state, State::Missing);
        assert!(rows[0].detail.starts_with("stopped at build_root: could not build the root file system at /proc"));
        assert_eq!(
            rows[0].fix.as_deref(),
            Some("give the container a whole /proc; with Docker: --security-opt systempaths=unconfined")
        );
        assert_eq!(rows[1].detail, "the kernel has version 7; not tried in a box");
    }

    #[test]
    fn host_without_programs_gets_images_as_fix() {
        let mut facts = Facts::sample();
        if let ProbeBox::Made { command, .. } = &mut facts.probe_box {
            *command = None;
        }
        let rows = rows(&facts);
        assert_eq!(rows[0].state, State::Partial);
        assert!(rows[0].fix.as_deref().is_some_and(|fix| fix.contains("image import")));
    }
}
