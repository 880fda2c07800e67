//! An error of the command line: a code, one sentence, a hint and an exit code.

use std::borrow::Cow;
use std::io::Write;
use std::process::ExitCode;

use ringwall_executor::Error;
use ringwall_executor::image::ImageError;
use ringwall_policy::Denial;
use ringwall_service::causes;

pub(crate) use crate::escape::escape_invisible;

/// Exit codes of shells and `timeout`.
const BAD_INPUT: u8 = 2;
/// The request failed, or its result is unknown.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A file, a directory or a stream could not be read or written.
const IO: &str = "IO";
/// The server did not answer, or the connection broke.
pub(crate) const UNREACHABLE: &str = "UNREACHABLE";
/// The response is not one of Ringwall's API.
pub(crate) const BAD_ANSWER: &str = "BAD_ANSWER";

#[derive(Debug)]
pub(crate) struct Message {
    code: Cow<'static, str>,
    text: String,
    hint: Option<String>,
    exit: u8,
    /// The code comes from a server, so the message shows it.
    is_remote: bool,
}

impl Message {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::of("INVALID_ARGUMENT", text, None, BAD_INPUT)
    }

    /// A file or a stream that the user named could not be read or written.
    pub(crate) fn io(text: impl Into<String>) -> Self {
        Self::of(IO, text, None, BAD_INPUT)
    }

    /// A failure that the arguments did not cause.
    pub(crate) fn failed(code: &'static str, text: impl Into<String>) -> Self {
        Self::of(code, text, None, FAILED)
    }

    /// An error response of a server, with its code.
    pub(crate) fn remote(status: u16, code: impl Into<String>, text: impl Into<String>) -> Self {
        let exit = if status < 500 { BAD_INPUT } else { FAILED };
        Message { code: code.into().into(), text: text.into(), hint: None, exit, is_remote: true }
    }

    /// An error response without a code; `code` is derived from the status and not shown.
    pub(crate) fn remote_without_code(status: u16, code: &'static str, text: impl Into<String>) -> Self {
        Message { is_remote: false, ..Self::remote(status, code, text) }
    }

    fn of(code: &'static str, text: impl Into<String>, hint: Option<String>, exit: u8) -> Self {
        Message { code: code.into(), text: text.into(), hint, exit, is_remote: false }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The sentence without hint and code.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Replaces `prefix` at the start of the sentence by `subject`, such as the name of a flag.
    pub(crate) fn with_subject(mut self, subject: &str, prefix: &str) -> Self {
        let rest = self.text.strip_prefix(prefix).map_or(self.text.as_str(), |rest| rest.trim_start_matches(": "));
        self.text = format!("{subject}: {rest}");
        self
    }

    /// Prints to standard error.
    pub(crate) fn print(&self) -> ExitCode {
        let hint = self.hint.as_ref().map(|hint| format!("  hint: {}\n", escape_invisible(hint))).unwrap_or_default();
        let code = if self.is_remote { format!(" ({})", escape_invisible(&self.code)) } else { String::new() };
        // If standard error is closed too, only the exit code remains.
        let _ = write!(std::io::stderr(), "ringwall: {}{code}\n{hint}", escape_invisible(&self.text));
        ExitCode::from(self.exit)
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "error": { "code": self.code, "message": self.text, "hint": self.hint } })
    }

    #[cfg(test)]
    pub(crate) fn is_failure(&self) -> bool {
        self.exit == FAILED
    }

    /// Prints text to standard error, or with `--json` JSON to standard output.
    pub(crate) fn print_as(&self, json: bool) -> ExitCode {
        if json { self.print_json() } else { self.print() }
    }

    fn print_json(&self) -> ExitCode {
        if let Err(cause) = writeln!(std::io::stdout(), "{}", self.to_json()) {
            Message::io(format!("could not write to standard output: {cause}")).print();
            return self.print();
        }
        ExitCode::from(self.exit)
    }
}

/// Prints to standard output. A reader that closes the pipe early, such as `head`, is not an error.
pub(crate) fn print(text: &str) -> Result<(), Message> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.map_err(|error| Message::io(format!("could not write to standard output: {error}"))),
    }
}

impl From<Error> for Message {
    fn from(error: Error) -> Self {
        let (code, exit) = match &error {
            Error::CommandNotFound { .. } => ("COMMAND_NOT_FOUND", NOT_FOUND),
            Error::CommandNotExecutable { .. } => ("COMMAND_NOT_EXECUTABLE", NOT_EXECUTABLE),
            Error::Setup(_) | Error::JailDied | Error::StartJail(_) | Error::Talk(_) | Error::CopyProgram(_) => {
                ("BOX_NOT_MADE", BAD_INPUT)
            }
            _ => ("INVALID_ARGUMENT", BAD_INPUT),
        };
        Message::of(code, causes(&error), error.hint(), exit)
    }
}

impl From<ImageError> for Message {
    fn from(error: ImageError) -> Self {
        Message::of("IMAGE", causes(&error), Some(error.hint()), BAD_INPUT)
    }
}

impl From<Denial> for Message {
    fn from(denial: Denial) -> Self {
        Message::of("POLICY_DENIED", denial.message, denial.hint, BAD_INPUT)
    }
}

impl From<ringwall_policy::Error> for Message {
    fn from(error: ringwall_policy::Error) -> Self {
        Message::new(causes(&error))
    }
}

impl From<ringwall_ids::IdError> for Message {
    fn from(error: ringwall_ids::IdError) -> Self {
        ringwall_record::Error::from(error).into()
    }
}

impl From<ringwall_record::Error> for Message {
    fn from(error: ringwall_record::Error) -> Self {
        Message::of("RECORD", causes(&error), error.hint().map(str::to_owned), BAD_INPUT)
    }
}

impl From<ringwall_service::Error> for Message {
    fn from(error: ringwall_service::Error) -> Self {
        Message::of(error.code(), causes(&error), error.hint(), BAD_INPUT)
    }
}
