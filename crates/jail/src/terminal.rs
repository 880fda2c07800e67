//! A terminal of the box's own: two ends, of which one is for whoever looks at it from outside.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Result;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::plan::WindowSize;

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

/// Tells the kernel, which tells whoever is at the terminal.
pub(crate) fn resize(outer: impl AsFd, size: WindowSize) -> Result<()> {
    let window = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(outer, window)
}
