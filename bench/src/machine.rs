//! What the figures were measured on, for whoever compares them with another machine's.

use std::process::{Command, Stdio};

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) kernel: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_mb: u64,
    pub(crate) user: &'static str,
    /// Of the last minute, before the first measurement. Above about a tenth of the cores the figures are noise.
    pub(crate) load: f64,
    pub(crate) bubblewrap: String,
    pub(crate) docker: String,
}

impl Machine {
    pub(crate) fn is_quiet(&self) -> bool {
        self.load <= 0.25 * self.cores as f64
    }
}

pub(crate) fn look() -> Machine {
    let system = rustix::system::sysinfo();
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    Machine {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        processor: processor(&processors).unwrap_or("unknown").to_owned(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        memory_mb: (system.totalram as u64).saturating_mul(u64::from(system.mem_unit)) >> 20,
        user: if rustix::process::geteuid().is_root() { "root" } else { "an ordinary user" },
        load: load.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(f64::NAN),
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
