//! Kernel calls that rustix lacks, each behind a safe function.
//!
//! The only file in the workspace that contains `unsafe`. It holds no logic: each function is one
//! system call (or a few of one purpose) with arguments that Rust types make valid, and states why
//! it is sound. Most of them rely on a property of the jail's processes: they have one thread, so
//! no other thread uses memory or descriptors.
#![expect(unsafe_code, reason = "the one place where raw system calls are made")]

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Setter};
use rustix::process::{Pid, RawPid};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// Defined here because libc's constant overflows its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// One instruction of a classic BPF program (`struct sock_filter`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BpfInstruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub operand: u32,
}

/// Result of a fork.
#[derive(Debug)]
pub enum Fork<T> {
    Child,
    Parent(T),
}

/// Converts a C return value; a negative one stands for `errno`.
fn check(value: libc::c_long) -> Result<libc::c_long> {
    if value >= 0 {
        return Ok(value);
    }
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(Errno::from_raw_os_error(code))
}

/// Clones this process into new namespaces and, if `cgroup` is a cgroup v2 directory, into that
/// cgroup.
pub fn clone_into_namespaces(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Fork<Pid>> {
    // SAFETY: `clone_args` is plain integers, for which all-zero bytes are a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(directory) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = directory.as_raw_fd() as u64;
    }
    // SAFETY: without a stack argument the child continues on a copy of this stack, as after
    // fork(2). The process has one thread, so no lock is held in the copy. `args` outlives the
    // call.
    let value = check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) })?;
    Ok(Pid::from_raw(value as RawPid).map_or(Fork::Child, Fork::Parent))
}

/// Starts a child that shares this process's memory (like vfork). This process is suspended until
/// the child executes a program or exits, and `child` must do one of the two. Nothing is copied,
/// which saves both processes hundreds of page faults.
pub fn start_vfork(child: &mut dyn FnMut()) -> Result<Pid> {
    const STACK: usize = 256 * 1024;
    extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `argument` points to the variable below. Its owner is suspended until this
        // process has exited or executed a program.
        let child = unsafe { &mut *argument.cast::<&mut dyn FnMut()>() };
        child();
        libc::EXIT_FAILURE
    }
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let mut child = child;
    let argument = ptr::from_mut(&mut child).cast::<libc::c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is 16-byte aligned and grows down from the end that is passed. It outlives
    // the child's use of it, because CLONE_VFORK suspends this process until then; for the same
    // reason no other code accesses the shared memory. Descriptors, signal actions and working
    // directory are the child's own copies.
    let value = unsafe { libc::clone(enter, stack.as_mut_ptr_range().end.cast(), flags, argument) };
    Pid::from_raw(check(libc::c_long::from(value))? as RawPid).ok_or(Errno::CHILD)
}

/// What a helper shares with this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    MemoryAndDescriptors,
    MemoryAlone,
}

/// Starts a process that shares this process's memory and runs concurrently, on its own stack.
/// `work` must not allocate, and may only make system calls that bypass the C library, whose
/// `errno` is shared. The stack is leaked, because either process may end first.
pub fn start_helper(work: fn(), share: Share) -> Result<Pid> {
    const STACK: usize = 64 * 1024;
    extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `argument` is the function pointer that was cast below.
        let work = unsafe { std::mem::transmute::<*mut libc::c_void, fn()>(argument) };
        work();
        0
    }
    let stack = std::mem::ManuallyDrop::new(Vec::<u128>::with_capacity(STACK / size_of::<u128>()));
    let top = stack.as_ptr().wrapping_add(stack.capacity());
    let flags = match share {
        Share::MemoryAndDescriptors => libc::CLONE_VM | libc::CLONE_FILES | libc::SIGCHLD,
        Share::MemoryAlone => libc::CLONE_VM | libc::SIGCHLD,
    };
    // SAFETY: the stack is 16-byte aligned, grows down from the end that is passed, and is never
    // freed. By the contract above neither process sees a half-done change of the other.
    let value = unsafe { libc::clone(enter, top.cast_mut().cast(), flags, work as *mut libc::c_void) };
    let value = check(libc::c_long::from(value))?;
    Pid::from_raw(value as RawPid).ok_or(Errno::CHILD)
}

/// Pointers to the argument and environment strings on the initial stack.
static ARGUMENTS: AtomicPtr<*mut libc::c_char> = AtomicPtr::new(ptr::null_mut());

