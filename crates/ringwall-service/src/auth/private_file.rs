//! One-line secret files in the data directory, readable only by the server's user.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

const MAX_LEN: u64 = 4096;

/// `None` if the file is missing or empty.
pub(crate) fn read(path: &Path) -> std::io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let mut text = String::new();
    std::fs::File::from(file).take(MAX_LEN).read_to_string(&mut text)?;
    let text = text.trim();
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

/// Creates the file atomically with its full content; an existing file is not changed. Synced to
/// disk on return.
pub(crate) fn create(path: &Path, text: &str) -> std::io::Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let temporary = path.with_added_extension(format!("{}.{number}", std::process::id()));
    let linked = write(&temporary, text).and_then(|()| match std::fs::hard_link(&temporary, path) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        linked => linked,
    });
    let removed = std::fs::remove_file(&temporary);
    linked.and(removed)?;
    path.parent().map_or(Ok(()), |directory| std::fs::File::open(directory)?.sync_all())
}

/// Overwrites the file. Synced to disk on return.
pub(crate) fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let private = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(CWD, path, flags, private)?;
    rustix::fs::fchmod(&file, private)?;
    let mut file = std::fs::File::from(file);
    writeln!(file, "{text}").and_then(|()| file.sync_all())
}
