//! The row about cgroups: version, parent directories of the boxes' cgroups, and how to get missing
//! controllers.

use ringwall_executor::Privilege;

use super::facts::{CgroupParents, Facts, Hierarchy};
use super::report::{Check, State};

pub(crate) fn row(facts: &Facts) -> Check {
    let version = match facts.cgroups.hierarchy {
        Hierarchy::NotMounted => "not mounted",
        Hierarchy::Version1 => "version 1",
        Hierarchy::Hybrid => "version 1 with an additional version 2 tree (hybrid)",
        Hierarchy::Version2 => "version 2",
    };
    let (state, found) = match &facts.cgroups.parents {
        Ok(parents) if missing(parents).is_empty() => {
            return Check::new(
                "cgroups",
                State::Ok,
                format!("{version}; boxes' cgroups are created in {}", list(parents)),
            );
        }
        Ok(parents) => {
            let missing = missing(parents).join(" and ");
            (State::Partial, format!("without {missing}; boxes' cgroups are created in {}", list(parents)))
        }
        Err(why) => (State::Missing, format!("no cgroups for boxes: {why}")),
    };
    Check::new("cgroups", state, format!("{version}; {found}"))
        .costs("the kernel does not enforce these limits for a box as a whole")
        .fix_if_known(fix(facts))
}

/// How to get cgroups with all controllers; `None` if all are available.
pub(crate) fn fix(facts: &Facts) -> Option<String> {
    let parents = match &facts.cgroups.parents {
        Ok(parents) if missing(parents).is_empty() => return None,
        Ok(parents) => Some(parents),
        Err(_) => None,
    };
    let fix = match (facts.cgroups.hierarchy, facts.privilege, parents) {
        (Hierarchy::NotMounted, ..) => "as root: mount -t cgroup2 none /sys/fs/cgroup".to_owned(),
        (Hierarchy::Version2, Privilege::Rootless, None) => {
            "start Ringwall in its own cgroup: `systemd-run --user --scope -p Delegate=yes -- ringwall ...`; in \
             a service file: Delegate=yes and DelegateSubgroup=ringwall"
                .to_owned()
        }
        (Hierarchy::Version2, Privilege::Rootless, Some(parents)) => format!(
            "as root: `systemctl edit user@.service`, add [Service] Delegate=cpu memory pids, and log in again \
             (missing: {})",
            missing(parents).join(", ")
        ),
        (Hierarchy::Version2, Privilege::Root, None) => {
            "make /sys/fs/cgroup writable; give a container its own cgroup namespace, or mount the host's tree \
             writable"
                .to_owned()
        }
        (Hierarchy::Version2, Privilege::Root, Some(parents)) => format!(
            "enable the controllers in each directory from /sys/fs/cgroup down: write {} into cgroup.subtree_control",
            missing(parents).iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(" ")
        ),
        (Hierarchy::Version1 | Hierarchy::Hybrid, Privilege::Rootless, _) => {
            "version 1 cannot be delegated to ordinary users: run as root, or reboot with \
             systemd.unified_cgroup_hierarchy=1 on the kernel's command line"
                .to_owned()
        }
        (Hierarchy::Version1 | Hierarchy::Hybrid, Privilege::Root, _) => {
            "mount the memory, pids and cpu hierarchies writable below /sys/fs/cgroup".to_owned()
        }
    };
    Some(fix)
}

fn missing(parents: &CgroupParents) -> Vec<&'static str> {
    let all = [("memory", &parents.memory), ("pids", &parents.pids), ("cpu", &parents.cpu)];
    all.into_iter().filter(|(_, parent)| parent.is_none()).map(|(name, _)| name).collect()
}

/// The directories, without adjacent duplicates.
fn list(parents: &CgroupParents) -> String {
    let mut found: Vec<&str> =
        [&parents.memory, &parents.pids, &parents.cpu].into_iter().flatten().map(|parent| &**parent).collect();
    found.dedup();
    found.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::Cgroups;

    fn facts(privilege: Privilege, hierarchy: Hierarchy, parents: Result<CgroupParents, String>) -> Facts {
        Facts { privilege, cgroups: Cgroups { hierarchy, parents }, ..Facts::sample() }
    }

    fn only_memory() -> Result<CgroupParents, String> {
        Ok(CgroupParents { memory: Some("/sys/fs/cgroup/m".into()), ..CgroupParents::default() })
    }

    #[test]
    fn fix_depends_on_version_and_privileges() {
        use Hierarchy::{Hybrid, NotMounted, Version1, Version2};
        use Privilege::{Root, Rootless};
        let none = || Err("nowhere".to_owned());
        let table = [
            (Rootless, Version2, none(), State::Missing, "systemd-run --user --scope -p Delegate=yes"),
            (Rootless, Version2, none(), State::Missing, "DelegateSubgroup="),
            (Rootless, Version2, only_memory(), State::Partial, "Delegate=cpu memory pids"),
            (Root, Version2, none(), State::Missing, "writable"),
            (Root, Version2, only_memory(), State::Partial, "+pids +cpu into cgroup.subtree_control"),
            (Rootless, Version1, none(), State::Missing, "systemd.unified_cgroup_hierarchy=1"),
            (Rootless, Hybrid, none(), State::Missing, "run as root"),
            (Root, Hybrid, only_memory(), State::Partial, "writable"),
            (Root, NotMounted, none(), State::Missing, "mount -t cgroup2"),
        ];
        for (privilege, hierarchy, parents, state, expected) in table {
            let row = row(&facts(privilege, hierarchy, parents));
            assert_eq!(row.state, state, "{hierarchy:?}");
            assert!(row.costs.is_some());
            assert!(row.fix.as_deref().is_some_and(|fix| fix.contains(expected)), "{row:?}");
        }
    }

    #[test]
    fn shared_directory_is_named_once() {
        let same = row(&Facts::sample());
        assert_eq!(same.detail, "version 2; boxes' cgroups are created in /sys/fs/cgroup/boxes");
        assert_eq!((same.state, same.fix), (State::Ok, None));
        let apart = CgroupParents { memory: Some("/m".into()), pids: Some("/p".into()), cpu: Some("/c".into()) };
        let apart = row(&facts(Privilege::Root, Hierarchy::Hybrid, Ok(apart)));
        assert!(apart.detail.ends_with("are created in /m, /p, /c"), "{}", apart.detail);
    }
}
