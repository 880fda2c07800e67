//! The machine of the measurements, for comparisons.

use std::process::{Command, Stdio};
use std::time::Duration;

/// Daemons that wake now and then stay below this; a build beside the measurement does not.
const QUIET: f64 = 0.05;
const LOOK_FOR: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_mb: u64,
    pub(crate) user: &'static str,
    /// The share of all processor time that others used in the second before the first measurement.
    pub(crate) busy: f64,
    pub(crate) bubblewrap: String,
    pub(crate) docker: String,
}

impl Machine {
    pub(crate) fn is_quiet(&self) -> bool {
        self.busy <= QUIET
    }
}

pub(crate) fn look() -> Machine {
    let system = rustix::system::sysinfo();
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Machine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        processor: processor(&processors).unwrap_or("unknown").to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mb: (system.totalram as u64).saturating_mul(u64::from(system.mem_unit)) >> 20,
        user: if rustix::process::geteuid().is_root() { "root" } else { "an ordinary user" },
        busy: busy_share(),
        bubblewrap: version("bwrap"),
        docker: version("docker"),
    }
}

fn processor(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim())
}

/// The first line that a program prints about itself.
fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("not installed").to_owned()
}

/// Not the load average: it still remembers the build that came before.
fn busy_share() -> f64 {
    let look = || processor_time(&std::fs::read_to_string("/proc/stat").unwrap_or_default());
    let before = look();
    std::thread::sleep(LOOK_FOR);
    match (before, look()) {
        (Some(before), Some(after)) => {
            let (all, idle) = (after.all - before.all, after.idle - before.idle);
            1.0 - idle as f64 / all as f64
        }
        _ => f64::NAN,
    }
}

/// In ticks since the machine started.
#[derive(Debug, PartialEq, Eq)]
struct ProcessorTime {
    all: u64,
    idle: u64,
}

/// The first line of /proc/stat. Its fourth and fifth figures are time idle, the latter with a disk at work; the
/// ninth and tenth are already part of the first two.
fn processor_time(text: &str) -> Option<ProcessorTime> {
    let figures = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace().take(8);
    let figures: Vec<u64> = figures.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(ProcessorTime { all: figures.iter().sum(), idle: figures.get(3)? + figures.get(4)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_not_counted_twice() {
        let text = "cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(processor_time(text), Some(ProcessorTime { all: 531, idle: 450 }));
        assert_eq!(processor_time("intr 1 2 3\n"), None);
    }
}
