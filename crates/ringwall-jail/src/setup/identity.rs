//! Who a box is: its user id, and the absence of every privilege.
//!
//! The order matters. The mapping is written from outside; PID 1 takes on the mapped id while it still holds
//! the new namespace's capabilities, mounts with them, and gives them up for good before the filter closes.
//! At the end the kernel is asked, not trusted: a privilege that stayed refuses the box.

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
    // Without this an unprivileged user may not map a group; with it nobody inside can ever change groups.
    write("setgroups", "deny")?;
    write("uid_map", &entry(identity.inside_uid, identity.host_uid))?;
    write("gid_map", &entry(identity.inside_gid, identity.host_gid))
}

/// Supplementary groups would reach into the box. Root leaves them; an ordinary user cannot, and the report says so.
pub(crate) fn leave_groups() -> Result<()> {
    match rustix::thread::set_thread_groups(&[]) {
        Ok(()) | Err(Errno::PERM) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Becomes the box's user. Capabilities stay: neither the old nor the new id is the namespace's root.
pub(crate) fn take(identity: &Identity) -> std::result::Result<(), Failure> {
    let take = || -> Result<()> {
        let gid = rustix::process::Gid::from_raw(identity.inside_gid);
        let uid = rustix::process::Uid::from_raw(identity.inside_uid);
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        // Both of these are reset by a change of ids, so they come after it. Not dumpable means that no
        // process of the box can look into or attach to PID 1 through /proc or otherwise.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        die_with_parent()
    };
    take().map_err(|errno| Failure::new(Step::TakeIdentity, "", errno))
}

/// The box ends with the spawner. (And with the executor, through the socket, should the spawner have died just
/// before this.)
pub(crate) fn die_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

/// Gives up every capability, now and for whatever is executed later.
pub(crate) fn drop_privileges() -> std::result::Result<(), Failure> {
    let give_up = || -> Result<()> {
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
    give_up().map_err(|errno| Failure::new(Step::DropPrivileges, "", errno))
}

/// Asks the kernel what is left. Only "nothing" lets the command start.
pub(crate) fn verify(identity: &Identity) -> std::result::Result<(), Failure> {
    let left = |what: &str| Failure::plain(Step::VerifyPrivileges, what);
    let ask = |errno| Failure::new(Step::VerifyPrivileges, "", errno);
    let sets = rustix::thread::capabilities(None).map_err(ask)?;
    if !(sets.effective | sets.permitted | sets.inheritable).is_empty() {
        return Err(left("capabilities stayed"));
    }
    if !rustix::thread::no_new_privs().map_err(ask)? {
        return Err(left("no_new_privs is not set"));
    }
    if rustix::process::getuid().as_raw() != identity.inside_uid {
        return Err(left("the user id is not the box's"));
    }
    Ok(())
}
