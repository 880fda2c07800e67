//! Which system calls a box may make: every call of the kernel, once, with a reason.
//!
//! The filter denies by default. A call that is newer than this table fails with ENOSYS, so that
//! libraries fall back. A call that was reviewed and refused fails with EPERM or, if programs then
//! fall back, with ENOSYS or EINVAL. A test checks that no number is listed twice or, on x86_64,
//! missing.

use linux_raw_sys::general::*;

use super::guard::Guard;

/// Result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Allow,
    /// Fails with EPERM.
    Deny,
    /// Fails with ENOSYS, as if the kernel did not have the call.
    Absent,
    /// Fails with EINVAL, as if the kernel was built without this feature.
    Unsupported,
    /// Depends on the arguments.
    Guarded(Guard),
}

/// Calls with the same action and reason.
#[derive(Debug)]
pub struct Group {
    pub action: Action,
    pub reason: &'static str,
    pub calls: &'static [(&'static str, u32)],
}

// Without commas between calls, rustfmt leaves the lines unchanged.
macro_rules! group {
    ($action:expr, $reason:literal; $($call:ident)*) => {
        Group { action: $action, reason: $reason, calls: &[$((stringify!($call), $call)),*] }
    };
}

#[rustfmt::skip]
pub const GROUPS: &[Group] = &[
    group!(
        Action::Allow, "Read, write and position in descriptors the box already holds.";
        __NR_read __NR_write __NR_pread64 __NR_pwrite64 __NR_readv __NR_writev __NR_preadv __NR_pwritev
        __NR_preadv2 __NR_pwritev2 __NR_lseek __NR_sendfile __NR_splice __NR_tee __NR_vmsplice __NR_copy_file_range
        __NR_readahead __NR_fadvise64 __NR_cachestat __NR_sync_file_range __NR_fsync __NR_fdatasync __NR_sync
        __NR_syncfs __NR_fallocate __NR_ftruncate __NR_truncate __NR_dup __NR_dup3 __NR_close __NR_close_range
        __NR_fcntl __NR_flock
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Allow, "Read, write and position in descriptors the box already holds.";
        __NR_dup2
    ),
    group!(
        Action::Allow, "Inspect and list files; mounts and Landlock decide which.";
        __NR_fstat __NR_newfstatat __NR_statx __NR_statfs __NR_fstatfs __NR_faccessat __NR_faccessat2
        __NR_readlinkat __NR_getdents64 __NR_getcwd __NR_chdir __NR_fchdir __NR_inotify_init1
        __NR_inotify_add_watch __NR_inotify_rm_watch __NR_getxattr __NR_lgetxattr __NR_fgetxattr __NR_listxattr
        __NR_llistxattr __NR_flistxattr __NR_getxattrat __NR_listxattrat __NR_file_getattr __NR_statmount
        __NR_listmount
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Allow, "Inspect and list files; mounts and Landlock decide which.";
        __NR_stat __NR_lstat __NR_access __NR_readlink __NR_getdents __NR_inotify_init
    ),
    group!(
        Action::Allow, "Change files; mounts and Landlock decide which.";
        __NR_mkdirat __NR_unlinkat __NR_renameat __NR_renameat2 __NR_linkat __NR_symlinkat __NR_fchown
        __NR_fchownat __NR_utimensat __NR_umask __NR_setxattr __NR_lsetxattr __NR_fsetxattr __NR_removexattr
        __NR_lremovexattr __NR_fremovexattr __NR_setxattrat __NR_removexattrat __NR_file_setattr
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Allow, "Change files; mounts and Landlock decide which.";
        __NR_mkdir __NR_rmdir __NR_unlink __NR_rename __NR_link __NR_symlink __NR_chown __NR_lchown __NR_utime
        __NR_utimes __NR_futimesat
    ),
    group!(
        Action::Allow, "Wait for descriptors and timers.";
        __NR_ppoll __NR_pselect6 __NR_epoll_create1 __NR_epoll_ctl __NR_epoll_pwait __NR_epoll_pwait2 __NR_eventfd2
        __NR_signalfd4 __NR_timerfd_create __NR_timerfd_settime __NR_timerfd_gettime __NR_pipe2
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Allow, "Wait for descriptors and timers.";
        __NR_poll __NR_select __NR_epoll_create __NR_epoll_wait __NR_eventfd __NR_signalfd __NR_pipe
    ),
    group!(
        Action::Allow, "Manage own memory.";
        __NR_mmap __NR_mprotect __NR_munmap __NR_brk __NR_mremap __NR_msync __NR_mincore __NR_madvise __NR_mlock
        __NR_mlock2 __NR_munlock __NR_mlockall __NR_munlockall __NR_remap_file_pages __NR_memfd_create
        __NR_membarrier __NR_mseal __NR_map_shadow_stack __NR_pkey_alloc __NR_pkey_free
        __NR_pkey_mprotect __NR_get_mempolicy
    ),
    group!(
        Action::Allow, "Make, run, wait for and end processes of the box. vfork and fork cannot make namespaces.";
        __NR_execve __NR_execveat __NR_exit __NR_exit_group __NR_wait4 __NR_waitid __NR_kill __NR_tkill __NR_tgkill
        __NR_pidfd_open __NR_pidfd_send_signal __NR_rt_sigaction __NR_rt_sigprocmask __NR_rt_sigreturn
        __NR_rt_sigpending __NR_rt_sigtimedwait __NR_rt_sigqueueinfo __NR_rt_tgsigqueueinfo __NR_rt_sigsuspend
        __NR_sigaltstack __NR_restart_syscall
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Allow, "Make, run, wait for and end processes of the box. vfork and fork cannot make namespaces.";
        __NR_fork __NR_vfork __NR_pause
    ),
    group!(
        Action::Allow, "Threads and their locks.";
        __NR_futex __NR_futex_waitv __NR_futex_wake __NR_futex_wait __NR_futex_requeue __NR_set_robust_list
        __NR_get_robust_list __NR_set_tid_address __NR_gettid __NR_rseq __NR_sched_yield
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Allow, "Threads and their locks.";
        __NR_arch_prctl __NR_set_thread_area __NR_get_thread_area
    ),
    group!(
        Action::Allow, "Read and set own ids; without capabilities and with one mapped id nothing is gained.";
        __NR_getpid __NR_getppid __NR_getuid __NR_geteuid __NR_getgid __NR_getegid __NR_getgroups __NR_getresuid
        __NR_getresgid __NR_setuid __NR_setgid __NR_setreuid __NR_setregid __NR_setresuid __NR_setresgid
        __NR_setfsuid __NR_setfsgid __NR_setgroups __NR_getpgid __NR_setpgid __NR_getsid __NR_setsid __NR_capget
        __NR_capset
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Allow, "Read and set own ids; without capabilities and with one mapped id nothing is gained.";
        __NR_getpgrp
    ),
    group!(
        Action::Allow, "Scheduling and limits within what the box was given.";
        __NR_sched_setparam __NR_sched_getparam __NR_sched_setscheduler __NR_sched_getscheduler
        __NR_sched_get_priority_max __NR_sched_get_priority_min __NR_sched_rr_get_interval __NR_sched_setaffinity
        __NR_sched_getaffinity __NR_sched_setattr __NR_sched_getattr __NR_getpriority __NR_setpriority
        __NR_ioprio_get __NR_ioprio_set __NR_getrlimit __NR_getrusage __NR_times
        __NR_getcpu
    ),
    group!(
        Action::Allow, "Read clocks and set own timers.";
        __NR_gettimeofday __NR_clock_gettime __NR_clock_getres __NR_clock_nanosleep __NR_nanosleep __NR_getitimer
        __NR_setitimer __NR_timer_create __NR_timer_settime __NR_timer_gettime __NR_timer_getoverrun
        __NR_timer_delete
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Allow, "Read clocks and set own timers.";
        __NR_time __NR_alarm
    ),
    group!(
        Action::Allow, "System facts that every process may read, and random bytes.";
        __NR_uname __NR_sysinfo __NR_getrandom
    ),
    group!(
        Action::Allow, "Communicate over sockets; the network namespace contains only its own loopback interface.";
        __NR_connect __NR_accept __NR_accept4 __NR_bind __NR_listen __NR_getsockname __NR_getpeername __NR_sendto
        __NR_recvfrom __NR_sendmsg __NR_recvmsg __NR_sendmmsg __NR_recvmmsg __NR_getsockopt __NR_shutdown
    ),
    group!(
        Action::Allow, "System V and POSIX messages, semaphores and shared memory of the box's own IPC namespace.";
        __NR_shmget __NR_shmat __NR_shmdt __NR_shmctl __NR_semget __NR_semop __NR_semtimedop __NR_semctl
        __NR_msgget __NR_msgsnd __NR_msgrcv __NR_msgctl __NR_mq_open __NR_mq_unlink __NR_mq_timedsend
        __NR_mq_timedreceive __NR_mq_notify __NR_mq_getsetattr
    ),
    group!(
        Action::Absent, "Contexts of the older asynchronous I/O come from one pool of the machine (fs.aio-max-nr); programs fall back to plain reads and writes.";
        __NR_io_setup __NR_io_destroy __NR_io_submit __NR_io_cancel __NR_io_getevents __NR_io_pgetevents
    ),
    group!(
        Action::Unsupported, "Each filter uses compiled code from one pool of the machine (net.core.bpf_jit_limit); a kernel without filters also returns EINVAL, and programs continue without one.";
        __NR_seccomp
    ),
    group!(
        Action::Allow, "Restrict the caller further; restrictions in force cannot be loosened.";
        __NR_landlock_create_ruleset __NR_landlock_add_rule __NR_landlock_restrict_self
        __NR_lsm_get_self_attr __NR_lsm_list_modules
    ),
    group!(
        Action::Absent, "Its flags lie behind a pointer that a filter cannot read; libraries fall back to clone, whose flags are checked.";
        __NR_clone3
    ),
    group!(
        Action::Absent, "Its mode lies behind a pointer, so a set-user-id file could be made; libraries fall back to openat.";
        __NR_openat2
    ),
    group!(
        Action::Deny, "Namespaces: in a new user namespace a process has capabilities, which expose kernel code that otherwise only root reaches.";
        __NR_unshare __NR_setns
    ),
    group!(
        Action::Deny, "Mounting and changing the root.";
        __NR_mount __NR_umount2 __NR_pivot_root __NR_chroot __NR_fsopen __NR_fsconfig __NR_fsmount __NR_fspick
        __NR_open_tree __NR_open_tree_attr __NR_move_mount __NR_mount_setattr
    ),
    group!(
        Action::Deny, "Inspecting or controlling other processes, including those with the same user id on the host.";
        __NR_ptrace __NR_process_vm_readv __NR_process_vm_writev __NR_pidfd_getfd __NR_kcmp __NR_process_madvise
        __NR_process_mrelease __NR_migrate_pages __NR_move_pages
    ),
    group!(
        Action::Deny, "File handles scope past the mounts of the box to any file of the file system.";
        __NR_name_to_handle_at __NR_open_by_handle_at
    ),
    group!(
        Action::Deny, "Kernel keyrings are only partly separated by namespaces.";
        __NR_keyctl __NR_add_key __NR_request_key
    ),
    group!(
        Action::Deny, "Large kernel interfaces with a history of privilege escalation that agents do not need.";
        __NR_bpf __NR_perf_event_open __NR_userfaultfd __NR_memfd_secret __NR_io_uring_setup __NR_io_uring_enter
        __NR_io_uring_register
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Deny, "Large kernel interfaces with a history of privilege escalation that agents do not need.";
        __NR_uretprobe __NR_modify_ldt
    ),
    group!(
        Action::Deny, "The kernel itself: modules, images, log, power.";
        __NR_init_module __NR_finit_module __NR_delete_module __NR_kexec_load __NR_kexec_file_load __NR_reboot
        __NR_syslog
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Deny, "The kernel itself: modules, images, log, power.";
        __NR_create_module __NR_get_kernel_syms __NR_query_module
    ),
    group!(
        Action::Deny, "The machine: clock, names, swap, accounting, quotas, ports, terminals.";
        __NR_settimeofday __NR_clock_settime __NR_adjtimex __NR_clock_adjtime __NR_sethostname __NR_setdomainname
        __NR_swapon __NR_swapoff __NR_acct __NR_quotactl __NR_quotactl_fd __NR_vhangup
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Deny, "The machine: clock, names, swap, accounting, quotas, ports, terminals.";
        __NR_iopl __NR_ioperm
    ),
    group!(
        Action::Deny, "Watching other users' files.";
        __NR_fanotify_init __NR_fanotify_mark
    ),
    group!(
        Action::Deny, "NUMA memory placement: it can exhaust one node for all processes of the machine.";
        __NR_mbind __NR_set_mempolicy __NR_set_mempolicy_home_node
    ),
    group!(
        Action::Deny, "Labels of other security modules.";
        __NR_lsm_set_self_attr
    ),
    group!(
        Action::Deny, "Obsolete, or never implemented.";
        __NR_lookup_dcookie __NR_nfsservctl
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Deny, "Obsolete, or never implemented.";
        __NR_uselib __NR_ustat __NR_sysfs __NR__sysctl __NR_getpmsg __NR_putpmsg __NR_afs_syscall __NR_tuxcall
        __NR_security __NR_vserver __NR_epoll_ctl_old __NR_epoll_wait_old
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Guarded(Guard::OpenMode { flags: 1, mode: 2 }), "Open files, but create none with a set-user-id or set-group-id bit: it would outlive the box and run with its owner's id on the host.";
        __NR_open
    ),
    group!(
        Action::Guarded(Guard::OpenMode { flags: 2, mode: 3 }), "Open files, but create none with a set-user-id or set-group-id bit: it would outlive the box and run with its owner's id on the host.";
        __NR_openat
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Guarded(Guard::FileMode { mode: 1 }), "Open files, but create none with a set-user-id or set-group-id bit: it would outlive the box and run with its owner's id on the host.";
        __NR_creat
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Guarded(Guard::FileMode { mode: 1 }), "Change modes, but set no set-user-id or set-group-id bit: on the host such a file would run with its owner's id.";
        __NR_chmod
    ),
    group!(
        Action::Guarded(Guard::FileMode { mode: 1 }), "Change modes, but set no set-user-id or set-group-id bit: on the host such a file would run with its owner's id.";
        __NR_fchmod
    ),
    group!(
        Action::Guarded(Guard::FileMode { mode: 2 }), "Change modes, but set no set-user-id or set-group-id bit: on the host such a file would run with its owner's id.";
        __NR_fchmodat
    ),
    group!(
        Action::Guarded(Guard::FileMode { mode: 2 }), "Change modes, but set no set-user-id or set-group-id bit: on the host such a file would run with its owner's id.";
        __NR_fchmodat2
    ),
    #[cfg(target_arch = "x86_64")]
    group!(
        Action::Guarded(Guard::NodeMode { mode: 1 }), "Make FIFOs and sockets, but no devices and nothing set-user-id.";
        __NR_mknod
    ),
    group!(
        Action::Guarded(Guard::NodeMode { mode: 2 }), "Make FIFOs and sockets, but no devices and nothing set-user-id.";
        __NR_mknodat
    ),
    group!(
        Action::Guarded(Guard::CloneFlags), "Make threads and processes, but no namespaces.";
        __NR_clone
    ),
    group!(
        Action::Guarded(Guard::TerminalRequests), "Control descriptors, but push no keystrokes into a terminal and load no line discipline.";
        __NR_ioctl
    ),
    group!(
        Action::Guarded(Guard::Socket), "Unix sockets, TCP, UDP and ICMP echo, and the routing netlink that getifaddrs needs; no other families and protocols, whose modules the kernel would load.";
        __NR_socket
    ),
    group!(
        Action::Guarded(Guard::SocketOption), "Set socket options, but attach no BPF program, which uses the machine's pool of compiled code, and no upper layer protocol.";
        __NR_setsockopt
    ),
    group!(
        Action::Guarded(Guard::UnixOnly), "Pairs of Unix sockets; no other family has pairs that programs use.";
        __NR_socketpair
    ),
    group!(
        Action::Guarded(Guard::Personality), "Personalities that change neither address layout nor ABI.";
        __NR_personality
    ),
    group!(
        Action::Guarded(Guard::ProcessOption), "Process options, but no further filter: it would use the machine's pool of compiled code.";
        __NR_prctl
    ),
    group!(
        Action::Guarded(Guard::OwnLimit), "Set own limits, but not the core size: at 0 the kernel would run the host's core handler.";
        __NR_setrlimit
    ),
    group!(
        Action::Guarded(Guard::ProcessLimit), "Set own limits, but not the core size; and not those of PID 1 (same user id), which could then not open the files that show memory use.";
        __NR_prlimit64
    ),
];
