//! One function per parser that reads bytes of a box, an upload or an archive. Each must return for any input, without a
//! panic, and checks the properties that its callers rely on.

use std::io;

use ringwall_executor::fuzzing as executor;
use ringwall_jail::agent::frame::{self, FrameReader, FromAgent, MAX_FROM_AGENT, MAX_TO_AGENT, ToAgent};
use ringwall_policy::{CommandLine, CommandLists};
use ringwall_workspace::fuzzing as workspace;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All targets by name, which is also the name of the corpus directory.
pub const TARGETS: [(&str, Target); 8] = [
    ("tar", tar),
    ("pax", pax),
    ("zip", zip),
    ("entry_name", entry_name),
    ("skill_metadata", skill_metadata),
    ("command_line", command_line),
    ("agent_frames", agent_frames),
    ("egress_target", egress_target),
];

/// The entries of an image archive: tar headers, long names and pax records.
pub fn tar(bytes: &[u8]) {
    let mut archive = bytes.to_vec();
    // A mutated header would always fail its checksum.
    for header in archive.chunks_exact_mut(512).filter(|block| block.get(257..262) == Some(b"ustar")) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    }
    executor::read_archive(&archive);
}

/// The records of a pax extension header.
pub fn pax(bytes: &[u8]) {
    executor::read_pax(bytes);
}

/// The directory of an uploaded zip of skills.
pub fn zip(bytes: &[u8]) {
    workspace::read_zip(bytes);
}

/// The name of a zip entry, in UTF-8 and in an undeclared encoding such as GBK. An accepted name stays in its directory.
pub fn entry_name(bytes: &[u8]) {
    for is_utf8 in [true, false] {
        if let Some(path) = workspace::read_entry_name(bytes, is_utf8) {
            let is_inside = !path.starts_with('/') && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
            assert!(is_inside, "{path:?}");
        }
    }
}

/// The front matter of a `SKILL.md`.
pub fn skill_metadata(bytes: &[u8]) {
    workspace::read_skill_metadata(&String::from_utf8_lossy(bytes));
}

/// A shell line that is checked against the lists of commands.
pub fn command_line(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(line) = CommandLine::read(&text) {
        let _ = line.check(&CommandLists::default());
        let _ = line.files("/workspace", "/home/sandbox");
    }
}

/// Frames from the agent of a session box, in pieces of every size. All pieces give the same frames.
pub fn agent_frames(bytes: &[u8]) {
    let whole = frames(bytes, bytes.len().max(1));
    for size in [1, 7, 4096] {
        assert_eq!(frames(bytes, size), whole, "in pieces of {size} bytes");
    }
    for body in &whole {
        let _ = frame::read::<FromAgent<'_>>(body);
        let _ = frame::read::<ToAgent<'_>>(body);
    }
    let _ = FrameReader::new(MAX_TO_AGENT);
}

/// Splits bytes that arrive in pieces of `size` into frames, up to the first error.
fn frames(bytes: &[u8], size: usize) -> Vec<Vec<u8>> {
    let (mut reader, mut found) = (FrameReader::new(MAX_FROM_AGENT), Vec::new());
    for piece in bytes.chunks(size) {
        let mut rest = piece;
        while !rest.is_empty() {
            let space = reader.space();
            let count = space.len().min(rest.len());
            space[..count].copy_from_slice(&rest[..count]);
            reader.filled(count);
            rest = &rest[count..];
            loop {
                match reader.take() {
                    Ok(Some(body)) => found.push(body.to_vec()),
                    Ok(None) => break,
                    Err(_) => return found,
                }
            }
        }
    }
    found
}

/// The request line of a box to the egress proxy: method, blank, target. An accepted host reads as itself again.
pub fn egress_target(bytes: &[u8]) {
    if let Some((host, again)) = executor::read_egress_target(bytes) {
        assert_eq!(host, again);
    }
}

/// Runs a target on the files named by the arguments.
pub fn run_files(target: Target) -> io::Result<()> {
    std::env::args_os().skip(1).try_for_each(|path| {
        target(&std::fs::read(path)?);
        Ok(())
    })
}
