//! `ringwall image import|list|rm|build-docker`: manages the root file systems of boxes.
//!
//! Archives are checked and unpacked by `ringwall_executor::image`. The progress bar is on standard error
//! and only on a terminal.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{DecimalBytes, HumanCount, ProgressBar, ProgressStyle};
use ringwall_executor::docker::{BuildStep, DEFAULT_IMAGE, Docker};
use ringwall_executor::image::{ImageError, ImageInfo, Interrupted, Progress, Skipped, Store};
use ringwall_policy::{DockerImage, ImageName};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, Mode, OFlags};

use crate::cli::transfer;
use crate::message::{Message, print};
use crate::runtime::{self, StopSignals};
use crate::server::{config, config::DockerOverride};

#[derive(Debug, Args)]
pub(crate) struct BuildArguments {
    /// Name and tag of the image in docker
    #[arg(long, value_name = "NAME:TAG", default_value = DEFAULT_IMAGE)]
    tag: DockerImage,
    #[command(flatten)]
    docker: DockerOverride,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Import a root file system from a tar archive (plain, gzip or zstd)
    Import {
        /// Name of the image: lower-case letters, digits, `.`, `_`, `-`
        name: ImageName,
        /// Archive, or `-` for standard input
        archive: PathBuf,
    },
    /// List the imported images
    List {
        /// Print a JSON array
        #[arg(long)]
        json: bool,
    },
    /// Remove an image
    Rm {
        /// Name of the image
        name: ImageName,
    },
    /// Build the docker backend's default image from packages of this machine's distribution
    BuildDocker(BuildArguments),
}

/// Runs the subcommand and prints its result.
pub(crate) fn run(command: ImageCommand, data: &Path) -> Result<(), Message> {
    let store = Store::open(data);
    let output = match command {
        ImageCommand::Import { name, archive } => summary(&import(&store, &name, &archive)?),
        ImageCommand::List { json: false } => table(&store.list()?, now()),
        ImageCommand::List { json: true } => {
            let json = serde_json::to_string_pretty(&store.list()?);
            json.map_err(|error| Message::io(format!("could not write the list: {error}")))? + "\n"
        }
        ImageCommand::Rm { name } => {
            store.remove(&name)?;
            format!("removed {name}\n")
        }
        ImageCommand::BuildDocker(arguments) => build_docker(&arguments, data)?,
    };
    print(&output)
}

fn import(store: &Store, name: &ImageName, path: &Path) -> Result<ImageInfo, Message> {
    let (archive, size, label) = open(path)?;
    let archive = Interruptible { archive, interrupt: watch_for_interrupt()? };
    let bar = transfer::progress_bar("importing", name.as_str(), size);
    let outcome = store.import(name, &label, archive, &mut |progress: Progress| {
        bar.set_position(progress.read);
    });
    bar.finish_and_clear();
    Ok(outcome?)
}

/// Opens the archive and returns it with its size, if known, and the file name to record.
fn open(path: &Path) -> Result<(File, Option<u64>, String), ImageError> {
    let open_error = |source: io::Error| ImageError::OpenArchive { path: path.to_owned(), source };
    if path == Path::new("-") {
        let stdin: OwnedFd = io::stdin().as_fd().try_clone_to_owned().map_err(open_error)?;
        return Ok((File::from(stdin), None, "-".into()));
    }
    let archive = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| open_error(error.into()))?;
    let found = rustix::fs::fstat(&archive).map_err(|error| open_error(error.into()))?;
    let size = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => u64::try_from(found.st_size).ok(),
        FileType::Directory => return Err(open_error(io::ErrorKind::IsADirectory.into())),
        _ => None,
    };
    let label = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    Ok((File::from(archive), size, label.into_owned()))
}

/// A reader that fails after SIGINT or SIGTERM, so that the import removes its partial result.
struct Interruptible {
    archive: File,
    /// The signal closes its other end.
    interrupt: PipeReader,
}

