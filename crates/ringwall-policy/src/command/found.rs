//! What is found in one text: its commands, and what happens in which order as far as it matters to where paths lead.

use super::word::Word;
use crate::reach::FileUse;

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) name: Word,
    pub(crate) arguments: Vec<Word>,
    pub(crate) setting: Setting,
}

/// Where a command stands, and what it reads.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its line, from 0.
    pub(crate) row: usize,
    /// Whether it stands in a pipe, and whether there is something before it there.
    pub(crate) piped: bool,
    pub(crate) fed: bool,
    /// What a here-document or a here-string gives it to read.
    pub(crate) input: Option<String>,
    /// The function that it is a part of.
    pub(crate) within: Option<String>,
}

/// A file that is opened for a command.
#[derive(Debug)]
pub(crate) struct Redirect {
    pub(crate) target: String,
    pub(crate) writes: bool,
    /// From 0.
    pub(crate) row: usize,
}

/// What happens, in the shell's order. Numbers are places in the lists of the survey.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A command runs.
    Run(usize),
    /// A file is opened by a redirection, or asked about.
    Open { word: String, usage: FileUse },
    /// A variable takes one of these values; where there is none, one that nobody knows.
    Assign { name: String, values: Vec<String> },
    /// A text is run in a shell of its own.
    Text(usize),
    /// Whatever changed since that step is as it was before.
    Back(usize),
}

#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(crate) commands: Vec<Found>,
    /// Words beside commands: targets of redirections, values, what is tested.
    pub(crate) words: Vec<String>,
    /// Names that are functions afterwards, in this shell.
    pub(crate) functions: Vec<String>,
    /// Texts that the shell runs and the grammar did not read.
    pub(crate) texts: Vec<String>,
    /// The row in which each of them stands, from 0.
    pub(crate) text_rows: Vec<usize>,
    /// How many commands stand before each of them.
    pub(crate) before_texts: Vec<usize>,
    pub(crate) steps: Vec<Step>,
    pub(crate) redirects: Vec<Redirect>,
    /// Variables and the texts that are assigned to them.
    pub(crate) assignments: Vec<(String, String)>,
    /// How many bytes were copied for all of this.
    pub(crate) copied: usize,
}
