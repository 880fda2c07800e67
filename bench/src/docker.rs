//! `docker run --rm`, measured with a daemon that is started for it and stopped again.
//!
//! The daemon has its own directories, socket and process, makes no bridge and changes no firewall
//! rule, so a running docker is not affected. Containers get no network, like our boxes, which
//! saves docker most of its work. The image contains only the measured programs and their
//! libraries, copied from this machine. If no daemon can be started the report says why.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::boxes::event_loop;
use crate::contestant::{Contestant, Field, Task, time};
use crate::error::{Error, chain};
use crate::latency::Shuffle;
use crate::samples::Samples;
use crate::serving;
use crate::session::{self, Sessions};

const IMAGE: &str = "ringwall-bench";
const READY_WITHIN: Duration = Duration::from_secs(30);
const STOPPED_WITHIN: Duration = Duration::from_secs(20);
const GLANCE: Duration = Duration::from_millis(50);

/// Medians from the same rounds, so that they can be compared with each other.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) task: Task,
    pub(crate) docker: Samples,
    pub(crate) ringwall_run: Samples,
    pub(crate) box_alone: Samples,
}

/// Everything that was measured with the daemon.
#[derive(Debug)]
pub(crate) struct Docker {
    pub(crate) entries: Vec<Entry>,
    /// An exec over HTTP, on the native backend and on docker's.
    pub(crate) native_exec: Samples,
    pub(crate) docker_exec: Samples,
    pub(crate) sessions: Sessions,
}

