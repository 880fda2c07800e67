//! What a person is told when something did not work: one sentence, a hint on its own line, an exit code.

use std::borrow::Cow;
use std::io::Write;
use std::process::ExitCode;

use ringwall_executor::Error;
use ringwall_executor::image::ImageError;
use ringwall_policy::Denial;
use ringwall_service::causes;

pub(crate) use crate::inert::inert;

/// Exit codes as shells and `timeout` use them.
const BAD_INPUT: u8 = 2;
/// It could not be tried, or nobody knows what became of it.
const FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A file, a directory or a stream could not be read or written.
const IO: &str = "IO";
/// Nobody answers, or not to the end.
pub(crate) const UNREACHABLE: &str = "UNREACHABLE";
/// What answers does not answer as a server of ours.
pub(crate) const BAD_ANSWER: &str = "BAD_ANSWER";

#[derive(Debug)]
pub(crate) struct Message {
    code: Cow<'static, str>,
    text: String,
    hint: Option<String>,
    exit: u8,
    /// Whether the code is somebody else's, which a person may want to look up.
    is_remote: bool,
}

impl Message {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::of("INVALID_ARGUMENT", text, None, BAD_INPUT)
    }

    /// A file or a stream that the person named could not be read or written.
    pub(crate) fn io(text: impl Into<String>) -> Self {
        Self::of(IO, text, None, BAD_INPUT)
    }

    /// It was not the person's words.
    pub(crate) fn failed(code: &'static str, text: impl Into<String>) -> Self {
        Self::of(code, text, None, FAILED)
    }

    /// What a server says, with its own code: that it refuses something, or that it could not.
    pub(crate) fn remote(status: u16, code: impl Into<String>, text: impl Into<String>) -> Self {
        let exit = if status < 500 { BAD_INPUT } else { FAILED };
        Message { code: code.into().into(), text: text.into(), hint: None, exit, is_remote: true }
    }

    /// The same where it gives none, and the code is only what its status means.
    pub(crate) fn remote_words(status: u16, code: &'static str, text: impl Into<String>) -> Self {
        Message { is_remote: false, ..Self::remote(status, code, text) }
    }

    fn of(code: &'static str, text: impl Into<String>, hint: Option<String>, exit: u8) -> Self {
        Message { code: code.into(), text: text.into(), hint, exit, is_remote: false }
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The sentence alone.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Says which of the reader's words it is about, instead of our own word for it.
    pub(crate) fn about(mut self, subject: &str, own_word: &str) -> Self {
        let rest = self.text.strip_prefix(own_word).map_or(self.text.as_str(), |rest| rest.trim_start_matches(": "));
        self.text = format!("{subject}: {rest}");
        self
    }

    /// Tells the person at the terminal.
    pub(crate) fn print(&self) -> ExitCode {
        let hint = self.hint.as_ref().map(|hint| format!("  hint: {}\n", inert(hint))).unwrap_or_default();
        // When nobody reads our errors either, the exit code is all that is left.
        let code = if self.is_remote { format!(" ({})", inert(&self.code)) } else { String::new() };
        let _ = write!(std::io::stderr(), "ringwall: {}{code}\n{hint}", inert(&self.text));
        ExitCode::from(self.exit)
    }

    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "error": { "code": self.code, "message": self.text, "hint": self.hint } })
    }

    #[cfg(test)]
    pub(crate) fn is_failure(&self) -> bool {
        self.exit == FAILED
    }

    /// Tells the program that asked for JSON.
    pub(crate) fn print_json(&self) -> ExitCode {
        if let Err(cause) = writeln!(std::io::stdout(), "{}", self.to_json()) {
            Message::io(format!("could not write to standard output: {cause}")).print();
            return self.print();
        }
        ExitCode::from(self.exit)
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
