//! Fetches a command's output until the command ends, and writes it to the reader's pipes.
//!
//! Reading output since an offset has no side effect, so it is repeated for a while when a
//! connection breaks. The loop cannot run forever on a faulty service: offsets must grow with the
//! text, and answers without new output are spaced by a pause.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;

use super::client::{AioService, CommandInfo, CommandStatus, Offsets, OutputResult, Waiting};
use super::connection::malformed;
use crate::aio_error::AioError;

/// How long a service may be unreachable before its command is given up.
const MAX_OUTAGE: Duration = Duration::from_secs(15);
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Pause after an answer without new output, whether or not the service waited.
const POLL_DELAY: Duration = Duration::from_millis(50);
const ACTION: &str = "return the command's output";

/// The write ends of the command's stdout and stderr.
#[derive(Debug)]
pub(super) struct OutputPipes {
    pub(super) stdout: Sender,
    pub(super) stderr: Sender,
}

/// How the command ended, as the service reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Exited(i32),
    TimedOut,
    Killed,
}

pub(super) async fn follow(
    service: AioService,
    session: String,
    command: String,
    mut output: OutputPipes,
) -> Result<End, AioError> {
    let mut offsets = Offsets::default();
    let mut waiting = Waiting::ForOutput;
    let mut outage_since = None;
    loop {
        let answer = match service.output(&session, &command, offsets, waiting).await {
            Ok(answer) => answer,
            Err(error) => {
                let since = *outage_since.get_or_insert_with(Instant::now);
                if !error.is_passing() || since.elapsed() >= MAX_OUTAGE {
                    return Err(error);
                }
                tokio::time::sleep(RETRY_DELAY).await;
                continue;
            }
        };
        outage_since = None;
        let news = advance(&mut offsets, &answer)?;
        if news == NewOutput::Some {
            // A closed reader is ignored: the command is still followed to its end.
            let _ = output.stdout.write_all(answer.stdout.as_bytes()).await;
            let _ = output.stderr.write_all(answer.stderr.as_bytes()).await;
        }
        let end = match answer.command {
            Some(command) => ended(&command)?,
            None => return Err(malformed(ACTION, "it does not know the command")),
        };
        match (end, news) {
            // Output may arrive after the end. The command is over when an answer brings nothing
            // new.
            (Some(end), NewOutput::None) => return Ok(end),
            (Some(_), NewOutput::Some) => waiting = Waiting::Not,
            (None, NewOutput::Some) => {}
            (None, NewOutput::None) => tokio::time::sleep(POLL_DELAY).await,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewOutput {
    Some,
    None,
}

/// Moves the offsets to those of the answer, which must have grown if there is text.
fn advance(offsets: &mut Offsets, answer: &OutputResult) -> Result<NewOutput, AioError> {
    let reached = Offsets { stdout: answer.offset, stderr: answer.stderr_offset };
    let is_consistent = |before: u64, text: &str, after: u64| match text {
        "" => after >= before,
        _ => after > before,
    };
    let is_sound = is_consistent(offsets.stdout, &answer.stdout, reached.stdout)
        && is_consistent(offsets.stderr, &answer.stderr, reached.stderr);
    if !is_sound {
        return Err(malformed(ACTION, "its offsets do not grow with the output"));
    }
    *offsets = reached;
    Ok(if answer.stdout.is_empty() && answer.stderr.is_empty() { NewOutput::None } else { NewOutput::Some })
}

fn ended(command: &CommandInfo) -> Result<Option<End>, AioError> {
    Ok(match (command.status, command.exit_code) {
        (CommandStatus::Pending | CommandStatus::Running, _) => None,
        (CommandStatus::Completed, Some(code)) => Some(End::Exited(code)),
        (CommandStatus::Completed, None) => return Err(malformed(ACTION, "it ended without an exit code")),
        (CommandStatus::TimedOut, _) => Some(End::TimedOut),
        (CommandStatus::Killed, _) => Some(End::Killed),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(stdout: &str, offset: u64) -> OutputResult {
        OutputResult { stdout: stdout.to_owned(), stderr: String::new(), offset, stderr_offset: 0, command: None }
    }

    #[test]
    fn shrinking_or_constant_offset_is_refused() {
        let mut offsets = Offsets::default();
        assert_eq!(advance(&mut offsets, &answer("", 0)).unwrap(), NewOutput::None);
        assert_eq!(advance(&mut offsets, &answer("abc", 3)).unwrap(), NewOutput::Some);
        assert_eq!(offsets, Offsets { stdout: 3, stderr: 0 });
        for (text, offset) in [("abc", 3), ("abc", 2), ("", 2)] {
            assert!(advance(&mut offsets.clone(), &answer(text, offset)).is_err(), "{text} {offset}");
        }
    }

    #[test]
    fn command_status_maps_to_end() {
        let ended = |status, exit_code| ended(&CommandInfo { status, exit_code });
        assert_eq!(ended(CommandStatus::Running, None).unwrap(), None);
        assert_eq!(ended(CommandStatus::Completed, Some(3)).unwrap(), Some(End::Exited(3)));
        assert!(ended(CommandStatus::Completed, None).is_err());
        assert_eq!(ended(CommandStatus::TimedOut, None).unwrap(), Some(End::TimedOut));
        assert_eq!(ended(CommandStatus::Killed, Some(-9)).unwrap(), Some(End::Killed));
    }
}
