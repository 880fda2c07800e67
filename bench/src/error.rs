//! Errors of measurements. A contestant that fails is an error, because its time would be
//! meaningless.

use std::path::PathBuf;
use std::process::ExitStatus;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("there is no ringwall binary at {}; build it with `make build`", .0.display())]
    BinaryMissing(PathBuf),
    #[error("could not find out where this program is")]
    OwnPath(#[source] std::io::Error),
    #[error("could not start {program}")]
    Start {
        program: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{program} ended with {status}")]
    Failed { program: String, status: ExitStatus },
    #[error("could not make an event loop")]
    EventLoop(#[source] std::io::Error),
    #[error("the policy refused the measured command: {0}")]
    Refused(String),
    #[error("could not make a box")]
    Box(#[from] ringwall_executor::Error),
    #[error("the command in the box ended with {0:?}")]
    BoxEnded(ringwall_executor::Ending),
    #[error("could not read {what} of process {process}")]
    Process { process: u32, what: &'static str },
    #[error("could not make a scratch directory")]
    Scratch(#[source] std::io::Error),
    #[error("the server did not say where it listens, but: {0}")]
    ServerSilent(String),
    #[error("could not speak with the server or the shell")]
    Speaking(#[source] std::io::Error),
    #[error("a command that a shell ran did not end well: {0}")]
    ShellSaid(String),
    #[error("an exec did not succeed: {0}")]
    ExecEnded(String),
    #[error("there is no Chromium on this machine; install it, e.g. with: apt-get install chromium")]
    NoChromium,
    #[error("could not fill or read the record")]
    Record(#[from] ringwall_record::Error),
    #[error("a measuring thread ended early")]
    Thread,
    #[error("could not write {}", file.display())]
    WriteReport {
        file: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// An error with everything that caused it, as one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
