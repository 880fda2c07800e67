//! The kernel calls that rustix does not have, each behind a safe function.
//!
//! This is the only file in the workspace that contains `unsafe`. It holds no logic: a function is one
//! system call with its arguments made valid by Rust types, and says why the call is sound. Everything
//! here assumes what the jail guarantees from its first instruction: one thread, no other user of the heap.
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

/// Not taken from libc, whose constant overflows its type.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// One instruction of a classic BPF program, laid out as the kernel reads it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BpfInstruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub operand: u32,
}

/// What a fork returns, on either side.
#[derive(Debug)]
pub enum Fork<T> {
    Child,
    Parent(T),
}

/// Turns a raw return value into rustix's error type.
fn check(value: libc::c_long) -> Result<libc::c_long> {
    if value >= 0 {
        return Ok(value);
    }
    let code = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Err(Errno::from_raw_os_error(code))
}

/// Copies this process into new namespaces and, where a cgroup v2 directory is given, into that cgroup.
pub fn clone_into_namespaces(flags: u64, cgroup: Option<BorrowedFd<'_>>) -> Result<Fork<Pid>> {
    // SAFETY: `clone_args` is plain integers, for which all-zero bytes are a valid value.
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = flags;
    args.exit_signal = libc::SIGCHLD as u64;
    if let Some(directory) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = directory.as_raw_fd() as u64;
    }
    // SAFETY: no stack is given, so the child goes on with a copy of this one exactly as after fork(2); the
    // process has one thread, so no lock is held in the copy. `args` outlives the call.
    let value = check(unsafe { libc::syscall(libc::SYS_clone3, &raw mut args, size_of::<libc::clone_args>()) })?;
    Ok(Pid::from_raw(value as RawPid).map_or(Fork::Child, Fork::Parent))
}

/// Starts a child that shares our memory, while we stand still, until it executes something or ends: nothing is
/// copied, which saves both processes hundreds of page faults. `child` must do one of the two.
pub fn start_sharing_memory(child: &mut dyn FnMut()) -> Result<Pid> {
    const STACK: usize = 256 * 1024;
    extern "C" fn enter(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `argument` points to the variable below, whose owner stands still until this process is gone.
        let child = unsafe { &mut *argument.cast::<&mut dyn FnMut()>() };
        child();
        libc::EXIT_FAILURE
    }
    let mut stack = vec![0_u128; STACK / size_of::<u128>()];
    let mut child = child;
    let argument = ptr::from_mut(&mut child).cast::<libc::c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: the stack is 16-byte aligned, grows down from the end that is passed, and outlives the child's use of
    // it, because CLONE_VFORK suspends us until then; for the same reason nobody else touches what the child does.
    // Descriptors, signal actions and the directory are the child's own copies.
    let value = unsafe { libc::clone(enter, stack.as_mut_ptr_range().end.cast(), flags, argument) };
    Pid::from_raw(check(libc::c_long::from(value))? as RawPid).ok_or(Errno::CHILD)
}

/// What a helper has in common with us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    MemoryAndDescriptors,
    MemoryAlone,
}

/// Starts a process that shares our memory and runs beside us, on a stack of its own. What it runs must be system calls
/// that do not go through the C library (whose `errno` is ours), and must not allocate. Its stack is never given back, so
/// that it does not matter who ends first.
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
    // SAFETY: the stack is 16-byte aligned, grows down from the end that is passed, and stays for ever. The helper runs
    // only what the contract above allows, so neither of us sees the other's half-done changes.
    let value = unsafe { libc::clone(enter, top.cast_mut().cast(), flags, work as *mut libc::c_void) };
    let value = check(libc::c_long::from(value))?;
    Pid::from_raw(value as RawPid).ok_or(Errno::CHILD)
}

/// The strings that the kernel put onto our stack: arguments first, then the environment.
static ARGUMENTS: AtomicPtr<*mut libc::c_char> = AtomicPtr::new(ptr::null_mut());

