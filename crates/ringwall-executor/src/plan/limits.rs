//! The limits of a box as cgroup files and rlimits, or as PID 1's memory watchdog where there are
//! no cgroups.
//!
//! Pure, like `lower`. A limit that cannot be enforced is listed in the plan's protections.

use std::collections::BTreeMap;
use std::ffi::CString;

use ringwall_jail::plan::{CgroupDirectory, CgroupSetting, CgroupVersion, Cgroups, Resource, ResourceLimit, Watchdog};
use ringwall_jail::report::{Protection, ProtectionName};
use ringwall_policy::{Field, Limits};

use crate::c_string::literal;
use crate::cgroup::layout::{CgroupLayout, Controller};
use crate::counters;
use crate::host::Host;

/// PID 1 and the agent count as processes in the kernel, so the kernel's limit is raised by them.
pub(crate) const OUR_PROCESSES: u64 = 1;
pub(crate) const OUR_AGENT: u64 = 1;
/// Threads of gVisor's own kernel, which aborts if it cannot start one.
pub(crate) const GVISOR_THREADS: u64 = 128;
const MIB: u64 = 1024 * 1024;
/// The kernel's minimum quota is 1 ms, so a share below [`SMALL_SHARE_MILLIS`] per period uses the
/// long period.
const PERIOD_MICROSECONDS: u64 = 100_000;
const LONG_PERIOD_MICROSECONDS: u64 = 1_000_000;
const SMALL_SHARE_MILLIS: u64 = 10;

/// Open files per process. Browsers and build tools stay below 4096; below 256 many programs fail.
const MAX_OPEN_FILES: u64 = 4096;
const MIN_OPEN_FILES: u64 = 256;
/// A box may hold one part in this many of `fs.file-max`.
const SHARE_OF_OPEN_FILES: u64 = 4;
/// At least this much memory is charged to a box for each open file. The kernel's `struct file` takes 192 bytes on Linux
/// 6.18, more on older ones.
const MIN_FILE_BYTES: u64 = 128;
const LOCKED_MEMORY: u64 = 8 * MIB;
/// No POSIX message queues. Their bytes also count for the user who made the box's user namespace, who has 819,200 by
/// default: ten queues of one box would leave none to that user and to all other boxes.
const MESSAGE_QUEUES: u64 = 0;
const PENDING_SIGNALS: u64 = 1024;

/// Version 1 counts TCP and UDP queues separately; they may hold one part in this many of the
/// memory limit, in addition to it.
const SHARE_OF_SOCKETS: u64 = 4;

/// Per disk and second. An fsync is two or three writes: without a limit, one box that calls it in
/// a loop slowed others down five times.
const DISK_WRITES: u64 = 500;
const DISK_READS: u64 = 4000;
const DISK_WRITE_MIB: u64 = 128;
const DISK_READ_MIB: u64 = 512;

/// Lifetime of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    OneCommand,
    /// Many commands; the box may be paused between them.
    SessionBox,
}

impl Stay {
    /// Number of our own processes in a box.
    pub(crate) fn own_processes(self) -> u64 {
        match self {
            Stay::OneCommand => OUR_PROCESSES,
            Stay::SessionBox => OUR_PROCESSES + OUR_AGENT,
        }
    }
}

/// The limits of a box, and their state as far as known before it exists.
#[derive(Debug)]
pub(crate) struct BoxLimits {
    pub(crate) cgroups: Option<Cgroups>,
    pub(crate) protections: Vec<Protection>,
    pub(crate) resource_limits: Vec<ResourceLimit>,
}

pub(crate) fn of_native_box(limits: &Limits, host: &Host, name: &str, stay: Stay) -> BoxLimits {
    let (cgroups, mut protections) = cgroups(limits, host, name, stay.own_processes(), stay);
    let pids = limits.get(Field::Pids) + stay.own_processes();
    protections.extend(counters::protections(host.privilege, host.counter_caps, descriptors(pids, host)));
    BoxLimits { cgroups, protections, resource_limits: resource_limits(pids, host) }
}

/// The cgroups of a box, and the state of its limits. `own_processes` of the box are ours.
pub(crate) fn cgroups(
    limits: &Limits,
    host: &Host,
    name: &str,
    own_processes: u64,
    stay: Stay,
) -> (Option<Cgroups>, Vec<Protection>) {
    let mut protections = vec![open_files(limits, limits.get(Field::Pids) + own_processes, host)];
    let layout = match &host.cgroups {
        Ok(layout) => layout,
        Err(why) => {
            protections.extend(without(why));
            return (None, protections);
        }
    };
    let mut directories: BTreeMap<&CString, Vec<CgroupSetting>> = BTreeMap::new();
    let controllers = [
        (&layout.memory, ProtectionName::MemoryLimit),
        (&layout.pids, ProtectionName::PidsLimit),
        (&layout.cpu, ProtectionName::CpuLimit),
        (&layout.io, ProtectionName::IoLimit),
    ];
    for (controller, protects) in controllers {
        match controller {
            Some(_) if protects == ProtectionName::IoLimit && host.disks.is_empty() => {
                protections.push(Protection::not_available(protects, "no disk of this machine is seen"));
            }
            Some(controller) if protects == ProtectionName::IoLimit => {
                directories.entry(&controller.parent).or_default().extend(io_settings(layout.version, &host.disks));
            }
            Some(controller) => {
                let settings = settings(layout, controller, protects, limits, own_processes);
                directories.entry(&controller.parent).or_default().extend(settings);
            }
            None => protections.push(Protection::not_available(protects, "this cgroup has no such controller")),
        }
    }
    if let (Stay::SessionBox, Some(freezer)) = (stay, &layout.freezer) {
        directories.entry(&freezer.parent).or_default();
    }
    let directories = directories
        .into_iter()
        .map(|(parent, settings)| CgroupDirectory { parent: parent.clone(), name: literal(name), settings })
        .collect();
    (Some(Cgroups { version: layout.version, directories }), protections)
}

