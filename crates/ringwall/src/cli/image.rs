//! `ringwall image import|list|rm|build-docker`: manages the root file systems of boxes.
//!
//! Archives are checked and unpacked by `ringwall_executor::image`. The progress bar is on standard error
//! and only on a terminal.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use clap::Subcommand;
use indicatif::{DecimalBytes, HumanCount, ProgressBar, ProgressStyle};
use ringwall_executor::image::{ImageError, ImageInfo, Interrupted, Progress, Skipped, Store};
use ringwall_policy::ImageName;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, Mode, OFlags};

use crate::cli::message::Message;
use crate::cli::{image_docker, image_docker::BuildArguments};

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
            let mut text = serde_json::to_string_pretty(&store.list()?)
                .map_err(|error| ImageError::Print { source: error.into() })?;
            text.push('\n');
            text
        }
        ImageCommand::Rm { name } => {
            store.remove(&name)?;
            format!("removed {name}\n")
        }
        ImageCommand::BuildDocker(arguments) => image_docker::build(&arguments, data)?,
    };
    Ok(print(&output)?)
}

fn import(store: &Store, name: &ImageName, path: &Path) -> Result<ImageInfo, ImageError> {
    let (archive, size, label) = open(path)?;
    let archive = Interruptible {
        archive,
        interrupt: watch_for_interrupt().map_err(|source| ImageError::ReadArchive { source })?,
    };
    let bar = progress_bar(size);
    bar.set_message(name.to_string());
    let outcome = store.import(name, &label, archive, &mut |progress: Progress| {
        bar.set_position(progress.read);
    });
    bar.finish_and_clear();
    outcome
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

fn progress_bar(size: Option<u64>) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (bar, template) = match size {
        Some(size) => {
            (ProgressBar::new(size), "importing {msg} [{bar:30}] {percent:>3}% of {decimal_total_bytes}, {eta} left")
        }
        None => (ProgressBar::new_spinner(), "{spinner} importing {msg}: {decimal_bytes} read, {elapsed}"),
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
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
fn watch_for_interrupt() -> io::Result<PipeReader> {
    use tokio::signal::unix::{SignalKind, signal};

    let (reader, writer) = io::pipe()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::Builder::new().name("interrupt".into()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        drop(writer);
    })?;
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

/// Prints to standard output. A reader that closes the pipe early, such as `head`, is not an error.
fn print(output: &str) -> Result<(), ImageError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(|source| ImageError::Print { source }),
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
