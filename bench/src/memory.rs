//! The memory of a box besides its command: of `ringwall run`, where one process is jail and init,
//! and of a server, where one spawner is the parent of all boxes and each box has an init.
//!
//! Each page counts once even if both map it; pages are identified by frame numbers, which only
//! root can read. The peak of memory that was released is added, so the figure is an upper bound.
//! Shown beside it: the peak of each process, and the private memory, which is the cost of one more
//! box.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::server::Server;

const WITHIN: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(20);
const PAGE: u64 = 4096;
/// One page in the kernel's map of them: whether it is there, and in which frame.
const ENTRY: usize = 8;
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// In kilobytes, as the kernel gives them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) peak_resident: u64,
    /// Peak with each page counted once.
    pub(crate) peak: u64,
    pub(crate) private: u64,
}

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) of_a_run: Footprint,
    pub(crate) jail: Footprint,
    pub(crate) init: Footprint,
    pub(crate) together: Footprint,
}

/// One process: what the kernel says about it, and the frames of its pages.
struct SessionBox {
    peak: u64,
    now: u64,
    private: u64,
    frames: BTreeSet<u64>,
}

impl Memory {
    fn of(run: &SessionBox, jail: &SessionBox, init: &SessionBox) -> Self {
        Self {
            of_a_run: footprint(&[run]),
            jail: footprint(&[jail]),
            init: footprint(&[init]),
            together: footprint(&[jail, init]),
        }
    }
}

fn footprint(processes: &[&SessionBox]) -> Footprint {
    let frames: BTreeSet<u64> = processes.iter().flat_map(|process| process.frames.iter().copied()).collect();
    let given_back: u64 = processes.iter().map(|process| process.peak.saturating_sub(process.now)).sum();
    Footprint {
        peak_resident: processes.iter().map(|process| process.peak).sum(),
        peak: frames.len() as u64 * PAGE / 1024 + given_back,
        private: processes.iter().map(|process| process.private).sum(),
    }
}

pub(crate) fn measure(ringwall: &Path) -> Result<Memory, Error> {
    let run = measure_run(ringwall)?;
    let server = Server::start(ringwall, None)?;
    server.begin("sleep 30")?;
    // The server's one child is the jail; its only one, while one box runs, is that box's init.
    let (jail, init) = comes(server.id(), || {
        let jail = parents(server.id()).next()?;
        Some((jail, parents(jail).next()?))
    })?;
    Ok(Memory::of(&run, &SessionBox::read(jail)?, &SessionBox::read(init)?))
}

fn measure_run(ringwall: &Path) -> Result<SessionBox, Error> {
    let mut run = Command::new(ringwall)
        .args(["run", "--", "sleep", "30"])
        .stdin(Stdio::null())
        .spawn()
        .map_err(|source| Error::Start { program: ringwall.display().to_string(), source })?;
    let init = comes(run.id(), || parents(run.id()).next()).and_then(SessionBox::read);
    // Killing the client ends its box.
    let _ = run.kill();
    let _ = run.wait();
    init
}

/// The private memory of a process, in kilobytes.
pub(crate) fn private_of(process: u32) -> Result<u64, Error> {
    SessionBox::read(process).map(|resident| resident.private)
}

/// The box is complete when its command runs.
fn comes<T>(process: u32, look: impl Fn() -> Option<T>) -> Result<T, Error> {
    let began = Instant::now();
    loop {
        match look() {
            Some(found) => return Ok(found),
            None if began.elapsed() > WITHIN => return Err(Error::Process { process, what: "its boxes" }),
            None => std::thread::sleep(GLANCE),
        }
    }
}

/// The children that have children themselves.
fn parents(process: u32) -> impl Iterator<Item = u32> {
    children(process).into_iter().filter(|child| !children(*child).is_empty())
}

pub(crate) fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

impl SessionBox {
    fn read(process: u32) -> Result<Self, Error> {
        let directory = format!("/proc/{process}");
        let directory = Path::new(&directory);
        let read = |file: &'static str, key: &'static str| {
            let text = std::fs::read_to_string(directory.join(file)).unwrap_or_default();
            kilobytes(&text, key).ok_or(Error::Process { process, what: key })
        };
        Ok(Self {
            peak: read("status", "VmHWM")?,
            now: read("status", "VmRSS")?,
            private: read("smaps_rollup", "Private_Clean")? + read("smaps_rollup", "Private_Dirty")?,
            frames: frames(directory).ok_or(Error::Process { process, what: "the frames of the pages (as root)" })?,
        })
    }
}

/// `None` without permission.
fn frames(directory: &Path) -> Option<BTreeSet<u64>> {
    let maps = std::fs::read_to_string(directory.join("maps")).ok()?;
    let pages = File::open(directory.join("pagemap")).ok()?;
    let mut frames = BTreeSet::new();
    for line in maps.lines().filter(|line| !line.ends_with("[vsyscall]")) {
        let (begin, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
        let [begin, end] = [begin, end].map(|text| u64::from_str_radix(text, 16).unwrap_or_default() / PAGE);
        let mut entries = vec![0; usize::try_from(end.checked_sub(begin)?).ok()? * ENTRY];
        pages.read_exact_at(&mut entries, begin * ENTRY as u64).ok()?;
        let entries = entries.chunks_exact(ENTRY).filter_map(|entry| Some(u64::from_ne_bytes(entry.try_into().ok()?)));
        frames.extend(entries.filter(|entry| entry & PRESENT != 0).map(|entry| entry & FRAME));
    }
    // Without root every frame number reads as 0.
    (frames.len() > 1).then_some(frames)
}

/// The number in a line like `VmHWM:      1234 kB`.
fn kilobytes(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_whole() {
        let text = "Rss:  900 kB\nPss:  412 kB\nPss_Anon: 100 kB\n";
        assert_eq!(kilobytes(text, "Pss"), Some(412));
        assert_eq!(kilobytes(text, "Pss_Anon"), Some(100));
        assert_eq!(kilobytes(text, "VmHWM"), None);
    }

    #[test]
    fn a_page_of_two_counts_once() {
        let resident =
            |now, frames: &[u64]| SessionBox { peak: 40, now, private: 4, frames: frames.iter().copied().collect() };
        let memory = Memory::of(&resident(40, &[9]), &resident(40, &[1, 2, 3]), &resident(36, &[3, 4]));
        assert_eq!(memory.together, Footprint { peak_resident: 80, peak: 4 * 4 + 4, private: 8 });
        assert_eq!(memory.jail.peak, 12);
    }
}