impl Read for Interruptible {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut waiting = [PollFd::new(&self.interrupt, PollFlags::IN), PollFd::new(&self.archive, PollFlags::IN)];
        loop {
            match rustix::event::poll(&mut waiting, None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if !waiting[0].revents().is_empty() {
            return Err(io::Error::other(Interrupted));
        }
        self.archive.read(buffer)
    }
}

/// Returns a pipe whose write end is closed at the first SIGINT or SIGTERM.
fn watch_for_interrupt() -> Result<PipeReader, Message> {
    let failed = |error: io::Error| Message::new(format!("could not watch for signals: {error}"));
    let (reader, writer) = io::pipe().map_err(failed)?;
    let runtime = runtime::current_thread()?;
    let mut signals = runtime.block_on(async { StopSignals::listen() })?;
    let watch = move || {
        runtime.block_on(signals.next());
        drop(writer);
    };
    std::thread::Builder::new().name("interrupt".into()).spawn(watch).map_err(failed)?;
    Ok(reader)
}

fn summary(info: &ImageInfo) -> String {
    let mut text = format!("imported {}: {} files, {}\n", info.name, HumanCount(info.entries), size(info.bytes));
    let Skipped { devices, pipes, dev_content, unknown, special_bits } = info.skipped;
    for (count, what) in [
        (dev_content, "entries below /dev (a box has its own)"),
        (devices, "device nodes"),
        (pipes, "named pipes"),
        (unknown, "entries of an unknown type"),
    ] {
        if count > 0 {
            let _ = writeln!(text, "  skipped: {} {what}", HumanCount(count));
        }
    }
    if special_bits > 0 {
        let _ = writeln!(text, "  setuid, setgid or sticky bits removed from {} files", HumanCount(special_bits));
    }
    text
}

fn table(images: &[ImageInfo], now: u64) -> String {
    let mut rows = vec![["NAME", "SIZE", "FILES", "IMPORTED"].map(String::from)];
    rows.extend(images.iter().map(|info| {
        [
            info.name.clone(),
            size(info.bytes),
            HumanCount(info.entries).to_string(),
            age(now.saturating_sub(info.imported_at)),
        ]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (name, bytes, files) = (width(0), width(1), width(2));
    rows.iter().fold(String::new(), |mut text, row| {
        let _ = writeln!(text, "{:name$}  {:>bytes$}  {:>files$}  {}", row[0], row[1], row[2], row[3]);
        text
    })
}

/// Formats a size in decimal units, as `ls --si` does.
fn size(bytes: u64) -> String {
    DecimalBytes(bytes).to_string()
}

fn age(seconds: u64) -> String {
    let (count, unit) = match seconds {
        0..60 => return "just now".into(),
        60..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural} ago")
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Builds the image from packages of this machine's distribution, with the docker client and context of
/// a server with the same data directory and environment. Returns the text to print.
fn build_docker(arguments: &BuildArguments, data: &Path) -> Result<String, Message> {
    let pinned = config::docker(data, arguments.docker.clone())?;
    let docker = Docker::new(ringwall_service::docker_settings(&pinned)?, data)?;
    let bar = spinner();
    let built = runtime::current_thread()?.block_on(async {
        let mut show = |step: BuildStep| bar.set_message(description(step));
        let mut signals = StopSignals::listen()?;
        // A signal drops the future of the build, which kills its programs and removes its directory.
        tokio::select! {
            built = docker.build_image(&arguments.tag, data, &mut show) => Ok(built?),
            () = signals.next() => Err(Message::new("interrupted; nothing was changed")),
        }
    });
    bar.finish_and_clear();
    built.map(|id| format!("built {} ({id})\n", arguments.tag))
}

fn description(step: BuildStep) -> String {
    match step {
        BuildStep::Install(line) => line,
        BuildStep::Pack => "packing".to_owned(),
        BuildStep::Import => "importing into docker".to_owned(),
    }
}

fn spinner() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    match ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, bytes: u64, entries: u64, imported_at: u64) -> ImageInfo {
        ImageInfo {
            name: name.into(),
            imported_at,
            source: "rootfs.tar".into(),
            bytes,
            entries,
            skipped: Skipped::default(),
        }
    }

    #[test]
    fn table_is_aligned() {
        let now = 1_000_000;
        let images =
            [info("alpine", 7_300_000, 512, now - 30), info("debian-12", 345_000_000, 12_345, now - 2 * 86_400)];
        assert_eq!(
            table(&images, now),
            "NAME            SIZE   FILES  IMPORTED\n\
             alpine       7.30 MB     512  just now\n\
             debian-12  345.00 MB  12,345  2 days ago\n"
        );
    }

    #[test]
    fn summary_lists_skipped_entries() {
        let mut info = info("debian", 345_000_000, 12_345, 0);
        assert_eq!(summary(&info), "imported debian: 12,345 files, 345.00 MB\n");
        info.skipped.dev_content = 7;
        info.skipped.special_bits = 1_200;
        assert_eq!(
            summary(&info),
            "imported debian: 12,345 files, 345.00 MB\n  \
             skipped: 7 entries below /dev (a box has its own)\n  \
             setuid, setgid or sticky bits removed from 1,200 files\n"
        );
    }

    #[test]
    fn signal_fails_a_blocked_read() {
        let (silent, _open) = io::pipe().unwrap();
        let (interrupt, signal) = io::pipe().unwrap();
        drop(signal);
        let mut archive = Interruptible { archive: File::from(OwnedFd::from(silent)), interrupt };
        let error = archive.read(&mut [0]).expect_err("read from a silent pipe");
        assert!(error.get_ref().is_some_and(|inner| inner.is::<Interrupted>()));
    }
}
