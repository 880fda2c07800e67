//! A word in a file of the data directory that only the server's own user can read.

use std::io::{Read, Write};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

const LONGEST: u64 = 4096;

/// Nothing when there is no file, or nothing in it.
pub(crate) fn read(path: &Path) -> std::io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    std::fs::File::from(file).take(LONGEST).read_to_string(&mut text)?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// When this returns, it is on disk.
pub(crate) fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let private = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, private)?;
    rustix::fs::fchmod(&file, private)?;
    let mut file = std::fs::File::from(file);
    writeln!(file, "{text}").and_then(|()| file.sync_all())
}
