//! Signals all processes of a session, found in /proc.
//!
//! A process leaves its session only by setsid(2). Such a process no longer belongs to the command
//! and lives until the box ends. The list is a snapshot, so killing a session repeats until it is
//! empty.

use rustix::fs::{Dir, Mode, OFlags};
use rustix::process::{Pid, Signal};

/// Maximum number of passes. Only processes forked during a pass survive it, so few passes suffice.
const MAX_PASSES: u32 = 32;

/// Sends a signal to every process of a session. SIGKILL is repeated until no process is found, up
/// to [`MAX_PASSES`] times.
pub(crate) fn signal_session(leader: Pid, number: i32) {
    let Some(signal) = Signal::from_named_raw(number) else { return };
    let passes = if number == libc::SIGKILL { MAX_PASSES } else { 1 };
    for _ in 0..passes {
        let found = find(leader);
        for process in &found {
            let _ = rustix::process::kill_process(*process, signal);
        }
        if found.is_empty() {
            break;
        }
    }
}

fn find(leader: Pid) -> Vec<Pid> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listing) = rustix::fs::open(c"/proc", flags, Mode::empty()).and_then(Dir::new) else { return Vec::new() };
    let numbers = listing.flatten().filter_map(|entry| Pid::from_raw(entry.file_name().to_str().ok()?.parse().ok()?));
    numbers.filter(|process| is_in_session(*process, leader)).collect()
}

fn is_in_session(process: Pid, leader: Pid) -> bool {
    let mut text = [0; 1024];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(format!("/proc/{}/stat", process.as_raw_nonzero()), flags, Mode::empty()) else {
        return false;
    };
    let Ok(count) = rustix::io::read(&file, &mut text) else { return false };
    session(&text[..count]) == Some(leader.as_raw_nonzero().get())
}

/// Session id in a line of /proc/PID/stat; `None` for a zombie. The process name in parentheses may
/// contain any byte, including parentheses.
fn session(line: &[u8]) -> Option<i32> {
    let end = line.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(&line[end + 1..]).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let session = fields.nth(2)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_name_cannot_fake_session() {
        assert_eq!(session(b"7 (sh) S 1 7 42 0 -1 4194560"), Some(42));
        assert_eq!(session(b"7 (a) S 1 7 41 0) R 1 7 42 0 -1"), Some(42));
        assert_eq!(session(b"7 (\xff)) S 1 7 42 0"), Some(42));
        assert_eq!(session(b"7 (sh) Z 1 7 42 0 -1"), None);
        for short in [&b""[..], b"7", b"7 (sh)", b"7 (sh) S", b"7 (sh) S 1 7", b"7 (sh) S 1 7 x"] {
            assert_eq!(session(short), None);
        }
    }
}