/// The C library calls this before `main`, with the kernel's argument list.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER_ARGUMENTS: extern "C" fn(libc::c_int, *mut *mut libc::c_char) = {
    extern "C" fn remember(_count: libc::c_int, arguments: *mut *mut libc::c_char) {
        ARGUMENTS.store(arguments, Ordering::Relaxed);
    }
    remember
};

/// Overwrites the arguments and the environment of this program with zeros, and puts `name` in
/// their place. Call it only in a copy of the process that does not need them.
pub fn wipe_arguments(name: &str) {
    let mut pointers = ARGUMENTS.load(Ordering::Relaxed);
    if pointers.is_null() {
        return;
    }
    // SAFETY: the kernel's lists are intact, because no code of this program changes them, and the
    // copy has one thread. The strings are contiguous, so `name` stays within them.
    unsafe {
        let start = *pointers;
        let mut end = start;
        // Two lists of pointers, arguments and environment, each terminated by a null pointer.
        for _ in 0..2 {
            while !(*pointers).is_null() {
                let length = libc::strlen(*pointers);
                ptr::write_bytes(*pointers, 0, length);
                end = (*pointers).add(length);
                pointers = pointers.add(1);
            }
            pointers = pointers.add(1);
        }
        if !start.is_null() && end.addr() - start.addr() > name.len() {
            ptr::copy_nonoverlapping(name.as_ptr().cast(), start, name.len());
        }
    }
}

/// _exit(2): no destructors, buffers or exit handlers run.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) has no preconditions.
    unsafe { libc::_exit(code) }
}

/// execve(2). Returns only on failure.
pub fn execute(path: &CStr, argv: &[CString], env: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both arrays end in a null pointer and point to NUL-terminated strings that outlive
    // the call.
    match check(libc::c_long::from(unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) })) {
        Ok(_) => Errno::IO,
        Err(error) => error,
    }
}

/// Resets all signals to their default action. An ignored signal stays ignored across execve (Rust
/// ignores SIGPIPE), and with SIGCHLD ignored children would be reaped by the kernel.
pub fn reset_signals() {
    // `struct kernel_sigaction`: handler, flags, restorer, mask; all zero is the default action.
    // The C library's wrapper refuses the two signals that it reserves, which a caller may have
    // left ignored.
    let default = [0_u64; 4];
    for number in 1..=64 {
        let no_old = ptr::null_mut::<u64>();
        // SAFETY: the kernel reads 32 bytes from `default` and installs no handler. It refuses
        // SIGKILL and SIGSTOP, which is harmless.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), no_old, size_of::<u64>()) };
    }
}

/// Resets the personality: a caller may have disabled address space randomisation.
pub fn reset_personality() {
    // SAFETY: takes an integer.
    unsafe { libc::personality(0) };
}

/// Blocks all signals, or unblocks all.
pub fn set_signal_mask(blocked: bool) {
    // SAFETY: the call only reads the set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, ptr::from_ref(&signals(blocked)), ptr::null_mut()) };
}

/// The set of all signals, or the empty set.
fn signals(all: bool) -> libc::sigset_t {
    let fill = if all { libc::sigfillset } else { libc::sigemptyset };
    // SAFETY: `sigset_t` is plain integers; the call fills it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        fill(&raw mut set);
        set
    }
}

/// A signalfd for all signals, which must be blocked. Read it with [`read_signal`].
pub fn signal_descriptor() -> Result<OwnedFd> {
    descriptor_of(&signals(true))
}

/// Blocks SIGCHLD only, and returns a signalfd for it.
pub fn child_descriptor() -> Result<OwnedFd> {
    let mut set = signals(false);
    // SAFETY: the calls write and read the set.
    unsafe {
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, ptr::null_mut());
    }
    descriptor_of(&set)
}

