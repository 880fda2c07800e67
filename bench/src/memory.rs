//! What a box costs in memory beside its command: the jail outside it and the init inside it, of a real server.
//!
//! Three figures of each, because no single one is the truth. The proportional share divides pages by their users: the
//! program's own file is in memory once, for the server, the jail and every box. The private part is what one more box
//! really takes. The peak of resident pages counts the file's pages again in every process.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::server::Server;

const WITHIN: Duration = Duration::from_secs(10);
const GLANCE: Duration = Duration::from_millis(20);

/// In kilobytes, as the kernel gives them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Footprint {
    pub(crate) peak_resident: u64,
    pub(crate) proportional: u64,
    pub(crate) private: u64,
}

#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) jail: Footprint,
    pub(crate) init: Footprint,
}

impl Memory {
    pub(crate) fn total(&self) -> Footprint {
        Footprint {
            peak_resident: self.jail.peak_resident + self.init.peak_resident,
            proportional: self.jail.proportional + self.init.proportional,
            private: self.jail.private + self.init.private,
        }
    }
}

/// A box whose command runs is a box that is wholly made.
pub(crate) fn measure(ringwall: &Path) -> Result<Memory, Error> {
    let server = Server::start(ringwall, None)?;
    server.begin("sleep 30")?;
    let began = Instant::now();
    loop {
        // The server's one child is the jail; its only one, while one box runs, is that box's init.
        let jail = children(server.id()).into_iter().find(|jail| !children(*jail).is_empty());
        let init = jail.and_then(|jail| children(jail).into_iter().find(|init| !children(*init).is_empty()));
        match (jail, init) {
            (Some(jail), Some(init)) => return Ok(Memory { jail: footprint(jail)?, init: footprint(init)? }),
            _ if began.elapsed() > WITHIN => return Err(Error::Process { process: server.id(), what: "its boxes" }),
            _ => std::thread::sleep(GLANCE),
        }
    }
}

fn children(process: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| list.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>()).collect()
}

fn footprint(process: u32) -> Result<Footprint, Error> {
    let directory = format!("/proc/{process}");
    let directory = Path::new(&directory);
    let read = |file: &'static str, key: &'static str| {
        let text = std::fs::read_to_string(directory.join(file)).unwrap_or_default();
        kilobytes(&text, key).ok_or(Error::Process { process, what: key })
    };
    Ok(Footprint {
        peak_resident: read("status", "VmHWM")?,
        proportional: read("smaps_rollup", "Pss")?,
        private: read("smaps_rollup", "Private_Clean")? + read("smaps_rollup", "Private_Dirty")?,
    })
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
    fn this_process_has_a_footprint() {
        let own = footprint(std::process::id()).unwrap();
        assert!(own.peak_resident > 0 && own.proportional > 0 && own.private > 0, "{own:?}");
    }
}
