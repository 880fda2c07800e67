//! Proves that a process is PID 1 of one of our containers on this machine.
//!
//! The PID comes from the daemon, which may run on another machine or in another PID namespace, and
//! the process may have ended. So a pidfd is opened first. Then `/proc` must show that the process
//! is in the container's cgroup, is PID 1 of its namespace, has the chosen uid and gid, and has our
//! user namespace but not our mount namespace. The process still lives at the end, so its PID was
//! not reused meanwhile.

use ringwall_jail::plan::Owner;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::events::ContainerId;
use crate::error::Error;
use crate::kernel_file;
use crate::pidfd::{Init, is_over};

/// Proves it, and stores the pidfd in `init`.
pub(super) fn prove(pid: Pid, id: ContainerId, user: Owner, init: &Init) -> Result<(), Error> {
    let has_ended = || Error::BoxDied { why: "its first process has ended".to_owned() };
    let refuse = |why| if is_over(init) { Err(has_ended()) } else { Err(Error::NoWarmBoxes(why)) };
    let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else {
        return Err(Error::WarmBoxUnfit("its first process is not to be seen"));
    };
    let _ = init.set(held);
    let directory = format!("/proc/{}", pid.as_raw_nonzero());
    let read = |name: &str| kernel_file::read(&format!("{directory}/{name}")).unwrap_or_default();
    if !is_in_its_group(&read("cgroup"), id) {
        return refuse("its first process is in another cgroup");
    }
    if !is_first_and(&read("status"), user) {
        return refuse("its first process is somebody else");
    }
    let namespace = |whose: &str, name: &str| rustix::fs::stat(format!("{whose}/ns/{name}")).ok().map(|at| at.st_ino);
    let is_ours = |name| Some(namespace(&directory, name)? == namespace("/proc/self", name)?);
    if is_ours("user") != Some(true) || is_ours("mnt") != Some(false) {
        return refuse("its namespaces are not those of a container on this machine");
    }
    match is_over(init) {
        true => Err(has_ended()),
        false => Ok(()),
    }
}

/// True if the process is in the container's cgroup, as dockerd's cgroupfs or systemd driver names
/// it.
fn is_in_its_group(cgroups: &str, id: ContainerId) -> bool {
    let names = [format!("/{id}"), format!("/docker-{id}.scope")];
    // On version 1 one matching hierarchy is enough: dockerd does not use all of them.
    cgroups.lines().any(|line| names.iter().any(|name| line.ends_with(name)))
}

/// True if the process is PID 1 of its namespace, and all four of its uids and gids are the user's.
fn is_first_and(status: &str, user: Owner) -> bool {
    let field = |key: &str| -> Vec<&str> {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.map(|line| line.split_ascii_whitespace().collect()).unwrap_or_default()
    };
    let is_all = |found: &[&str], id: u32| found.len() == 4 && found.iter().all(|one| *one == id.to_string());
    let processes = field("NSpid:");
    processes.len() > 1
        && processes.last() == Some(&"1")
        && is_all(&field("Uid:"), user.uid)
        && is_all(&field("Gid:"), user.gid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_containers_own_group_is_its() {
        let text = "0123456789abcdef".repeat(4);
        let id = ContainerId::read(&text).unwrap();
        for own in [
            format!("9:memory:/docker/{text}\n1:name=x:/other\n"),
            format!("0::/system.slice/docker-{text}.scope\n"),
            format!("0::/../../docker/{text}"),
        ] {
            assert!(is_in_its_group(&own, id), "{own}");
        }
        for other in [
            String::new(),
            "0::/docker/0".to_owned(),
            format!("0::/docker/{text}/below"),
            format!("0::/docker/x{text}"),
            format!("0::/docker/{}", text.replace('0', "1")),
        ] {
            assert!(!is_in_its_group(&other, id), "{other}");
        }
    }

    #[test]
    fn only_pid_1_as_the_chosen_user_is_it() {
        let user = Owner { uid: 7, gid: 8 };
        let status = |pids: &str, uid: &str, gid: &str| format!("Name:\tx\nUid:\t{uid}\nGid:\t{gid}\nNSpid:\t{pids}\n");
        assert!(is_first_and(&status("4711\t1", "7\t7\t7\t7", "8\t8\t8\t8"), user));
        for (pids, uid, gid) in [
            ("1", "7\t7\t7\t7", "8\t8\t8\t8"),
            ("4711\t2", "7\t7\t7\t7", "8\t8\t8\t8"),
            ("4711\t1", "0\t7\t7\t7", "8\t8\t8\t8"),
            ("4711\t1", "7\t7\t7\t7", "8\t8\t8\t0"),
            ("4711\t1", "", ""),
        ] {
            assert!(!is_first_and(&status(pids, uid, gid), user), "{pids} {uid} {gid}");
        }
    }

    #[test]
    fn a_process_of_this_machine_is_no_container() {
        let id = ContainerId::read(&"0".repeat(64)).unwrap();
        let refused = prove(rustix::process::getpid(), id, Owner { uid: 0, gid: 0 }, &Init::default());
        assert!(matches!(refused, Err(Error::NoWarmBoxes(_))), "{refused:?}");
    }
}