/// The C library calls this before `main` with what the kernel gave us.
#[used]
#[unsafe(link_section = ".init_array")]
static REMEMBER_ARGUMENTS: extern "C" fn(libc::c_int, *mut *mut libc::c_char) = {
    extern "C" fn remember(_count: libc::c_int, arguments: *mut *mut libc::c_char) {
        ARGUMENTS.store(arguments, Ordering::Relaxed);
    }
    remember
};

/// Wipes the arguments and the environment with which this program was started, and shows `name` in their place.
/// For a copy of a process that goes on without them.
pub fn forget_arguments(name: &str) {
    let mut pointers = ARGUMENTS.load(Ordering::Relaxed);
    if pointers.is_null() {
        return;
    }
    // SAFETY: the kernel's lists are intact: nobody in this program changes them, and the copy has one thread. It puts
    // the strings one behind the other, so the name stays within them.
    unsafe {
        let start = *pointers;
        let mut end = start;
        // Two lists of pointers, arguments and environment, each with a null pointer at its end.
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

/// Leaves at once: no destructors, no buffers, no handlers.
pub fn exit_now(code: i32) -> ! {
    // SAFETY: _exit(2) has no preconditions.
    unsafe { libc::_exit(code) }
}

/// execve(2). Returns only when it failed.
pub fn execute(path: &CStr, argv: &[CString], env: &[CString]) -> Errno {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect()
    };
    let (argv, env) = (pointers(argv), pointers(env));
    // SAFETY: both arrays end in a null pointer and point to NUL-terminated strings that outlive the call.
    match check(libc::c_long::from(unsafe { libc::execve(path.as_ptr(), argv.as_ptr(), env.as_ptr()) })) {
        Ok(_) => Errno::IO,
        Err(error) => error,
    }
}

/// Makes every signal act as it does by default; an ignored one (Rust ignores SIGPIPE) would outlive execve, and ignored
/// ends of children would make us deaf to them.
pub fn reset_signals() {
    // The kernel's own structure: handler, flags, restorer, mask. All zero is the default action. The C library
    // would refuse the two signals that it keeps for itself, and a caller's library may have left those ignored.
    let default = [0_u64; 4];
    for number in 1..=64 {
        let no_old = ptr::null_mut::<u64>();
        // SAFETY: the kernel reads 32 bytes from `default` and installs no code; refusals (SIGKILL, SIGSTOP) are
        // harmless.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, number, default.as_ptr(), no_old, size_of::<u64>()) };
    }
}

/// Plain Linux again: a caller may have switched off the randomisation of addresses.
pub fn reset_personality() {
    // SAFETY: takes an integer.
    unsafe { libc::personality(0) };
}

/// Blocks every signal, or none.
pub fn set_signal_mask(blocked: bool) {
    // SAFETY: the call only reads the set.
    unsafe { libc::sigprocmask(libc::SIG_SETMASK, ptr::from_ref(&signals(blocked)), ptr::null_mut()) };
}

/// The set of every signal, or of none.
fn signals(all: bool) -> libc::sigset_t {
    let fill = if all { libc::sigfillset } else { libc::sigemptyset };
    // SAFETY: `sigset_t` is plain integers; the call fills it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        fill(&raw mut set);
        set
    }
}

/// A descriptor from which every (blocked) signal can be read with [`read_signal`].
pub fn signal_descriptor() -> Result<OwnedFd> {
    descriptor_of(&signals(true))
}

/// Blocks the signal that a child has ended, and gives a descriptor from which it can be read.
pub fn child_descriptor() -> Result<OwnedFd> {
    let mut set = signals(false);
    // SAFETY: the calls write to the set and read it.
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

/// Takes one waiting signal away.
pub fn read_signal(descriptor: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: `signalfd_siginfo` is plain integers.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    // SAFETY: the buffer is `info`, of exactly the size given.
    let value = unsafe { libc::read(descriptor.as_raw_fd(), ptr::from_mut(&mut info).cast(), size_of_val(&info)) };
    check(value as libc::c_long).map(drop)
}

/// Signals every other process of this process-id namespace. PID 1 itself is spared by the kernel.
pub fn signal_everyone(signal: i32) -> Result<()> {
    // SAFETY: kill(2) takes integers.
    check(libc::c_long::from(unsafe { libc::kill(-1, signal) })).map(drop)
}

/// Processor time and the largest resident set of all children waited for.
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
    in_words(&usage)
}