fn settings(
    layout: &CgroupLayout,
    controller: &Controller,
    protects: ProtectionName,
    limits: &Limits,
    own_processes: u64,
) -> Vec<CgroupSetting> {
    let main = |file: &str, value: String| CgroupSetting { file: literal(file), value, protects: Some(protects) };
    let refine = |file: &str, value: String| CgroupSetting { file: literal(file), value, protects: None };
    let bytes = (limits.get(Field::MemoryMb) * MIB).to_string();
    let pids = (limits.get(Field::Pids) + own_processes).to_string();
    let (quota, period) = quota(limits.get(Field::CpuMillis));
    match (layout.version, protects) {
        (CgroupVersion::V1, ProtectionName::MemoryLimit) => {
            // Queues of TCP and UDP sockets are not part of the limit above.
            let sockets = (limits.get(Field::MemoryMb) * MIB / SHARE_OF_SOCKETS).to_string();
            let mut settings =
                vec![main("memory.limit_in_bytes", bytes.clone()), main("memory.kmem.tcp.limit_in_bytes", sockets)];
            if controller.swap {
                settings.push(refine("memory.memsw.limit_in_bytes", bytes));
            }
            settings
        }
        (CgroupVersion::V2, ProtectionName::MemoryLimit) => vec![
            main("memory.max", bytes),
            refine("memory.swap.max", "0".to_owned()),
            // The OOM killer kills the whole box.
            refine("memory.oom.group", "1".to_owned()),
        ],
        (_, ProtectionName::PidsLimit) => vec![main("pids.max", pids)],
        (CgroupVersion::V1, _) => {
            // A new group has the default period already.
            let unusual = (period != PERIOD_MICROSECONDS).then(|| refine("cpu.cfs_period_us", period.to_string()));
            unusual.into_iter().chain([main("cpu.cfs_quota_us", quota.to_string())]).collect()
        }
        (CgroupVersion::V2, _) => vec![main("cpu.max", format!("{quota} {period}"))],
    }
}

/// Sets the same limits on each disk.
fn io_settings(version: CgroupVersion, disks: &[String]) -> Vec<CgroupSetting> {
    let setting = |file: &str, value: String| CgroupSetting {
        file: literal(file),
        value,
        protects: Some(ProtectionName::IoLimit),
    };
    let of_disk = |disk: &String| match version {
        CgroupVersion::V1 => vec![
            setting("blkio.throttle.write_iops_device", format!("{disk} {DISK_WRITES}")),
            setting("blkio.throttle.read_iops_device", format!("{disk} {DISK_READS}")),
            setting("blkio.throttle.write_bps_device", format!("{disk} {}", DISK_WRITE_MIB * MIB)),
            setting("blkio.throttle.read_bps_device", format!("{disk} {}", DISK_READ_MIB * MIB)),
        ],
        CgroupVersion::V2 => vec![setting(
            "io.max",
            format!(
                "{disk} rbps={} wbps={} riops={DISK_READS} wiops={DISK_WRITES}",
                DISK_READ_MIB * MIB,
                DISK_WRITE_MIB * MIB
            ),
        )],
    };
    disks.iter().flat_map(of_disk).collect()
}

fn quota(cpu_millis: u64) -> (u64, u64) {
    let period = if cpu_millis < SMALL_SHARE_MILLIS { LONG_PERIOD_MICROSECONDS } else { PERIOD_MICROSECONDS };
    (cpu_millis * period / 1000, period)
}

/// The protections of a box without cgroups.
fn without(why: &str) -> Vec<Protection> {
    vec![
        Protection::partial(
            ProtectionName::MemoryLimit,
            format!(
                "{why}; PID 1 of the box counts its memory 20 times a second and ends it when it is over; queues of Unix \
                 sockets and pipes are not counted"
            ),
        ),
        Protection::partial(
            ProtectionName::PidsLimit,
            format!("{why}; the number of processes is limited per user id (RLIMIT_NPROC)"),
        ),
        Protection::not_available(ProtectionName::CpuLimit, why),
        Protection::not_available(ProtectionName::IoLimit, why),
    ]
}