fn descriptor_of(set: &libc::sigset_t) -> Result<OwnedFd> {
    // SAFETY: the kernel copies the set.
    let value = unsafe { libc::signalfd(-1, ptr::from_ref(set), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    take_descriptor(check(libc::c_long::from(value))? as libc::c_int)
}

/// Consumes one pending signal; EAGAIN if there is none.
pub fn read_signal(descriptor: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: `signalfd_siginfo` is plain integers.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    // SAFETY: the buffer is `info`, of exactly the size given.
    let value = unsafe { libc::read(descriptor.as_raw_fd(), ptr::from_mut(&mut info).cast(), size_of_val(&info)) };
    check(value as libc::c_long).map(drop)
}

/// Signals all other processes of this PID namespace. kill(-1) exempts the caller and PID 1.
pub fn signal_all(signal: i32) -> Result<()> {
    // SAFETY: kill(2) takes integers.
    check(libc::c_long::from(unsafe { libc::kill(-1, signal) })).map(drop)
}

/// CPU time and largest resident set of all reaped children.
#[derive(Debug, Clone, Copy)]
pub struct ChildrenUsage {
    pub cpu_microseconds: u64,
    pub largest_resident_bytes: u64,
}

/// getrusage(RUSAGE_CHILDREN).
pub fn children_usage() -> ChildrenUsage {
    // SAFETY: `rusage` is plain integers, filled by the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
        usage
    };
    to_usage(&usage)
}

/// wait4(2) for any child, without blocking: PID, status, and usage of it and its reaped children.
pub fn reap() -> Option<(Pid, ExitStatus, ChildrenUsage)> {
    let mut status: libc::c_int = 0;
    // SAFETY: `rusage` is plain integers, for which all-zero bytes are a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to the variables above, which the call fills.
    let value = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    Some((Pid::from_raw(value.max(0))?, ExitStatus::from_raw(status), to_usage(&usage)))
}

/// setsid(2). The returned session id is ignored, because gVisor's is not always valid.
pub fn setsid() -> Result<()> {
    // SAFETY: takes no arguments and accesses no memory.
    check(libc::c_long::from(unsafe { libc::setsid() })).map(drop)
}

fn to_usage(usage: &libc::rusage) -> ChildrenUsage {
    let microseconds = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    ChildrenUsage {
        cpu_microseconds: microseconds(usage.ru_utime) + microseconds(usage.ru_stime),
        largest_resident_bytes: usage.ru_maxrss as u64 * 1024,
    }
}

/// CPU time in microseconds that a living process has used.
pub fn cpu_time(process: Pid) -> Result<u64> {
    let mut clock: libc::clockid_t = 0;
    // SAFETY: fills the one integer that it is given.
    let errno = unsafe { libc::clock_getcpuclockid(process.as_raw_nonzero().get(), &raw mut clock) };
    if errno != 0 {
        return Err(Errno::from_raw_os_error(errno));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills the structure that it is given.
    check(libc::c_long::from(unsafe { libc::clock_gettime(clock, &raw mut time) }))?;
    Ok(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000)
}

/// Switches to SCHED_OTHER, default I/O priority and a nice value of at least 0.
pub fn reset_scheduling() -> Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call, which only reads it.
    check(libc::c_long::from(unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) }))?;
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: takes integers: this process, and no I/O class.
    check(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, 0) })?;
    if rustix::process::getpriority_process(None)? < 0 {
        rustix::process::setpriority_process(None, 0)?;
    }
    Ok(())
}

/// The mounts that a change applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountScope {
    One,
    Recursive,
}

/// mount_setattr(2) on the mount that `tree` refers to. `owners` is a user namespace whose id
/// mapping the mount gets. The mount also becomes private: a clone of a shared mount would receive
/// later mounts of the original.
pub fn set_mount_attributes(
    tree: BorrowedFd<'_>,
    scope: MountScope,
    set: u64,
    owners: Option<BorrowedFd<'_>>,
) -> Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set | if owners.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 },
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: owners.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    let flags = libc::AT_EMPTY_PATH | if scope == MountScope::Recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a valid empty string and the structure has the size that is passed with
    // it.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    })
    .map(drop)
}

/// Drops a capability from the bounding set; EINVAL if the kernel has no capability of that number.
pub fn drop_bounding_capability(number: u32) -> Result<()> {
    // SAFETY: prctl(2) with this option takes an integer.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) }))
        .map(drop)
}

/// Installs a seccomp filter for this process and all its future children.
pub fn install_filter(program: &[BpfInstruction]) -> Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| Errno::TOOBIG)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut() };
    // SAFETY: `BpfInstruction` has the layout of `sock_filter`; the kernel copies and checks the
    // program.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0 as libc::c_ulong, &raw const program)
    })
    .map(drop)
}

/// Landlock ABI version of the kernel; fails if Landlock is missing or disabled.
pub fn landlock_version() -> Result<u32> {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: with this flag the call takes no structure and only returns a number.
    let value = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, VERSION) };
    check(value).map(|version| version as u32)
}

/// Restricts this process by a Landlock ruleset. Needs no privilege if no_new_privs is set.
pub fn enter_landlock(rules: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes an open descriptor and a number.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32) }).map(drop)
}

/// Brings the loopback interface of this network namespace up.
pub fn bring_loopback_up(socket: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: `ifreq` is plain integers; the name is written within its bounds and stays
    // NUL-terminated.
    let request = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        request
    };
    // SAFETY: this operation reads one `ifreq`, which is what it is given.
    unsafe { rustix::ioctl::ioctl(socket, Setter::<{ libc::SIOCSIFFLAGS as Opcode }, libc::ifreq>::new(request)) }
}

