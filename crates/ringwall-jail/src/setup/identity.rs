//! User id of a box, and removal of all privileges.
//!
//! Order: the parent writes the id mapping; PID 1 switches to the mapped id while it holds the user
//! namespace's capabilities, which it needs to mount; it drops them before the seccomp filter is
//! installed. Finally [`verify`] reads the result back from the kernel, and a privilege that
//! remained refuses the box.

use rustix::io::{Errno, Result};
use rustix::process::{DumpableBehavior, Pid, Signal};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets};

use crate::protocol::plan::Identity;
use crate::protocol::report::{Failure, Step};
use crate::setup::sources::write_file;
use crate::sys;

/// Writes the id mapping of a process that waits in a new user namespace.
pub(crate) fn map(process: Pid, identity: &Identity) -> std::result::Result<(), Failure> {
    let directory = format!("/proc/{}", process.as_raw_nonzero());
    let entry = |inside: u32, host: u32| format!("{inside} {host} 1");
    let write = |file: &str, content: &str| {
        write_file(&format!("{directory}/{file}"), content)
            .map_err(|errno| Failure::new(Step::MapIdentity, format!("({file}: {content})"), errno))
    };
    // An unprivileged user may write gid_map only after this. It disables setgroups(2) inside for
    // ever.
    write("setgroups", "deny")?;
    write("uid_map", &entry(identity.inside_uid, identity.host_uid))?;
    write("gid_map", &entry(identity.inside_gid, identity.host_gid))
}

/// Drops supplementary groups, which would give the box access to files. Needs root; without root
/// they stay, and the box reports `no_extra_groups` as not available.
pub(crate) fn leave_groups() -> Result<()> {
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Switches to the box's uid and gid. Capabilities survive, because neither the old nor the new uid
/// is 0 in the namespace.
pub(crate) fn take(identity: &Identity) -> std::result::Result<(), Failure> {
    let take = || -> Result<()> {
        let gid = rustix::process::Gid::from_raw(identity.inside_gid);
        let uid = rustix::process::Uid::from_raw(identity.inside_uid);
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        // The kernel resets both settings when ids change. A process that is not dumpable can be
        // neither ptraced nor inspected through /proc by processes of the box.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        die_with_parent()
    };
    take().map_err(|errno| Failure::new(Step::TakeIdentity, "", errno))
}

/// Kills this process when its parent ends. If the parent has ended before this call, PID 1 ends
/// when its control socket closes.
pub(crate) fn die_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

/// Drops all capabilities, also for programs executed later.
pub(crate) fn drop_privileges() -> std::result::Result<(), Failure> {
    let drop_all = || -> Result<()> {
        for number in 0.. {
            match sys::drop_bounding_capability(number) {
                Ok(()) => {}
                Err(Errno::INVAL) => break,
                Err(error) => return Err(error),
            }
        }
        rustix::thread::clear_ambient_capability_set()?;
        rustix::thread::set_capabilities_secure_bits(
            CapabilitiesSecureBits::NO_ROOT
                | CapabilitiesSecureBits::NO_ROOT_LOCKED
                | CapabilitiesSecureBits::NO_SETUID_FIXUP
                | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
                | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
                | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
                | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED,
        )?;
        let none = CapabilitySet::empty();
        rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
    };
    drop_all().map_err(|errno| Failure::new(Step::DropPrivileges, "", errno))
}

/// Reads the process's state from the kernel. Fails if an effective, permitted or inheritable
/// capability is left, no_new_privs is not set, or the uid is not the box's.
pub(crate) fn verify(identity: &Identity) -> std::result::Result<(), Failure> {
    let remaining = |what: &str| Failure::plain(Step::VerifyPrivileges, what);
    let error = |errno| Failure::new(Step::VerifyPrivileges, "", errno);
    let sets = rustix::thread::capabilities(None).map_err(error)?;
    if !(sets.effective | sets.permitted | sets.inheritable).is_empty() {
        return Err(remaining("capabilities remain"));
    }
    if !rustix::thread::no_new_privs().map_err(error)? {
        return Err(remaining("no_new_privs is not set"));
    }
    if rustix::process::getuid().as_raw() != identity.inside_uid {
        return Err(remaining("the user id is not the box's"));
    }
    Ok(())
}