/// PID 1 counts memory if the kernel does not.
pub(crate) fn watchdog(limits: &Limits, file_systems: Vec<CString>) -> Watchdog {
    Watchdog { memory_bytes: limits.get(Field::MemoryMb) * MIB, file_systems }
}

/// RLIMIT_NOFILE of each process: the descriptors of `pids` processes together stay below a quarter of fs.file-max, unless
/// that is less than [`MIN_OPEN_FILES`] for each.
pub(crate) fn descriptors(pids: u64, host: &Host) -> u64 {
    (host.open_files / SHARE_OF_OPEN_FILES / pids.max(1)).clamp(MIN_OPEN_FILES, MAX_OPEN_FILES)
}

/// Partial if a box of `pids` processes can hold more than a quarter of fs.file-max. A file that was opened, mapped and closed
/// needs no descriptor, so descriptors alone do not bound it. Mappings per process do, and a memory cgroup does, which is
/// charged for each file.
fn open_files(limits: &Limits, pids: u64, host: &Host) -> Protection {
    let share = host.open_files / SHARE_OF_OPEN_FILES;
    let by_process = pids.saturating_mul(descriptors(pids, host).saturating_add(host.mappings));
    let is_charged = host.cgroups.as_ref().is_ok_and(|layout| layout.memory.is_some());
    let by_memory = if is_charged { limits.get(Field::MemoryMb) * MIB / MIN_FILE_BYTES } else { u64::MAX };
    let most = by_process.min(by_memory);
    if most <= share {
        return Protection::enforced(ProtectionName::OpenFiles);
    }
    let why = format!(
        "a mapped file (mmap, shmat) needs no descriptor: a box can hold up to {most} open files, more than a quarter of \
         fs.file-max ({})",
        host.open_files
    );
    Protection::partial(ProtectionName::OpenFiles, why)
}

/// The rlimits of each process in a box of `pids` processes, ours included.
pub(crate) fn resource_limits(pids: u64, host: &Host) -> Vec<ResourceLimit> {
    [
        // One byte is too little for a core file, and unlike zero it also keeps the host's core handler from starting.
        (Resource::CoreSize, 1),
        (Resource::OpenFiles, descriptors(pids, host)),
        (Resource::Processes, pids),
        (Resource::LockedMemory, LOCKED_MEMORY),
        (Resource::MessageQueues, MESSAGE_QUEUES),
        (Resource::RealtimePriority, 0),
        (Resource::Niceness, 0),
        (Resource::PendingSignals, PENDING_SIGNALS),
    ]
    .map(|(resource, value)| ResourceLimit { resource, value })
    .to_vec()
}

#[cfg(test)]
mod tests {
    use ringwall_jail::plan::Privilege;
    use ringwall_jail::report::ProtectionState;
    use ringwall_policy::{Field, Root, Workspace};

    use super::{descriptors, open_files, quota};
    use crate::plan::lower::tests::{grant, host, version_1};

    #[test]
    fn descriptors_of_all_processes_stay_below_a_quarter_of_file_max() {
        for (file_max, pids, expected) in [
            (2_466_190, 257, 2399),
            (u64::MAX, 257, 4096),
            (u64::MAX, 1 << 22, 4096),
            (102_400, 2, 4096),
            (102_400, 257, 256),
            (0, 1, 256),
        ] {
            let mut host = host(Privilege::Root, Err(String::new()));
            host.open_files = file_max;
            assert_eq!(descriptors(pids, &host), expected, "fs.file-max {file_max}, {pids} processes");
        }
    }

    #[test]
    fn open_files_are_enforced_only_if_mapped_files_are_bounded() {
        use ProtectionState::{Enforced, Partial};
        let grant = grant(Workspace::Private, Root::Host, &[], &[]);
        assert_eq!(grant.effective().limits.get(Field::MemoryMb), 64);
        // 257 processes have at most 257 * (4,096 + 65,530) = 17,893,882 files; 64 MB are 524,288 files of 128 bytes.
        for (file_max, has_memory_cgroup, expected) in [
            (i64::MAX as u64, false, Enforced),
            (72_000_000, false, Enforced),
            (71_000_000, false, Partial),
            (2_100_000, true, Enforced),
            (2_090_000, true, Partial),
        ] {
            let cgroups = if has_memory_cgroup { version_1() } else { Err(String::new()) };
            let mut host = host(Privilege::Root, cgroups);
            host.open_files = file_max;
            let found = open_files(&grant.effective().limits, 257, &host);
            assert_eq!(found.state, expected, "fs.file-max {file_max}, memory cgroup: {has_memory_cgroup}, {found:?}");
        }
    }

    #[test]
    fn quota_of_a_small_share_is_at_least_the_kernels_minimum() {
        for millis in [1, 5, 9, 10, 500, 1000, 64_000] {
            let (quota, period) = quota(millis);
            assert!(quota >= 1000, "{millis}");
            assert_eq!(quota * 1000 / period, millis);
        }
    }
}
