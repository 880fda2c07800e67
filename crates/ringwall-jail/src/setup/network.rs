//! Creates the box's network namespace concurrently with the other steps.
//!
//! It is the most expensive part of a box, and no other step depends on it. If PID 1 has to wait
//! for its plan, it creates the namespace meanwhile. Otherwise a helper process does, on another
//! CPU, while PID 1 builds the root. The helper shares PID 1's memory and descriptors, because
//! copying them would cost as much as it saves. It writes only its stack and [`RESULT`], makes only
//! system calls, and has ended before PID 1 drops its privileges.

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

/// Backlog of the proxy socket.
const PROXY_BACKLOG: i32 = 64;

/// Minimum, default and maximum receive buffer of a TCP socket in bytes (tcp_rmem). The kernel's
/// values are usually 4096, 131072 and at least 6 MiB.
const RECEIVE_BUFFERS: &[u8] = b"4096 65536 131072";

/// State of the network namespace.
pub(crate) enum Network {
    /// A helper creates it.
    InHelper(Pid),
    Entered,
}

/// When the namespace is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NetworkSetup {
    /// Now, in a helper: the plan is on its way.
    InHelper,
    /// Now, by PID 1 itself: the executor sends the plan later.
    Inline,
    /// Not at all: PID 1 was cloned into an existing one.
    Existing,
}

/// Result of the helper: descriptor number of a socket in the new namespace, or a negative errno.
static RESULT: AtomicI32 = AtomicI32::new(-Errno::INTR.raw_os_error());

/// Starts creating it.
pub(crate) fn start(network_setup: NetworkSetup) -> std::result::Result<Network, Failure> {
    let network = match network_setup {
        NetworkSetup::InHelper => sys::start_helper(make, Share::MemoryAndDescriptors).map(|helper| {
            processor::move_aside(helper);
            Network::InHelper(helper)
        }),
        NetworkSetup::Inline => create().map(|_| Network::Entered),
        NetworkSetup::Existing => Ok(Network::Entered),
    };
    network.map_err(fail)
}

fn fail(errno: Errno) -> Failure {
    Failure::new(Step::MakeNamespaces, "(network)", errno)
}

impl Network {
    /// Waits for the helper and moves this process into the namespace.
    pub(crate) fn enter(self) -> std::result::Result<(), Failure> {
        let Network::InHelper(helper) = self else { return Ok(()) };
        rustix::process::waitpid(Some(helper), WaitOptions::empty()).map_err(fail)?;
        let socket = sys::take_descriptor(RESULT.load(Ordering::Acquire)).map_err(fail)?;
        sys::enter_network_of(socket.as_fd()).map_err(fail)
    }
}

/// Body of the helper.
fn make() {
    let result = match create() {
        Ok(socket) => sys::release_descriptor(socket),
        Err(errno) => -errno.raw_os_error(),
    };
    RESULT.store(result, Ordering::Release);
}

/// Moves the caller into a new namespace, brings its loopback interface up and returns a socket in
/// it.
pub(crate) fn create() -> Result<OwnedFd> {
    sys::unshare(UnshareFlags::NEWNET)?;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sys::bring_loopback_up(socket.as_fd())?;
    limit_receive_buffers();
    Ok(socket)
}

/// Reduces the initial and the maximum receive buffer. On cgroup v1 the kernel may exceed the limit
/// of TCP memory by one receive buffer per connection. If /proc/sys is not writable, only that
/// excess is larger.
fn limit_receive_buffers() {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(c"/proc/sys/net/ipv4/tcp_rmem", flags, Mode::empty()) {
        let _ = rustix::io::write(file, RECEIVE_BUFFERS);
    }
}

/// Creates a socket that listens on the loopback of this network namespace and sends it to the
/// executor. A socket stays in its namespace, so the executor can accept the box's connections
/// without a process inside. This process keeps no copy: when the executor closes the socket, the
/// box has no network access left.
pub(crate) fn open_proxy_socket(port: u16, control: &OwnedFd) -> std::result::Result<(), Failure> {
    let send_listener = || -> Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&listener, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
        rustix::net::listen(&listener, PROXY_BACKLOG)?;
        wire::send(control, &Report::ProxySocket, &[listener.as_fd()])
    };
    send_listener().map_err(|errno| Failure::new(Step::EnterNetwork, "(proxy socket)", errno))
}
