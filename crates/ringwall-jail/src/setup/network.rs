//! The box's network namespace, made beside everything else.
//!
//! It is by far the most expensive part of a box and nothing else depends on it. Where PID 1 has to wait for its plan
//! it makes it meanwhile; otherwise a helper does, on another processor, while PID 1 builds the root. The helper shares
//! PID 1's memory and descriptors (a copy would cost as much as it saves), touches nothing of them but its own stack
//! and one word, makes system calls only, and is gone before PID 1 gives up its privileges.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Pid, WaitOptions};
use rustix::thread::UnshareFlags;

use crate::processor;
use crate::protocol::report::{Failure, Report, Step};
use crate::protocol::wire;
use crate::sys::{self, Share};

/// Connections that wait to be accepted.
const WAITING: i32 = 64;

/// The smallest, the first and the largest receive buffer of a TCP socket, in bytes. The machine's own are usually 4096,
/// 131072 and 6 MiB or more.
const RECEIVE_BUFFERS: &[u8] = b"4096 65536 131072";

/// A namespace in the making.
pub(crate) enum Network {
    /// By a helper.
    Beside(Pid),
    Entered,
}

/// Whether there is time to make it before the plan comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Haste {
    /// No: the plan is on its way.
    Beside,
    /// Yes: whoever asked for the box has only just begun to think.
    First,
    /// It is there: PID 1 was born in it.
    Done,
}

/// The number of a socket in the new namespace; negative, an error's.
static MADE: AtomicI32 = AtomicI32::new(-Errno::INTR.raw_os_error());

/// Starts making it.
pub(crate) fn begin(haste: Haste) -> std::result::Result<Network, Failure> {
    let begun = match haste {
        Haste::Beside => sys::start_helper(make, Share::MemoryAndDescriptors).map(|helper| {
            processor::move_aside(helper);
            Network::Beside(helper)
        }),
        Haste::First => open().map(|_| Network::Entered),
        Haste::Done => Ok(Network::Entered),
    };
    begun.map_err(fail)
}

fn fail(errno: Errno) -> Failure {
    Failure::new(Step::MakeNamespaces, "(network)", errno)
}

impl Network {
    /// Waits until it is made, and moves this process into it.
    pub(crate) fn enter(self) -> std::result::Result<(), Failure> {
        let Network::Beside(helper) = self else { return Ok(()) };
        rustix::process::waitpid(Some(helper), WaitOptions::empty()).map_err(fail)?;
        let socket = sys::take_descriptor(MADE.load(Ordering::Acquire)).map_err(fail)?;
        sys::enter_network_of(socket.as_fd()).map_err(fail)
    }
}

/// The helper's whole life.
fn make() {
    let word = match open() {
        Ok(socket) => sys::give_descriptor(socket),
        Err(errno) => -errno.raw_os_error(),
    };
    MADE.store(word, Ordering::Release);
}

/// Moves the caller into a new namespace with a loopback interface, and gives a socket in it.
pub(crate) fn open() -> Result<OwnedFd> {
    sys::unshare(UnshareFlags::NEWNET)?;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sys::bring_loopback_up(socket.as_fd())?;
    limit_receive_buffers();
    Ok(socket)
}

/// Halves what an unread TCP connection holds, and keeps it from growing: on cgroup version 1 the kernel exceeds the
/// limit of TCP memory by a whole receive buffer for each connection. Where /proc/sys cannot be written the limit still
/// holds, with a larger excess.
fn limit_receive_buffers() {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(c"/proc/sys/net/ipv4/tcp_rmem", flags, Mode::empty()) {
        let _ = rustix::io::write(file, RECEIVE_BUFFERS);
    }
}

/// Makes a socket that listens on the loopback of this process's namespace, and hands it to the executor. A socket stays in
/// the namespace in which it was made, so whoever has it answers the box without a process of ours in there; and with
/// whoever has it, the way out is gone. This process keeps nothing of it.
pub(crate) fn open_way_out(port: u16, control: &OwnedFd) -> std::result::Result<(), Failure> {
    let hand_over = || -> Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
        rustix::net::listen(&listener, WAITING)?;
        wire::send(control, &Report::WayOut, &[listener.as_fd()])
    };
    hand_over().map_err(|errno| Failure::new(Step::EnterNetwork, "(the way out)", errno))
}
