//! Derives the fix from a failed probe box.
//!
//! The kernel reports EPERM for many different causes, so the cause is found by the settings in
//! [`Facts`]. Specific causes are tested before general ones.

use std::path::Path;

use ringwall_executor::{Privilege, Step};

use super::facts::{Facts, ProbeBoxFailure};

const EPERM: i32 = 1;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const ENOSPC: i32 = 28;
const ENOSYS: i32 = 38;

/// The oldest kernel that has every system call that a box needs.
pub(crate) const MIN_KERNEL: (u32, u32) = (5, 12);

pub(crate) fn fix_of(facts: &Facts, failure: &ProbeBoxFailure) -> String {
    let (major, minor) = MIN_KERNEL;
    if !facts.kernel.is_at_least(major, minor) {
        return format!("use Linux {major}.{minor} or newer; this is {}", facts.kernel.release);
    }
    // Before the check for a seccomp filter: a container may allow namespaces and still mask parts of /proc.
    if let (Some(Step::BuildRoot), EPERM, Some(hint)) = (failure.step, failure.errno, &failure.hint) {
        return format!("{hint}; with Docker: --security-opt systempaths=unconfined");
    }
    if refuses_namespaces(failure)
        && let Some(fix) = namespaces(facts)
    {
        return fix;
    }
    match (failure.step, failure.errno) {
        (Some(Step::MakeNamespaces), ENOSPC) => {
            "raise the user.max_*_namespaces settings, also on the host if this is a container".to_owned()
        }
        (Some(Step::MakeNamespaces), EAGAIN) => {
            "the limit on this user's processes is reached: end some, or raise the limit (ulimit -u)".to_owned()
        }
        (Some(Step::MakeNamespaces), ENOSYS) => "use a kernel with user namespaces (CONFIG_USER_NS)".to_owned(),
        // Not the executor's hint, which refers to this command.
        (Some(Step::MakeNamespaces | Step::MapIdentity), EPERM | EACCES) => {
            "user namespaces are forbidden, but not by a setting that the doctor knows: possibly by a chroot, a \
             container or a security module; start Ringwall outside of it"
                .to_owned()
        }
        (Some(Step::MakeCgroups), _) => super::cgroups::fix(facts)
            .unwrap_or_else(|| "start Ringwall in a cgroup in which it may create others".to_owned()),
        _ => failure.hint.clone().unwrap_or_else(|| "report it with the output of `ringwall doctor --json`".to_owned()),
    }
}

/// `true` if the kernel refused to create the namespaces, or gave no privileges in them.
pub(crate) fn refuses_namespaces(failure: &ProbeBoxFailure) -> bool {
    let is_refused = matches!(failure.errno, EPERM | EACCES) && failure.step.is_some_and(needs_namespaces);
    is_refused || (failure.step == Some(Step::MakeNamespaces) && matches!(failure.errno, ENOSPC | ENOSYS))
}

/// The steps that need the privileges of a new user namespace. Some kernels refuse the namespace, others
/// create one without privileges, in which a later step fails.
fn needs_namespaces(step: Step) -> bool {
    step == Step::OpenSources || (Step::MakeNamespaces..=Step::SetHostname).contains(&step)
}

/// The command that changes the setting that forbids namespaces to this process, if there is one.
pub(crate) fn namespaces(facts: &Facts) -> Option<String> {
    let settings = &facts.namespaces;
    if !settings.closed.is_empty() {
        let commands: Vec<_> = settings.closed.iter().map(|name| format!("sysctl -w {name}=15000")).collect();
        return Some(format!("as root: {} (permanently: in /etc/sysctl.d)", commands.join("; ")));
    }
    if facts.privilege == Privilege::Rootless {
        if settings.unprivileged_clone == Some(false) {
            let command = "sysctl -w kernel.unprivileged_userns_clone=1";
            return Some(format!("as root: {command} (permanently: in /etc/sysctl.d); or run Ringwall as root"));
        }
        if settings.apparmor_restricts == Some(true) {
            return Some(apparmor(&facts.program));
        }
    }
    if settings.filtered {
        return Some(
            "a seccomp filter of a container or a service restricts this process: run the container with \
             --security-opt seccomp=unconfined --security-opt apparmor=unconfined, or the service without \
             RestrictNamespaces= and SystemCallFilter="
                .to_owned(),
        );
    }
    settings.selinux_enforcing.then(|| {
        "SELinux is enforcing: `ausearch -m AVC -ts recent` shows denials; allow user_namespace create for the domain"
            .to_owned()
    })
}