/// wait4(2) for any child, without waiting: which has ended, how, and what it and those that it waited for have used.
pub fn reap() -> Option<(Pid, ExitStatus, ChildrenUsage)> {
    let mut status: libc::c_int = 0;
    // SAFETY: `rusage` is plain integers, for which all-zero bytes are a valid value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to the variables above, which the call fills.
    let value = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    Some((Pid::from_raw(value.max(0))?, ExitStatus::from_raw(status), in_words(&usage)))
}

/// setsid(2). Not every kernel (gVisor's) answers with the session's number, so the answer is not read.
pub fn begin_session() -> Result<()> {
    // SAFETY: takes nothing and concerns no memory.
    check(libc::c_long::from(unsafe { libc::setsid() })).map(drop)
}

fn in_words(usage: &libc::rusage) -> ChildrenUsage {
    let microseconds = |t: libc::timeval| t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64;
    ChildrenUsage {
        cpu_microseconds: microseconds(usage.ru_utime) + microseconds(usage.ru_stime),
        largest_resident_bytes: usage.ru_maxrss as u64 * 1024,
    }
}

/// The processor time that a living process has taken.
pub fn time_of(process: Pid) -> Result<u64> {
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

/// Back to ordinary scheduling at ordinary priority, whatever our caller runs with.
pub fn schedule_ordinarily() -> Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure outlives the call, which only reads it.
    check(libc::c_long::from(unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) }))?;
    const WHO_PROCESS: libc::c_int = 1;
    // SAFETY: takes integers: this process, no I/O class of its own.
    check(unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, 0) })?;
    if rustix::process::getpriority_process(None)? < 0 {
        rustix::process::setpriority_process(None, 0)?;
    }
    Ok(())
}

/// Which mounts a change reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    One,
    AllBelow,
}

/// mount_setattr(2) on the mount that `tree` refers to; `owners` is a user namespace whose mapping the mount
/// takes on. The mount becomes private as well: a copy of a shared mount would otherwise show what is mounted on the original
/// later.
pub fn set_mount_attributes(
    tree: BorrowedFd<'_>,
    reach: Reach,
    set: u64,
    owners: Option<BorrowedFd<'_>>,
) -> Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set | if owners.is_some() { libc::MOUNT_ATTR_IDMAP } else { 0 },
        attr_clr: 0,
        propagation: libc::MS_PRIVATE,
        userns_fd: owners.map_or(0, |fd| fd.as_raw_fd() as u64),
    };
    let flags = libc::AT_EMPTY_PATH | if reach == Reach::AllBelow { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a valid empty string and the structure has the size that is passed with it.
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

/// Takes one capability out of the bounding set for good; EINVAL when the kernel has no capability of that number.
pub fn drop_bounding_capability(number: u32) -> Result<()> {
    // SAFETY: prctl(2) with this option takes an integer.
    check(libc::c_long::from(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) }))
        .map(drop)
}

/// Installs a seccomp filter for this process and all its children.
pub fn install_filter(program: &[BpfInstruction]) -> Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| Errno::TOOBIG)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast::<libc::sock_filter>().cast_mut() };
    // SAFETY: `BpfInstruction` has the layout of `sock_filter`; the kernel copies and checks the program.
    check(unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0 as libc::c_ulong, &raw const program)
    })
    .map(drop)
}

/// The kernel's Landlock version, or the reason why there is none.
pub fn landlock_version() -> Result<u32> {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: with this flag the call takes no structure and only returns a number.
    let value = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0_usize, VERSION) };
    check(value).map(|version| version as u32)
}

/// Restricts this process by a set of rules, which it needs no privilege for once it can gain none.
pub fn enter_landlock(rules: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: takes a descriptor, which is open, and a number.
    check(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0_u32) }).map(drop)
}

