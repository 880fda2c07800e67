//! The rows about the box itself: what the trial box reported, in words.
//!
//! The box says what holds; this file says what it is good for, what its absence costs and how to get it. What the
//! kernel lacks and what the owner of the machine can switch on are told apart.

use ringwall_executor::{Protection, ProtectionName, ProtectionState};

use super::cgroups;
use super::check::{Check, State};
use super::facts::{Facts, Landlock, Trial};
use super::remedy;

/// The box, then each of its protections. Of a box that was not made nothing is claimed but what the kernel says
/// without one.
pub(crate) fn rows(facts: &Facts) -> Vec<Check> {
    let (protections, command) = match &facts.trial {
        Trial::Failed(failure) => {
            let step = failure.step.map(|step| format!("stopped at {}: ", key_of(&step)));
            let detail = format!("{}{}", step.unwrap_or_default(), failure.text);
            let row = Check::new("trial_box", State::Missing, detail)
                .costs("nothing can be run here: there is no execution without a box")
                .fix(remedy::of(facts, failure));
            return vec![row, landlock_without_box(facts)];
        }
        Trial::Made { protections, command } => (protections, command),
    };
    let first = match command {
        Some(command) => Check::new("trial_box", State::Ok, format!("made, and {command} ran in it")),
        None => Check::new("trial_box", State::Partial, "made, but none of the host's programs could be started in it")
            .costs("boxes on the host's /usr are empty; only boxes on an image are useful")
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
    let check = Check::new(name, state, why).costs(costs(protection.name, protection.state));
    match fix(facts, protection.name) {
        Some(fix) => check.fix(fix),
        None => check,
    }
}

fn enforced(facts: &Facts, name: ProtectionName) -> String {
    let what = match name {
        ProtectionName::UserNamespace => "user ids of the box mean nothing outside, and none is root",
        ProtectionName::MountNamespace => "the box has a file tree of its own",
        ProtectionName::PidNamespace => "the box sees its own processes only",
        ProtectionName::NetworkNamespace => "the box has a loopback interface of its own and no other",
        ProtectionName::IpcNamespace => "shared memory and message queues are the box's own",
        ProtectionName::UtsNamespace => "the host name is the box's own",
        ProtectionName::CgroupNamespace => "the host's cgroup paths are not seen",
        ProtectionName::NoCapabilities => "no privilege is held",
        ProtectionName::NoNewPrivileges => "none can be gained: setuid programs give nothing",
        ProtectionName::NoExtraGroups => "the caller's other groups stay outside",
        ProtectionName::Seccomp => "system calls that a box has no use for are refused",
        ProtectionName::Landlock => match facts.landlock {
            Landlock::Version(version) => return format!("version {version}: a second wall around files"),
            _ => "a second wall around files",
        },
        ProtectionName::ResourceLimits => "descriptors, core dumps and locked memory of each process are bounded",
        ProtectionName::MemoryLimit => "kept by the kernel for the box as a whole",
        ProtectionName::PidsLimit => "kept by the kernel for the box as a whole",
        ProtectionName::CpuLimit => "kept by the kernel for the box as a whole",
        ProtectionName::IoLimit => "500 writes and 4000 reads a second on each disk for the box as a whole",
        ProtectionName::OpenFiles => "a box can hold at most a quarter of fs.file-max",
        ProtectionName::EpollWatches => "epoll watches of a box count for a user id that no other agent has",
        ProtectionName::InotifyInstances => "inotify instances of a box count for a user id that no other agent has",
        ProtectionName::PendingSignals => "queued signals of a box count for a user id that no other agent has",
        ProtectionName::PipePages => "pipe buffers of a box count for a user id that no other agent has",
        ProtectionName::PassedDescriptors => "descriptors passed in a box count for a user id that no other agent has",
        ProtectionName::UserProcesses => "processes of a box take none from the user who runs Ringwall",
        ProtectionName::CommandsApart => "commands of one box cannot look into each other",
    };
    what.to_owned()
}

fn costs(name: ProtectionName, state: ProtectionState) -> &'static str {
    match (name, state) {
        (ProtectionName::UtsNamespace, _) => "a box sees the host's name",
        (ProtectionName::CgroupNamespace, _) => "a box can read the path of its cgroup on the host",
        (ProtectionName::NoExtraGroups, _) => {
            "in directories that a box is shown, it may use files that are open to these groups"
        }
        (ProtectionName::Landlock, ProtectionState::Partial) => {
            "the second wall around files has gaps; the first holds"
        }
        (ProtectionName::Landlock, _) => {
            "one wall around files instead of two, the mounts alone; commands of one session can look into each other"
        }
        (ProtectionName::ResourceLimits, _) => {
            "one process can use up descriptors or locked memory, or start the host's core handler"
        }
        (ProtectionName::MemoryLimit, ProtectionState::Partial) => {
            "a box can be over its limit for a moment before it is ended"
        }
        (ProtectionName::MemoryLimit, _) => "a box can use all memory of this machine",
        (ProtectionName::PidsLimit, ProtectionState::Partial) => "boxes of one user share one count of processes",
        (ProtectionName::PidsLimit, _) => "a box can use up this machine's processes",
        (ProtectionName::CpuLimit, _) => "a box can use every processor as long as it runs",
        (ProtectionName::IoLimit, _) => "a box can keep a disk busy and slow others down",
        (ProtectionName::OpenFiles, _) => {
            "a box can use up fs.file-max; processes that are not root's then open no file until the box ends"
        }
        (ProtectionName::EpollWatches, _) => {
            "a box can fill fs.epoll.max_user_watches: until it is ended, other boxes fail to watch files and sockets, and \
             the server's new connections wait"
        }
        (ProtectionName::InotifyInstances, _) => {
            "four boxes can use up the default of 128 inotify instances; other boxes then cannot watch files"
        }
        (ProtectionName::PendingSignals, _) => "many boxes together can use up this user's queued signals",
        (ProtectionName::PipePages, _) => "a box can make the pipes of all boxes slower",
        (ProtectionName::PassedDescriptors, _) => {
            "a box can keep programs of other boxes from passing descriptors, as Chromium does, until it is ended"
        }
        (ProtectionName::UserProcesses, _) => "many boxes together can keep each other from starting processes",
        _ => "a box is open where it should be closed",
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
            "use cgroup version 2 with the io controller for the group in which boxes' groups are made; blkio of version 1 \
             limits a part"
                .to_owned(),
        ),
        ProtectionName::OpenFiles => Some(
            "as root: sysctl -w fs.file-max=9223372036854775807, systemd's default (and in /etc/sysctl.d, to stay)"
                .to_owned(),
        ),
        ProtectionName::EpollWatches
        | ProtectionName::PipePages
        | ProtectionName::PassedDescriptors
        | ProtectionName::UserProcesses => Some("run as root, where each agent of a user has a user id of its own".to_owned()),
        ProtectionName::InotifyInstances => {
            Some("as root: sysctl -w fs.inotify.max_user_instances=8192 (and in /etc/sysctl.d, to stay)".to_owned())
        }
        _ => None,
    }
}