/// The measurements, or the reason why there are none.
pub(crate) fn measure(field: &Field, rounds: usize) -> Result<Docker, String> {
    if rounds == 0 {
        return Err("left out by --docker-rounds 0".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("its daemon needs root".to_owned());
    }
    let daemon = Daemon::start().map_err(|error| chain(&error))?;
    let measured = || {
        let entries = run_rounds(field, &daemon, rounds)?;
        let client = daemon.client_file()?;
        let (native_exec, docker_exec) = serving::beside_docker(field.ringwall(), &client, rounds)?;
        let sessions = session::measure(field.ringwall(), &client, IMAGE, rounds)?;
        Ok(Docker { entries, native_exec, docker_exec, sessions })
    };
    measured().map_err(|error: Error| chain(&error))
}

fn run_rounds(field: &Field, daemon: &Daemon, rounds: usize) -> Result<Vec<Entry>, Error> {
    let runtime = event_loop()?;
    let mut shuffle = Shuffle::default();
    let new = |task| Entry {
        task,
        docker: Samples::default(),
        ringwall_run: Samples::default(),
        box_alone: Samples::default(),
    };
    let mut entries = Task::ALL.map(new);
    // The first round is a warm-up: it reads the image from disk.
    for round in 0..=rounds {
        for index in shuffle.order(entries.len()) {
            let entry = &mut entries[index];
            // Shuffled: docker goes on removing its container after its client has ended, which
            // slows the next contestant.
            for turn in shuffle.order(3) {
                let (samples, time) = match turn {
                    0 => (&mut entry.docker, daemon.run(entry.task)?),
                    1 => (&mut entry.ringwall_run, field.run(&runtime, Contestant::RingwallRun, entry.task)?.total),
                    _ => (&mut entry.box_alone, field.run(&runtime, Contestant::BoxAlone, entry.task)?.total),
                };
                if round > 0 {
                    samples.push(time);
                }
            }
        }
    }
    Ok(entries.into())
}

#[derive(Debug)]
struct Daemon {
    process: Child,
    directory: TempDir,
}

impl Daemon {
    /// Starts it and imports the image.
    fn start() -> Result<Self, Error> {
        let directory = TempDir::with_prefix("ringwall-bench-docker-").map_err(Error::Scratch)?;
        let log = std::fs::File::create(directory.path().join("log")).map_err(Error::Scratch)?;
        let path = |name: &str| directory.path().join(name);
        // Ends the daemon if this process is killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false"]);
        command.args(["--ip-forward=false", "--ip-masq=false", "--log-level=error"]);
        command.arg("--data-root").arg(path("data")).arg("--exec-root").arg(path("exec"));
        command.arg("--pidfile").arg(path("pid")).arg("--host").arg(address(directory.path()));
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let process = process.map_err(|source| Error::Start { program: "dockerd".to_owned(), source })?;
        let mut daemon = Daemon { process, directory };
        daemon.wait_until_ready()?;
        daemon.import_image()?;
        Ok(daemon)
    }

    fn wait_until_ready(&mut self) -> Result<(), Error> {
        let began = Instant::now();
        loop {
            match time(self.client().arg("version")) {
                Ok(_) => return Ok(()),
                Err(error @ Error::Start { .. }) => return Err(error),
                Err(error) if began.elapsed() > READY_WITHIN => return Err(error),
                Err(_) => {}
            }
            if let Ok(Some(status)) = self.process.try_wait() {
                return Err(Error::Failed { program: format!("dockerd ({})", self.last_words()), status });
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// The end of the daemon's log.
    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        log.lines().last().unwrap_or("without a word").to_owned()
    }

    fn import_image(&self) -> Result<(), Error> {
        let archive = self.directory.path().join("image.tar");
        let mut tar = Command::new("tar");
        tar.args(["--create", "--dereference", "--directory=/", "--exclude=__pycache__/test*", "--exclude=*/test"]);
        tar.arg("--file").arg(&archive);
        // Relative names; the links among them (/lib, /bin) become plain directories of the image.
        tar.args(image_files()?.iter().map(|path| path.strip_prefix("/").unwrap_or(path)));
        time(&mut tar)?;
        time(self.client().arg("import").arg(&archive).arg(IMAGE))?;
        time(self.client().args(["tag", IMAGE, ringwall_executor::docker::DEFAULT_IMAGE])).map(drop)
    }

    /// One run, as its user sees it: from the client's start to its end.
    fn run(&self, task: Task) -> Result<Duration, Error> {
        time(self.client().args(["run", "--rm", "--network", "none", IMAGE]).args(task.command()))
    }

    /// The client as one executable file.
    fn client_file(&self) -> Result<PathBuf, Error> {
        let file = self.directory.path().join("docker");
        let script = format!("#!/bin/sh\nexec docker --host {} \"$@\"\n", address(self.directory.path()));
        std::fs::write(&file, script).map_err(Error::Scratch)?;
        std::fs::set_permissions(&file, Permissions::from_mode(0o755)).map_err(Error::Scratch)?;
        Ok(file)
    }

    fn client(&self) -> Command {
        let mut command = Command::new("docker");
        command.arg("--host").arg(address(self.directory.path()));
        command
    }
}

impl Drop for Daemon {
    /// SIGTERM first, so that the daemon removes its containerd and mounts; then SIGKILL.
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let began = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) {
            if began.elapsed() > STOPPED_WITHIN {
                let _ = self.process.kill();
                let _ = self.process.wait();
                return;
            }
            std::thread::sleep(GLANCE);
        }
    }
}

fn address(directory: &Path) -> String {
    format!("unix://{}", directory.join("socket").display())
}

/// The measured programs, what they are linked to, and python's own library.
fn image_files() -> Result<Vec<PathBuf>, Error> {
    let programs = Task::ALL.map(|task| task.command()[0]).into_iter().chain(["/bin/bash"]).collect::<Vec<_>>();
    let linked = output(Command::new("ldd").args(&programs))?;
    let script = "import sysconfig; print(sysconfig.get_path('stdlib'))";
    let library = output(Command::new(Task::Python.command()[0]).args(["-c", script]))?;
    let mut files: Vec<PathBuf> = programs.iter().map(PathBuf::from).collect();
    files.push(library.trim().into());
    files.extend(linked_files(&linked));
    files.sort();
    files.dedup();
    Ok(files)
}

/// The absolute paths in what ldd prints, such as `libc.so.6 => /lib/libc.so.6 (0x…)`; its headings end in a colon.
fn linked_files(text: &str) -> impl Iterator<Item = PathBuf> {
    text.split_ascii_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':')).map(PathBuf::from)
}

fn output(command: &mut Command) -> Result<String, Error> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| Error::Start { program: program.clone(), source })?;
    if !output.status.success() {
        return Err(Error::Failed { program, status: output.status });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_taken_from_what_ldd_prints() {
        let text =
            "/bin/true:\n\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x2)\n\t/lib64/ld.so.2 (0x3)\n";
        let found: Vec<_> = linked_files(text).collect();
        assert_eq!(found, [PathBuf::from("/lib/x/libc.so.6"), PathBuf::from("/lib64/ld.so.2")]);
    }
}
