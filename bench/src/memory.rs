//! What a box costs in memory beside its command: the jail outside it and the init inside it.
//!
//! Three figures of each, because no single one is the truth. The peak of resident pages counts the program's own
//! file, which both share with this process and with every other box; the proportional share divides those pages
//! by their users; the private part is what one more box really takes.

use std::path::Path;

use executor::Streams;

use crate::boxes::{Boxes, Limits, event_loop};
use crate::error::Error;

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

/// A box whose command has answered once is a box that is wholly made.
pub(crate) fn measure(boxes: &Boxes) -> Result<Memory, Error> {
    event_loop()?.block_on(async {
        let mut running = boxes.start(Limits::Cgroups, &["/bin/cat"]).await?;
        let Some(Streams::Pipes { stdin, stdout, stderr }) = running.streams.take() else {
            return Err(Error::Speak(rustix::io::Errno::PIPE));
        };
        rustix::io::write(&stdin, b"?").map_err(Error::Speak)?;
        rustix::io::read(&stdout, &mut [0; 1]).map_err(Error::Speak)?;
        let init = running.init_pid().ok_or(Error::Process { process: 0, what: "PID 1 of the box" })?;
        let memory = Memory { jail: footprint(parent(init)?)?, init: footprint(init)? };
        drop((stdin, stdout, stderr));
        running.wait().await?;
        Ok(memory)
    })
}

fn parent(process: u32) -> Result<u32, Error> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let number = status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok());
    number.ok_or(Error::Process { process, what: "its parent" })
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
