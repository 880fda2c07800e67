//! The default data directory.

use std::path::PathBuf;

use crate::cli::message::Message;

/// The value of `--data` as an absolute path, or the default for this user.
pub(crate) fn directory(flag: Option<PathBuf>) -> Result<PathBuf, Message> {
    if let Some(directory) = flag {
        return std::path::absolute(&directory)
            .map_err(|error| Message::new(format!("{}: {error}", directory.display())));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/ringwall"));
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|base| base.is_absolute()).or_else(home);
    base.map(|base| base.join("ringwall")).ok_or_else(|| {
        Message::new("no default data directory: neither HOME nor XDG_DATA_HOME is set")
            .with_hint("choose a directory with --data DIR or RINGWALL_DATA")
    })
}
