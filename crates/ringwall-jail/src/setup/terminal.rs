//! A terminal of the box's own: two ends, of which one is for whoever looks at it from outside.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use rustix::time::Timespec;

use crate::protocol::plan::WindowSize;

/// A line that was written is there at once; a kernel that takes so long has none.
const SOON: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// The outer end, and the inner one that becomes a command's three streams.
pub(crate) fn open(size: WindowSize) -> Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let outer = rustix::fs::open(c"/dev/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&outer)?;
    resize(&outer, size)?;
    let inner = rustix::pty::ioctl_tiocgptpeer(&outer, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
        // Not every kernel has that call; the other way is by its name.
        .or_else(|_| rustix::fs::open(rustix::pty::ptsname(&outer, Vec::new())?, flags, Mode::empty()))?;
    Ok((outer, inner))
}

/// Whether keys do here what they are for. Not every kernel's terminals know the one that interrupts (gVisor's did not for
/// long): there it is a character like any other, and what runs at one could not be stopped from it.
pub(crate) fn knows_keys() -> Result<bool> {
    const INTERRUPT_AND_ENTER: &[u8] = b"\x03\n";
    let (outer, inner) = open(WindowSize { rows: 24, columns: 80 })?;
    rustix::io::write(&outer, INTERRUPT_AND_ENTER)?;
    // Where the key is known nothing is left of it but the empty line.
    let mut line = [0; 16];
    let mut readable = [PollFd::new(&inner, PollFlags::IN)];
    let is_there = rustix::io::retry_on_intr(|| rustix::event::poll(&mut readable, Some(&SOON)))? > 0;
    let count = if is_there { rustix::io::read(&inner, &mut line)? } else { 0 };
    Ok(line[..count] == *b"\n")
}

/// Tells the kernel, which tells whoever is at the terminal.
pub(crate) fn resize(outer: impl AsFd, size: WindowSize) -> Result<()> {
    let window = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(outer, window)
}
