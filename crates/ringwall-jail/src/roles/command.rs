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

const MAX_REPORTED_PATH: usize = 4096;
/// The first descriptor after the standard streams; a session process may have its channel there.
pub(crate) const FIRST_EXTRA_FD: u32 = 3;

/// The command's standard streams.
#[derive(Debug)]
pub(crate) enum Streams {
    Pipes([OwnedFd; 3]),
    Terminal(OwnedFd),
}

/// Why the command could not be executed.
#[derive(Debug)]
pub(crate) enum ExecFailure {
    Failed(Failure),
    /// execve failed; `tried` is the path that failed, or the name if no directory has it.
    NotExecuted {
        tried: CString,
        errno: Errno,
    },
}

/// Executes the command. If that fails, reports it and exits.
pub(crate) fn execute(command: &Command, streams: &Streams, control: BorrowedFd<'_>) -> ! {
    report_and_exit(try_execute(command, streams, None), control)
}

/// Executes the command with these descriptors only. Returns if that fails; the process must then
/// exit, since its descriptors were replaced.
pub(crate) fn try_execute(command: &Command, streams: &Streams, channel: Option<BorrowedFd<'_>>) -> ExecFailure {
    match prepare(command, streams, channel) {
        Ok(()) => run_program(command),
        Err(failure) => ExecFailure::Failed(failure),
    }
}

/// Executes the program without any preparation. If that fails, reports it and exits.
pub(crate) fn execute_program(command: &Command, control: BorrowedFd<'_>) -> ! {
    report_and_exit(run_program(command), control)
}

/// Executes the program; returns if that fails.
pub(crate) fn run_program(command: &Command) -> ExecFailure {
    let (tried, errno) = search_and_execute(command);
    // Bounds the length of the report.
    let shown = &tried.as_bytes()[..tried.as_bytes().len().min(MAX_REPORTED_PATH)];
    ExecFailure::NotExecuted { tried: CString::new(shown).unwrap_or_default(), errno }
}

fn report_and_exit(failure: ExecFailure, control: BorrowedFd<'_>) -> ! {
    match failure {
        ExecFailure::Failed(failure) => {
            let _ = wire::send(control, &Report::Failed(failure), &[]);
            sys::exit_now(NOT_FOUND)
        }
        ExecFailure::NotExecuted { tried, errno } => {
            let _ = wire::send(control, &Report::NotExecuted { tried, errno: errno.raw_os_error() }, &[]);
            sys::exit_now(if errno == Errno::NOENT { NOT_FOUND } else { NOT_EXECUTABLE })
        }
    }
}

fn prepare(command: &Command, streams: &Streams, channel: Option<BorrowedFd<'_>>) -> std::result::Result<(), Failure> {
    let directory = command.directory.to_string_lossy();
    let fail = |errno| Failure::new(Step::StartCommand, directory.clone(), errno);
    sys::setsid().map_err(fail)?;
    match streams {
        Streams::Pipes(pipes) => {
            for (number, pipe) in pipes.iter().enumerate() {
                sys::dup_to(pipe.as_fd(), number as i32).map_err(fail)?;
            }
        }
        Streams::Terminal(terminal) => {
            rustix::process::ioctl_tiocsctty(terminal).map_err(fail)?;
            for number in 0..3 {
                sys::dup_to(terminal.as_fd(), number).map_err(fail)?;
            }
        }
    }
    let mut others = FIRST_EXTRA_FD;
    if let Some(channel) = channel {
        sys::dup_to(channel, others.cast_signed()).map_err(fail)?;
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
