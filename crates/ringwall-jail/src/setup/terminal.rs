//! Opens a pseudo-terminal: master for the server, slave for the command.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use rustix::time::Timespec;

use crate::protocol::plan::WindowSize;

/// The line discipline delivers a line at once; a kernel that takes longer does not implement it.
const ECHO_TIMEOUT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// Master, and the slave that becomes the command's standard streams.
pub(crate) fn open(size: WindowSize) -> Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let outer = rustix::fs::open(c"/dev/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&outer)?;
    resize(&outer, size)?;
    let inner = rustix::pty::ioctl_tiocgptpeer(&outer, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        // Kernels without TIOCGPTPEER: open the slave by name.
        .or_else(|_| rustix::fs::open(rustix::pty::ptsname(&outer, Vec::new())?, flags, Mode::empty()))?;
    Ok((outer, inner))
}

/// Checks that Ctrl-C works. Some kernels (gVisor until recently) do not interpret the interrupt
/// character; a command on such a terminal could not be interrupted.
pub(crate) fn interrupt_works() -> Result<bool> {
    const INTERRUPT_THEN_ENTER: &[u8] = b"\x03\n";
    let (outer, inner) = open(WindowSize { rows: 24, columns: 80 })?;
    rustix::io::write(&outer, INTERRUPT_THEN_ENTER)?;
    // The interrupt character discards the line, so only the empty line of Enter remains.
    let mut line = [0; 16];
    let mut readable = [PollFd::new(&inner, PollFlags::IN)];
    let has_line = rustix::io::retry_on_intr(|| rustix::event::poll(&mut readable, Some(&ECHO_TIMEOUT)))? > 0;
    let count = if has_line { rustix::io::read(&inner, &mut line)? } else { 0 };
    Ok(line[..count] == *b"\n")
}

/// The kernel then sends SIGWINCH to the foreground process group.
pub(crate) fn resize(outer: impl AsFd, size: WindowSize) -> Result<()> {
    let window = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(outer, window)
}