/// unshare(2), except for the descriptor table. It does not use the C library, so helpers may call
/// it.
pub fn unshare(what: UnshareFlags) -> Result<()> {
    if what.intersects(UnshareFlags::FILES) {
        return Err(Errno::INVAL);
    }
    // SAFETY: only a thread with a descriptor table of its own, refused above, would see other
    // descriptors than the other threads.
    unsafe { rustix::thread::unshare_unsafe(what) }
}

/// Moves this process into the network namespace of a socket (SIOCGSKNS).
pub fn enter_network_of(socket: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: this operation takes no argument and returns a new descriptor.
    let value = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGSKNS as libc::Ioctl) };
    let namespace = take_descriptor(check(libc::c_long::from(value))? as libc::c_int)?;
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Takes ownership of a descriptor by number; a negative number is an errno. Only for numbers that
/// were handed over with [`release_descriptor`] or returned by the kernel as new.
pub fn take_descriptor(number: i32) -> Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::from_raw_os_error(-number));
    }
    // SAFETY: by the contract above no other value owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Gives up ownership of a descriptor and returns its number, for [`take_descriptor`].
pub fn release_descriptor(descriptor: OwnedFd) -> i32 {
    descriptor.into_raw_fd()
}

/// dup2(2): gives `descriptor` a fixed number: a standard stream or, in a child that is about to
/// execute a program, any other. A value that owned the number before must not be used again.
pub fn dup_to(descriptor: BorrowedFd<'_>, number: i32) -> Result<()> {
    // SAFETY: dup2(2) takes integers; by the contract above no `OwnedFd` that is still used has the
    // number.
    check(libc::c_long::from(unsafe { libc::dup2(descriptor.as_raw_fd(), number) })).map(drop)
}

/// Closes all descriptors from 3 upwards except `kept`. Other `OwnedFd` values of this process must
/// not be used again.
pub fn close_all_but(kept: &[BorrowedFd<'_>]) {
    let mut kept: Vec<_> = kept.iter().map(|descriptor| descriptor.as_raw_fd().cast_unsigned()).collect();
    kept.sort_unstable();
    let mut first: libc::c_uint = 3;
    for number in kept.into_iter().chain([libc::c_uint::MAX]) {
        if number > first {
            // SAFETY: takes integers; by the contract above no closed descriptor is used.
            unsafe { libc::syscall(libc::SYS_close_range, first, number - 1, 0 as libc::c_uint) };
        }
        first = number.saturating_add(1).max(first);
    }
}

/// Closes all descriptors except `kept`, in a helper with its own descriptor table.
pub fn close_all_in_helper(kept: BorrowedFd<'_>) {
    let kept = kept.as_raw_fd().cast_unsigned();
    for (first, last) in [(0, kept.wrapping_sub(1)), (kept + 1, libc::c_uint::MAX)] {
        if first <= last && kept != 0 {
            // SAFETY: takes integers; the helper uses no other descriptor. The call does not fail,
            // so the shared `errno` is not written.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0 as libc::c_uint) };
        }
    }
}

/// Sets close-on-exec on all descriptors from `first` upwards.
pub fn close_descriptors_on_execute(first: u32) -> Result<()> {
    // SAFETY: takes integers; setting the flag closes no descriptor.
    match check(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) }) {
        // Older versions of gVisor lack the flag. Our process has few descriptors there, with low
        // numbers.
        Err(Errno::INVAL | Errno::NOSYS) => {
            for number in first..1024 {
                // SAFETY: as above; a number without a descriptor gives EBADF.
                unsafe { libc::fcntl(number.cast_signed(), libc::F_SETFD, libc::FD_CLOEXEC) };
            }
            Ok(())
        }
        marked => marked.map(drop),
    }
}

/// Closes all descriptors from 3 upwards, which the caller left open. Call it before this process
/// owns any descriptor.
pub fn close_inherited_descriptors() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: takes integers; at the start of the process no `OwnedFd` has a number in the range.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0 as libc::c_uint) };
}

/// Takes ownership of descriptor 0, the socket to the executor. Call it once.
pub fn take_control_descriptor() -> OwnedFd {
    // SAFETY: the executor starts the jail with its socket as standard input. No other code of this
    // process uses descriptor 0, and the jail calls this once, before anything else.
    unsafe { OwnedFd::from_raw_fd(0) }
}
