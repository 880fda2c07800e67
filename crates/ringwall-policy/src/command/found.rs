//! The result of a survey: the commands of one text, and the steps that affect relative paths.

use super::word::Word;
use crate::reach::FileUse;

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: Word,
    pub(crate) arguments: Vec<Word>,
    pub(crate) setting: Setting,
}

/// The context of a command.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Line number from 0.
    pub(crate) row: usize,
    /// In a pipeline.
    pub(crate) piped: bool,
    /// In a pipeline after another command, whose output it reads.
    pub(crate) fed: bool,
    /// Input from a here-document or a here-string.
    pub(crate) input: Option<String>,
    /// The function that contains the command.
    pub(crate) within: Option<String>,
}

/// The target of a redirection.
#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) target: String,
    pub(crate) writes: bool,
    /// Line number from 0.
    pub(crate) row: usize,
}

/// Steps in the shell's order. Numbers are indices in the lists of the survey.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A command runs.
    Run(usize),
    /// A redirection or a test opens a file.
    Open { word: String, usage: FileUse },
    /// A variable gets one of these values; without values it becomes unknown.
    Assign { name: String, values: Vec<String> },
    /// A text runs in a shell of its own.
    Text(usize),
    /// All changes since that step are undone.
    Back(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) commands: Vec<Found>,
    /// Words outside of commands: targets of redirections, values, operands of tests.
    pub(crate) words: Vec<String>,
    /// Functions that the text defines in this shell.
    pub(crate) functions: Vec<String>,
    /// Text that the shell runs and the grammar did not parse.
    pub(crate) texts: Vec<String>,
    /// The line of each of `texts`, from 0.
    pub(crate) text_rows: Vec<usize>,
    /// The number of commands before each of `texts`.
    pub(crate) before_texts: Vec<usize>,
    pub(crate) steps: Vec<Step>,
    pub(crate) redirects: Vec<Redirect>,
    /// Assigned variables and their values.
    pub(crate) assignments: Vec<(String, String)>,
    /// Bytes copied for the survey.
    pub(crate) copied: usize,
}