/// Brings the loopback interface of this network namespace up.
pub fn bring_loopback_up(socket: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: `ifreq` is plain integers; the name is written within its bounds and stays NUL-terminated.
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

/// unshare(2) of anything but descriptors. No C library call, because a helper makes it.
pub fn unshare(what: UnshareFlags) -> Result<()> {
    if what.intersects(UnshareFlags::FILES) {
        return Err(Errno::INVAL);
    }
    // SAFETY: only a thread with descriptors of its own, refused above, would see others than the rest of us.
    unsafe { rustix::thread::unshare_unsafe(what) }
}

/// Moves this process into the network namespace of a socket.
pub fn enter_network_of(socket: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: this operation takes no argument and returns a new descriptor.
    let value = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGSKNS as libc::Ioctl) };
    let namespace = take_descriptor(check(libc::c_long::from(value))? as libc::c_int)?;
    rustix::thread::move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
}

/// Takes over a descriptor by its number, or the error that a negative one stands for. Only for numbers that were
/// handed to the caller as its own.
pub fn take_descriptor(number: i32) -> Result<OwnedFd> {
    if number < 0 {
        return Err(Errno::from_raw_os_error(-number));
    }
    // SAFETY: by the contract above nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The number of a descriptor that somebody else will take over.
pub fn give_descriptor(descriptor: OwnedFd) -> i32 {
    descriptor.into_raw_fd()
}

/// Gives `descriptor` a number that a program expects: standard input, output or error, or, in a child that is about to
/// execute one, any other. Whatever had that number before must not be used again.
pub fn place_descriptor(descriptor: BorrowedFd<'_>, number: i32) -> Result<()> {
    // SAFETY: dup2(2) takes integers; by the contract above no `OwnedFd` that is still used has the number.
    check(libc::c_long::from(unsafe { libc::dup2(descriptor.as_raw_fd(), number) })).map(drop)
}

/// Closes everything from 3 upwards but these. For a process that goes on with nothing else: whatever `OwnedFd` it has
/// besides must not be used again.
pub fn close_all_but(kept: &[BorrowedFd<'_>]) {
    let mut kept: Vec<_> = kept.iter().map(|descriptor| descriptor.as_raw_fd().cast_unsigned()).collect();
    kept.sort_unstable();
    let mut first: libc::c_uint = 3;
    for number in kept.into_iter().chain([libc::c_uint::MAX]) {
        if number > first {
            // SAFETY: takes integers; by the contract above nobody uses what is closed.
            unsafe { libc::syscall(libc::SYS_close_range, first, number - 1, 0 as libc::c_uint) };
        }
        first = number.saturating_add(1).max(first);
    }
}

/// Closes everything but this, in a helper with descriptors of its own.
pub fn close_everything_but(kept: BorrowedFd<'_>) {
    let kept = kept.as_raw_fd().cast_unsigned();
    for (first, last) in [(0, kept.wrapping_sub(1)), (kept + 1, libc::c_uint::MAX)] {
        if first <= last && kept != 0 {
            // SAFETY: takes integers; a helper uses no other descriptor. It does not fail, so `errno` is left alone.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0 as libc::c_uint) };
        }
    }
}

/// Marks every descriptor from this number upwards to be closed by execve.
pub fn close_descriptors_on_execute(first: u32) -> Result<()> {
    // SAFETY: takes integers; the flag only sets a bit, so no descriptor is closed under its owner.
    match check(unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) }) {
        // Not every gVisor knows the flag. There our process has few, one after the other.
        Err(Errno::INVAL | Errno::NOSYS) => {
            for number in first..1024 {
                // SAFETY: as above; it does not matter where there is none.
                unsafe { libc::fcntl(number.cast_signed(), libc::F_SETFD, libc::FD_CLOEXEC) };
            }
            Ok(())
        }
        marked => marked.map(drop),
    }
}

/// Closes every descriptor from 3 upwards: whatever our caller left open when it started us is no business of a box.
/// Called before the jail owns any descriptor.
pub fn close_inherited_descriptors() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: takes integers; at the jail's first instruction no `OwnedFd` of this process lies in the range.
    unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, 0 as libc::c_uint) };
}

/// The descriptor on which the executor's messages arrive, taken over once.
pub fn take_control_descriptor() -> OwnedFd {
    // SAFETY: the executor starts the jail with its socket as standard input; nothing else in this process
    // uses descriptor 0, and the jail calls this once, first of all.
    unsafe { OwnedFd::from_raw_fd(0) }
}
