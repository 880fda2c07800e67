//! The last steps before execve: session, standard streams, other descriptors, working directory
//! and signal mask.
//!
//! All protections are in force by now.

use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::protocol::plan::Command;
use crate::protocol::report::{Failure, Report, Step};
use crate::protocol::wire;
use crate::sys;

/// Exit codes of shells for "found but not executable" and "not found".
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;

const SHOWN: usize = 4096;
/// The first descriptor after the standard streams; a session process may have its channel there.
pub(crate) const FIRST_OTHER: u32 = 3;

/// The command's standard streams.
#[derive(Debug)]
pub(crate) enum Streams {
    Pipes([OwnedFd; 3]),
    Terminal(OwnedFd),
}

/// Why the command could not be executed.
#[derive(Debug)]
pub(crate) enum Hindrance {
    Failed(Failure),
    /// execve failed; `tried` is the last path.
    NotExecuted {
        tried: CString,
        errno: Errno,
    },
}

/// Executes the command. If that fails, reports it and exits.
pub(crate) fn execute(command: &Command, streams: &Streams, control: BorrowedFd<'_>) -> ! {
    give_up(attempt(command, streams, None), control)
}

/// Executes the command with these descriptors only. Returns if that fails; the process must then
/// exit, since its descriptors were replaced.
pub(crate) fn attempt(command: &Command, streams: &Streams, channel: Option<BorrowedFd<'_>>) -> Hindrance {
    match prepare(command, streams, channel) {
        Ok(()) => run_program(command),
        Err(failure) => Hindrance::Failed(failure),
    }
}

/// Executes the program without any preparation. If that fails, reports it and exits.
pub(crate) fn replace(command: &Command, control: BorrowedFd<'_>) -> ! {
    give_up(run_program(command), control)
}

/// Executes the program; returns if that fails.
pub(crate) fn run_program(command: &Command) -> Hindrance {
    let (tried, errno) = search_and_execute(command);
    // Bounds the length of the report.
    let shown = &tried.as_bytes()[..tried.as_bytes().len().min(SHOWN)];
    Hindrance::NotExecuted { tried: CString::new(shown).unwrap_or_default(), errno }
}

fn give_up(hindrance: Hindrance, control: BorrowedFd<'_>) -> ! {
    match hindrance {
        Hindrance::Failed(failure) => {
            let _ = wire::send(control, &Report::Failed(failure), &[]);
            sys::exit_now(NOT_FOUND)
        }
        Hindrance::NotExecuted { tried, errno } => {
            let _ = wire::send(control, &Report::NotExecuted { tried, errno: errno.raw_os_error() }, &[]);
            sys::exit_now(if errno == Errno::NOENT { NOT_FOUND } else { NOT_EXECUTABLE })
        }
    }
}

fn prepare(command: &Command, streams: &Streams, channel: Option<BorrowedFd<'_>>) -> std::result::Result<(), Failure> {
    let directory = command.directory.to_string_lossy();
    let fail = |errno| Failure::new(Step::StartCommand, directory.clone(), errno);
    sys::begin_session().map_err(fail)?;
    match streams {
        Streams::Pipes(pipes) => {
            for (number, pipe) in pipes.iter().enumerate() {
                sys::place_descriptor(pipe.as_fd(), number as i32).map_err(fail)?;
            }
        }
        Streams::Terminal(terminal) => {
            rustix::process::ioctl_tiocsctty(terminal).map_err(fail)?;
            for number in 0..3 {
                sys::place_descriptor(terminal.as_fd(), number).map_err(fail)?;
            }
        }
    }
    let mut others = FIRST_OTHER;
    if let Some(channel) = channel {
        sys::place_descriptor(channel, others.cast_signed()).map_err(fail)?;
        others += 1;
    }
    sys::close_descriptors_on_execute(others).map_err(fail)?;
    rustix::process::chdir(&command.directory).map_err(fail)?;
    sys::set_signal_mask(false);
    sys::reset_personality();
    Ok(())
}

/// Tries `argv[0]` itself if it contains a slash, otherwise each directory of the search path. As
/// in shells, a file that may not be executed is reported only if no later directory has one that
/// may.
fn search_and_execute(command: &Command) -> (CString, Errno) {
    let Some(name) = command.argv.first() else {
        return (CString::default(), Errno::NOENT);
    };
    let run = |path: &CString| sys::execute(path, &command.argv, &command.environment);
    if name.as_bytes().contains(&b'/') {
        return (name.clone(), run(name));
    }
    let mut worst = (name.clone(), Errno::NOENT);
    for directory in &command.search {
        let Ok(path) = CString::new([directory.as_bytes(), b"/", name.as_bytes()].concat()) else { continue };
        match run(&path) {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => worst = (path, Errno::ACCESS),
            errno => return (path, errno),
        }
    }
    worst
}
