//! The rows about the machine: kernel, settings and optional programs.
//!
//! They explain a failure and show which optional features work. Only the probe box decides if boxes can
//! be made.

use std::path::Path;

use ringwall_executor::Privilege;

use super::backends::TIMEOUT;
use super::cgroups;
use super::facts::{Aio, Daemon, Docker, Facts, Overlay, ProbeBox};
use super::remedy::{self, MIN_KERNEL};
use super::report::{Check, State};

/// The first kernel that mounts overlayfs in user namespaces.
const MIN_KERNEL_FOR_OVERLAY: (u32, u32) = (5, 11);
const START_DOCKER: &str = "start the Docker daemon";

pub(crate) fn rows(facts: &Facts) -> Vec<Check> {
    vec![
        kernel(facts),
        user_namespaces(facts),
        cgroups::row(facts),
        overlay(facts),
        id_mapped_mounts(facts),
        docker(&facts.docker),
        aio(&facts.aio),
        program("gvisor", facts.runsc.as_deref(), "the gVisor backend"),
        program("chromium", facts.chromium.as_deref(), "the browser"),
    ]
}

fn kernel(facts: &Facts) -> Check {
    let release = &facts.kernel.release;
    let (major, minor) = MIN_KERNEL;
    if facts.kernel.is_at_least(major, minor) {
        return Check::new("kernel", State::Ok, format!("Linux {release} ({major}.{minor} or newer is needed)"));
    }
    let (state, costs) = match facts.probe_box {
        ProbeBox::Made { .. } => (State::Partial, "boxes start, but they are not tested on kernels this old"),
        ProbeBox::Failed(_) => (State::Missing, "the kernel lacks system calls that boxes need"),
    };
    Check::new("kernel", state, format!("Linux {release} is too old"))
        .costs(costs)
        .fix(format!("use Linux {major}.{minor} or newer"))
}

/// Permission of ordinary users to make boxes. A setting that forbids it is a failure only if the
/// probe box failed, because AppArmor may allow this program by a profile.
fn user_namespaces(facts: &Facts) -> Check {
    let name = "unprivileged_user_namespaces";
    let settings = &facts.namespaces;
    let restricted = if let Some(first) = settings.closed.first() {
        Some(format!("{first} is 0"))
    } else if settings.unprivileged_clone == Some(false) {
        Some("kernel.unprivileged_userns_clone is 0".to_owned())
    } else if settings.apparmor_restricts == Some(true) {
        Some("AppArmor restricts them (kernel.apparmor_restrict_unprivileged_userns is 1)".to_owned())
    } else {
        None
    };
    let as_user = Facts { privilege: Privilege::Rootless, ..facts.clone() };
    match (facts.privilege, &facts.probe_box, restricted) {
        (Privilege::Rootless, ProbeBox::Made { .. }, None) => {
            Check::new(name, State::Ok, "allowed; the probe box has one")
        }
        (Privilege::Rootless, ProbeBox::Made { .. }, Some(why)) => {
            Check::new(name, State::Ok, format!("{why}, but not for this program: the probe box has one"))
        }
        (Privilege::Root, _, None) => {
            Check::new(name, State::Ok, "no setting forbids them; root does not need the permission")
        }
        (Privilege::Root, probe_box, Some(why)) => {
            // Of these settings, only the limits on the number of namespaces also apply to root.
            let state = match probe_box {
                ProbeBox::Failed(_) if !settings.closed.is_empty() => State::Missing,
                _ => State::Optional,
            };
            Check::new(name, state, why)
                .costs("ordinary users cannot make boxes here")
                .fix_if_known(remedy::namespaces(&as_user))
        }
        (Privilege::Rootless, ProbeBox::Failed(failure), restricted) => {
            let is_cause = restricted.is_some() || remedy::refuses_namespaces(failure);
            if !is_cause {
                return Check::new(name, State::Ok, "no setting forbids them");
            }
            let why = restricted.unwrap_or_else(|| "refused, but not by a known setting".to_owned());
            Check::new(name, State::Missing, why)
                .costs("no box can be made without root")
                .fix(remedy::fix_of(facts, failure))
        }
    }
}

fn overlay(facts: &Facts) -> Check {
    let name = "overlayfs";
    let costs = "boxes with an image (--image) cannot be made";
    let (major, minor) = MIN_KERNEL_FOR_OVERLAY;
    if !facts.kernel.is_at_least(major, minor) {
        return Check::new(name, State::Missing, "this kernel cannot mount it in user namespaces")
            .costs(costs)
            .fix(format!("use Linux {major}.{minor} or newer"));
    }
    match facts.overlay {
        Overlay::Listed => {
            let detail =
                format!("in /proc/filesystems; Linux {major}.{minor} or newer mounts it in user namespaces; not tried");
            Check::new(name, State::Ok, detail)
        }
        Overlay::Module => Check::new(name, State::Partial, "a kernel module that is not loaded; not tried")
            .costs("boxes with an image (--image) fail if the kernel does not load it automatically")
            .fix("as root: modprobe overlay (permanently: a line `overlay` in a file of /etc/modules-load.d)"),
        Overlay::Absent => {
            Check::new(name, State::Missing, "neither in /proc/filesystems nor among the kernel's modules")
                .costs(costs)
                .fix("use a kernel with overlayfs (CONFIG_OVERLAY_FS)")
        }
    }
}

