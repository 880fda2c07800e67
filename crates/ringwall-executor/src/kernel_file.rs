//! Reads small files of /proc and /sys in few calls. Their size is unknown beforehand, and the
//! kernel generates the content at each read.

use rustix::fs::{Mode, OFlags};

const CHUNK: usize = 4 * 1024;

pub(crate) fn read(path: &str) -> std::io::Result<String> {
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = Vec::new();
    loop {
        let length = text.len();
        text.resize(length + CHUNK, 0);
        let count = rustix::io::read(&file, &mut text[length..])?;
        text.truncate(length + count);
        if count == 0 {
            return String::from_utf8(text).map_err(std::io::Error::other);
        }
    }
}
