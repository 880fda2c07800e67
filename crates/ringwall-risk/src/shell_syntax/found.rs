//! The result of a survey: the commands of one text, and the steps that affect relative paths.

use super::file_use::FileUse;
use super::word::Word;

#[derive(Debug)]
pub struct Found {
    pub name: Word,
    pub arguments: Vec<Word>,
    pub setting: Setting,
}

/// The context of a command.
#[derive(Debug)]
pub struct Setting {
    /// Line number from 0.
    pub row: usize,
    /// In a pipeline.
    pub piped: bool,
    /// In a pipeline after another command, whose output it reads.
    pub fed: bool,
    /// Input from a here-document or a here-string.
    pub input: Option<String>,
    /// The function that contains the command.
    pub within: Option<String>,
}

/// The target of a redirection.
#[derive(Debug)]
pub struct Redirect {
    pub target: String,
    pub writes: bool,
    /// Line number from 0.
    pub row: usize,
}

/// Steps in the shell's order. Numbers are indices in the lists of the survey.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
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
pub struct Survey {
    pub commands: Vec<Found>,
    /// Words outside of commands: targets of redirections, values, operands of tests.
    pub words: Vec<String>,
    /// Functions that the text defines in this shell.
    pub functions: Vec<String>,
    /// Text that the shell runs and the grammar did not parse.
    pub texts: Vec<String>,
    /// The line of each of `texts`, from 0.
    pub text_rows: Vec<usize>,
    /// The number of commands before each of `texts`.
    pub before_texts: Vec<usize>,
    pub steps: Vec<Step>,
    pub redirects: Vec<Redirect>,
    /// Assigned variables and their values.
    pub assignments: Vec<(String, String)>,
    /// Bytes copied for the survey.
    pub copied: usize,
}