/// The newest rights that boxes use came with Linux 6.12.
fn landlock_fix(landlock: Landlock) -> Option<&'static str> {
    match landlock {
        Landlock::Version(_) => Some("use Linux 6.12 or newer"),
        Landlock::NotBuilt => Some("use Linux 5.13 or newer, built with CONFIG_SECURITY_LANDLOCK"),
        Landlock::NotEnabled => Some("add landlock to the list lsm=… on the kernel's command line, and restart"),
        Landlock::Refused => None,
    }
}

fn landlock_without_box(facts: &Facts) -> Check {
    let lacking = |why| {
        let check = Check::new("landlock", State::Missing, why);
        let check = check.costs(costs(ProtectionName::Landlock, ProtectionState::NotAvailable));
        match landlock_fix(facts.landlock) {
            Some(fix) => check.fix(fix),
            None => check,
        }
    };
    match facts.landlock {
        Landlock::Version(version) => {
            Check::new("landlock", State::Ok, format!("the kernel has version {version}; not tried in a box"))
        }
        Landlock::NotBuilt => lacking("the kernel was built without it"),
        Landlock::NotEnabled => lacking("it is disabled at boot"),
        Landlock::Refused => lacking("the kernel refuses it"),
    }
}

/// The step's name as it is written in JSON everywhere.
fn key_of(step: &ringwall_executor::Step) -> String {
    match serde_json::to_value(step) {
        Ok(serde_json::Value::String(name)) => name,
        _ => format!("{step:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::TrialFailure;

    fn find<'a>(rows: &'a [Check], name: &str) -> &'a Check {
        rows.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}"))
    }

    fn with(protection: Protection, landlock: Landlock) -> Facts {
        let mut facts = Facts { landlock, ..Facts::rootless() };
        if let Trial::Made { protections, .. } = &mut facts.trial {
            protections.retain(|other| other.name != protection.name);
            protections.push(protection);
        }
        facts
    }

    #[test]
    fn a_good_box_has_a_row_for_each_protection() {
        let rows = rows(&Facts::sample());
        assert_eq!(rows.len(), 1 + ProtectionName::ALL.len());
        assert!(rows.iter().all(|row| row.state == State::Ok && row.costs.is_none() && row.fix.is_none()));
        assert_eq!(find(&rows, "landlock").detail, "version 7: a second wall around files");
    }

    #[test]
    fn rows_are_called_what_the_reports_of_boxes_call_them() {
        for protection in ProtectionName::ALL {
            assert_eq!(serde_json::to_value(protection).unwrap(), protection.key());
        }
    }

    #[test]
    fn what_lacks_says_what_it_costs() {
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
    fn landlock_is_had_in_the_way_that_it_lacks() {
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
    fn a_failed_trial_names_step_and_subject_and_claims_nothing() {
        let failure = TrialFailure {
            step: Some(ringwall_executor::Step::BuildRoot),
            errno: 1,
            text: "could not build the root file system at /proc: Operation not permitted".into(),
            hint: Some("give the container a whole /proc".into()),
        };
        let rows = rows(&Facts { trial: Trial::Failed(failure), ..Facts::sample() });
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
    fn a_host_without_programs_is_told_about_images() {
        let mut facts = Facts::sample();
        if let Trial::Made { command, .. } = &mut facts.trial {
            *command = None;
        }
        let rows = rows(&facts);
        assert_eq!(rows[0].state, State::Partial);
        assert!(rows[0].fix.as_deref().is_some_and(|fix| fix.contains("image import")));
    }
}