fn apparmor(program: &Path) -> String {
    let program = program.display();
    format!(
        "as root, allow this program: write `abi <abi/4.0>, include <tunables/global> profile ringwall \
         {program} flags=(unconfined) {{ userns, }}` to /etc/apparmor.d/ringwall and load it with \
         `apparmor_parser -r /etc/apparmor.d/ringwall`; or allow all programs: `sysctl -w \
         kernel.apparmor_restrict_unprivileged_userns=0`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::facts::{Kernel, Namespaces, ProbeBox};

    fn advice(facts: Facts, step: Step, errno: i32) -> String {
        let facts = facts.failed(step, errno);
        match &facts.probe_box {
            ProbeBox::Failed(failure) => fix_of(&facts, failure),
            ProbeBox::Made { .. } => String::new(),
        }
    }

    fn rootless(namespaces: Namespaces) -> Facts {
        Facts { namespaces, ..Facts::rootless() }
    }

    fn restricted() -> Namespaces {
        Namespaces { apparmor_restricts: Some(true), ..Namespaces::default() }
    }

    #[test]
    fn fix_names_the_setting_that_forbids_namespaces() {
        let closed = Namespaces { closed: vec!["user.max_user_namespaces"], ..Namespaces::default() };
        let clone = Namespaces { unprivileged_clone: Some(false), ..Namespaces::default() };
        let filtered = Namespaces { filtered: true, ..Namespaces::default() };
        let selinux = Namespaces { selinux_enforcing: true, ..Namespaces::default() };
        let table = [
            (closed.clone(), Step::MakeNamespaces, ENOSPC, "sysctl -w user.max_user_namespaces=15000"),
            (clone, Step::MakeNamespaces, EPERM, "sysctl -w kernel.unprivileged_userns_clone=1"),
            (restricted(), Step::MakeNamespaces, EPERM, "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
            (restricted(), Step::DetachMounts, EACCES, "profile ringwall /usr/local/bin/ringwall flags=(unconfined)"),
            (filtered.clone(), Step::MakeNamespaces, EPERM, "seccomp=unconfined"),
            (filtered, Step::MakeNamespaces, ENOSYS, "seccomp=unconfined"),
            (selinux, Step::MakeNamespaces, EACCES, "ausearch"),
            (Namespaces::default(), Step::MakeNamespaces, ENOSPC, "also on the host"),
            (Namespaces::default(), Step::MakeNamespaces, ENOSYS, "CONFIG_USER_NS"),
            (Namespaces::default(), Step::MakeNamespaces, EAGAIN, "ulimit -u"),
            (Namespaces::default(), Step::MakeNamespaces, EPERM, "a chroot"),
            (restricted(), Step::RestrictFiles, 0, "ringwall doctor --json"),
        ];
        for (namespaces, step, errno, expected) in table {
            let found = advice(rootless(namespaces.clone()), step, errno);
            assert!(found.contains(expected), "{namespaces:?} {step:?} {errno}: {found}");
        }
        let as_root = advice(Facts { namespaces: closed, ..Facts::sample() }, Step::MakeNamespaces, ENOSPC);
        assert!(as_root.contains("user.max_user_namespaces"), "{as_root}");
    }

    #[test]
    fn rootless_settings_are_not_the_fix_for_root() {
        let facts = Facts { namespaces: restricted(), ..Facts::sample() };
        let found = advice(facts, Step::MakeNamespaces, EPERM);
        assert!(!found.contains("apparmor"), "{found}");
    }

    #[test]
    fn masked_proc_is_distinguished_from_a_filter() {
        let filtered = Namespaces { filtered: true, ..Namespaces::default() };
        let failure = ProbeBoxFailure {
            step: Some(Step::BuildRoot),
            errno: EPERM,
            text: "could not build the root file system at /proc".into(),
            hint: Some("parts of /proc are hidden".into()),
        };
        let found = fix_of(&rootless(filtered), &failure);
        assert_eq!(found, "parts of /proc are hidden; with Docker: --security-opt systempaths=unconfined");
    }

    #[test]
    fn old_kernel_is_the_fix_for_every_failure() {
        let facts = Facts { kernel: Kernel::parse("5.10.0-28-amd64"), ..rootless(restricted()) };
        assert_eq!(advice(facts, Step::BuildRoot, ENOSYS), "use Linux 5.12 or newer; this is 5.10.0-28-amd64");
    }
}