fn id_mapped_mounts(facts: &Facts) -> Check {
    let name = "id_mapped_mounts";
    let (major, minor) = MIN_KERNEL;
    match facts.privilege {
        Privilege::Rootless => {
            Check::new(name, State::Optional, "used only as root; without root a server keeps no native warm boxes")
        }
        Privilege::Root if facts.kernel.is_at_least(major, minor) => Check::new(
            name,
            State::Ok,
            "judged by the kernel version: ext4 and xfs since 5.12, btrfs 5.15, tmpfs 6.3; not tried",
        ),
        Privilege::Root => Check::new(name, State::Missing, "this kernel does not have them")
            .costs("a box cannot mount another user's directory as its own, and a server keeps no native warm boxes")
            .fix(format!("use Linux {major}.{minor} or newer")),
    }
}

fn docker(docker: &Docker) -> Check {
    let name = "docker";
    let client = match &docker.client {
        Some(path) => format!("client {}", path.display()),
        None => "no client".to_owned(),
    };
    let absent = |found: String| Check::new(name, State::Optional, format!("optional: {found}; {client}"));
    match &docker.daemon {
        Daemon::Answers { socket, api } => {
            let api = api.as_ref().map(|api| format!(" (API {api})")).unwrap_or_default();
            Check::new(name, State::Ok, format!("a daemon answers at {}{api}; {client}", socket.display()))
        }
        Daemon::Absent if docker.client.is_none() => {
            Check::new(name, State::Optional, "optional: not found; only the Docker backend needs it")
        }
        Daemon::Absent => absent("no daemon socket".to_owned()).fix(START_DOCKER),
        Daemon::NotListening { socket } => {
            absent(format!("no daemon listens at {}", socket.display())).fix(START_DOCKER)
        }
        Daemon::Forbidden { socket } => absent(format!("this user may not use {}", socket.display()))
            .fix("add this user to the group docker, which gives the privileges of root"),
        Daemon::NoAnswer { socket } => {
            absent(format!("{} did not answer within {} s", socket.display(), TIMEOUT.as_secs()))
                .fix("check the Docker daemon and restart it")
        }
        Daemon::NotDocker { socket, what } => absent(format!("{} is not a Docker daemon: {what}", socket.display()))
            .fix("set DOCKER_HOST to the daemon's socket"),
        Daemon::NotLocal { scheme } => {
            absent(format!("DOCKER_HOST is a {scheme} address; the doctor checks only local sockets"))
        }
    }
}

fn aio(aio: &Aio) -> Check {
    let name = "aio_service";
    match aio {
        Aio::NotConfigured => Check::new(
            name,
            State::Optional,
            "optional: not configured; backend `aio` uses Ringwall's own session boxes",
        ),
        Aio::Answers { version } => Check::new(name, State::Ok, format!("it answers, version {version}")),
        Aio::Unusable { why, fix } => Check::new(name, State::Missing, why.clone())
            .costs("backend `aio` fails in the workspace that the service is assigned to")
            .fix(fix.clone()),
    }
}

fn program(name: &'static str, found: Option<&Path>, user: &str) -> Check {
    match found {
        Some(path) => Check::new(name, State::Ok, path.display().to_string()),
        None => Check::new(name, State::Optional, format!("optional: not found; only {user} needs it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{Kernel, Namespaces};
    use ringwall_executor::Step;

    const EPERM: i32 = 1;

    fn find(facts: &Facts, name: &str) -> Check {
        rows(facts).into_iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}"))
    }

    #[test]
    fn partial_and_missing_rows_have_costs_and_fix_and_no_optional_row_is_missing() {
        let old = Facts { kernel: Kernel::parse("4.19.0"), overlay: Overlay::Absent, ..Facts::sample() };
        for facts in [Facts::sample(), Facts::rootless(), old.clone(), old.failed(Step::BuildRoot, 38)] {
            for row in rows(&facts) {
                let is_weak = matches!(row.state, State::Partial | State::Missing);
                assert!(!is_weak || (row.costs.is_some() && row.fix.is_some()), "{row:?}");
                assert!(!is_weak || !["docker", "gvisor", "chromium"].contains(&row.name), "{row:?}");
            }
        }
    }

    #[test]
    fn namespace_restriction_is_missing_only_if_the_probe_box_failed() {
        let apparmor = || Namespaces { apparmor_restricts: Some(true), ..Namespaces::default() };
        let clone = || Namespaces { unprivileged_clone: Some(false), ..Namespaces::default() };
        let closed = || Namespaces { closed: vec!["user.max_user_namespaces"], ..Namespaces::default() };
        let free =
            || Namespaces { apparmor_restricts: Some(false), unprivileged_clone: Some(true), ..Default::default() };
        let with = |facts: Facts, namespaces| Facts { namespaces, ..facts };
        let failed = |facts: Facts| facts.failed(Step::MakeNamespaces, EPERM);
        let table = [
            (with(Facts::rootless(), free()), State::Ok, "allowed", None),
            (with(Facts::rootless(), apparmor()), State::Ok, "not for this program", None),
            (failed(with(Facts::rootless(), apparmor())), State::Missing, "AppArmor", Some("apparmor_parser -r")),
            (failed(with(Facts::rootless(), clone())), State::Missing, "userns_clone is 0", Some("userns_clone=1")),
            (failed(with(Facts::rootless(), closed())), State::Missing, "namespaces is 0", Some("sysctl -w user.max")),
            (failed(with(Facts::rootless(), free())), State::Missing, "not by a known setting", Some("a chroot")),
            (Facts::rootless().failed(Step::RestrictFiles, 0), State::Ok, "no setting forbids", None),
            (with(Facts::sample(), free()), State::Ok, "root does not need", None),
            (with(Facts::sample(), apparmor()), State::Optional, "AppArmor", Some("apparmor_parser -r")),
            (failed(with(Facts::sample(), apparmor())), State::Optional, "AppArmor", Some("apparmor_parser -r")),
            (failed(with(Facts::sample(), closed())), State::Missing, "namespaces is 0", Some("sysctl -w user.max")),
        ];
        for (facts, state, detail, fix) in table {
            let row = find(&facts, "unprivileged_user_namespaces");
            assert_eq!(row.state, state, "{row:?}");
            assert!(row.detail.contains(detail), "{row:?}");
            assert_eq!(row.fix.is_some(), fix.is_some(), "{row:?}");
            assert!(row.fix.as_deref().unwrap_or_default().contains(fix.unwrap_or_default()), "{row:?}");
        }
    }

    #[test]
    fn old_kernel_is_partial_if_the_probe_box_started() {
        let old = Facts { kernel: Kernel::parse("5.10.0-28-amd64"), ..Facts::sample() };
        assert_eq!(find(&old, "kernel").state, State::Partial);
        assert_eq!(find(&old, "overlayfs").state, State::Missing);
        assert_eq!(find(&old, "id_mapped_mounts").state, State::Missing);
        let failed = old.failed(Step::BuildRoot, 38);
        assert_eq!(find(&failed, "kernel").state, State::Missing);
        assert_eq!(find(&Facts::sample(), "kernel").state, State::Ok);
    }

    #[test]
    fn overlayfs_detail_names_the_source() {
        let table =
            [(Overlay::Listed, State::Ok), (Overlay::Module, State::Partial), (Overlay::Absent, State::Missing)];
        for (overlay, state) in table {
            let row = find(&Facts { overlay, ..Facts::sample() }, "overlayfs");
            assert_eq!(row.state, state);
            assert!(row.detail.contains("/proc/filesystems") || row.detail.contains("module"), "{row:?}");
        }
    }

    #[test]
    fn docker_is_ok_only_if_the_daemon_answers() {
        let socket = || std::path::PathBuf::from("/var/run/docker.sock");
        let table = [
            (Daemon::Absent, State::Optional, "no daemon socket; client /usr/bin/docker"),
            (Daemon::Answers { socket: socket(), api: Some("1.43".into()) }, State::Ok, "docker.sock (API 1.43)"),
            (Daemon::NotListening { socket: socket() }, State::Optional, "no daemon listens at /var/run/docker.sock"),
            (Daemon::Forbidden { socket: socket() }, State::Optional, "may not use /var/run/docker.sock"),
            (Daemon::NoAnswer { socket: socket() }, State::Optional, "did not answer within 2 s"),
            (Daemon::NotDocker { socket: socket(), what: "it hung up".into() }, State::Optional, "it hung up"),
            (Daemon::NotLocal { scheme: "tcp".into() }, State::Optional, "a tcp address"),
        ];
        for (daemon, state, detail) in table {
            let docker = Docker { client: Some("/usr/bin/docker".into()), daemon };
            let row = find(&Facts { docker, ..Facts::sample() }, "docker");
            assert_eq!(row.state, state, "{row:?}");
            assert!(row.detail.contains(detail), "{row:?}");
        }
        assert!(find(&Facts::sample(), "docker").detail.starts_with("optional: not found"));
    }

    #[test]
    fn found_programs_are_ok_and_missing_ones_optional() {
        let facts = Facts { runsc: Some("/usr/bin/runsc".into()), ..Facts::sample() };
        assert_eq!(find(&facts, "gvisor").detail, "/usr/bin/runsc");
        assert_eq!(find(&facts, "gvisor").state, State::Ok);
        assert_eq!(find(&facts, "aio_service").state, State::Optional);
        let unusable = Aio::Unusable { why: "it is silent".to_owned(), fix: "look at it".to_owned() };
        let unusable = find(&Facts { aio: unusable, ..facts.clone() }, "aio_service");
        assert_eq!((unusable.state, unusable.fix.as_deref()), (State::Missing, Some("look at it")));
        let chromium = find(&facts, "chromium");
        assert_eq!(
            (chromium.state, &*chromium.detail),
            (State::Optional, "optional: not found; only the browser needs it")
        );
    }
}
