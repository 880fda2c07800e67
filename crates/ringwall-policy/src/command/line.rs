//! A line for the shell: its commands, and whether each is allowed.
//!
//! [`CommandLine::read`] rejects malformed lines, [`CommandLine::check`] denies commands. Nested
//! texts are parsed from a queue and up to a fixed depth, so a line cannot overflow the stack or
//! take unlimited time.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

use ringwall_risk::shell_syntax::{Found, Next, Printed, Step, Word, follow, paths, plain_name, set_apart, survey};

use super::grammar::{Budget, parse};
use super::lists::CommandLists;
use super::reserved::is_misplaced;
use crate::error::Error;
use crate::verdict::{Denial, DenialCode};

/// The shell that runs every line.
const SHELL: &str = "bash";
/// Maximum nesting of texts, as in `bash -c 'bash -c "…"'`.
const DEEPEST: u8 = 16;

/// A well-formed line.
#[derive(Debug)]
pub struct CommandLine {
    pub(super) commands: Vec<Command>,
    words: Vec<String>,
    functions: BTreeSet<(Shell, String)>,
    /// The steps of each text, the line itself first. Numbers are indices in `commands` and in this
    /// list.
    pub(super) scripts: Vec<Vec<Step>>,
    /// What comes first in each text: the texts before its first own command, then that command.
    beginnings: Vec<Vec<Part>>,
}

#[derive(Debug, Clone, Copy)]
enum Part {
    Script(usize),
    Command(usize),
}

/// One of the shells that a line starts, by number.
type Shell = u32;

#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: String,
    arguments: Vec<String>,
    shell: Shell,
    pub(super) spelled_name: String,
    pub(super) spelled: Vec<String>,
    /// The scripts that the command runs.
    pub(super) leads: Vec<Lead>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Lead {
    pub(super) script: usize,
    pub(super) place: LeadShell,
}

/// The shell in which such a script runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeadShell {
    SameShell,
    OtherShell,
}

#[derive(Debug)]
struct Task {
    what: What,
    shell: Shell,
    depth: u8,
}

#[derive(Debug)]
enum What {
    Text(String),
    Words { plain: Vec<String>, spelled: Vec<String> },
}

impl CommandLine {
    pub fn read(text: &str) -> Result<Self, Error> {
        Self::read_within(text, &mut Budget::default())
    }

    pub(super) fn read_within(text: &str, budget: &mut Budget) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(Error::CommandEmpty);
        }
        let mut line = Self {
            commands: Vec::new(),
            words: Vec::new(),
            functions: BTreeSet::new(),
            scripts: Vec::new(),
            beginnings: Vec::new(),
        };
        let mut shells = 0;
        let first = Task { what: What::Text(text.to_owned()), shell: 0, depth: 0 };
        let mut tasks = VecDeque::from([first]);
        while let Some(task) = tasks.pop_front() {
            if task.depth > DEEPEST {
                return Err(Error::CommandTooComplex);
            }
            let known = line.commands.len();
            let below = |what, shell| Task { what, shell, depth: task.depth + 1 };
            // Tasks become scripts in the order of the queue, so this is the index of the next new
            // script.
            let first_free = line.scripts.len() + 1 + tasks.len();
            match task.what {
                What::Text(text) => {
                    let texts = line.take(&text, task.shell, first_free, budget)?;
                    tasks.extend(texts.into_iter().map(|text| below(What::Text(text), task.shell)));
                }
                What::Words { plain, spelled } => {
                    budget.read(plain.iter().map(|word| word.len() + 1).sum())?;
                    line.scripts.push(vec![Step::Run(known)]);
                    line.beginnings.push(vec![Part::Command(known)]);
                    line.commands.extend(Command::of_words(plain, spelled, task.shell));
                }
            }
            for command in &mut line.commands[known..] {
                for next in follow(&command.name, &command.arguments) {
                    let script = line.scripts.len() + tasks.len();
                    let (what, shell, place) = match next {
                        Next::Words { at, words } => {
                            let spelled = command.spelled.get(at..at + words.len()).unwrap_or_default().to_vec();
                            (What::Words { plain: words, spelled }, command.shell, LeadShell::SameShell)
                        }
                        Next::Text(text) => (What::Text(text), command.shell, LeadShell::SameShell),
                        Next::OtherShell(text) => {
                            shells += 1;
                            (What::Text(text), shells, LeadShell::OtherShell)
                        }
                    };
                    command.leads.push(Lead { script, place });
                    tasks.push_back(below(what, shell));
                }
            }
        }
        Ok(line)
    }

    /// Collects the commands of one text. Returns the texts to parse next; the first of them
    /// becomes script number `script`.
    fn take(&mut self, text: &str, shell: Shell, script: usize, budget: &mut Budget) -> Result<Vec<String>, Error> {
        let text = &*close(text);
        let text = &*set_apart(text);
        let tree = parse(text, budget)?;
        let found = survey(&tree, text).ok_or(Error::CommandTooComplex)?;
        budget.copy(found.copied)?;
        let known = self.commands.len();
        let placed = found.steps.into_iter().map(|step| match step {
            Step::Run(command) => Step::Run(known + command),
            Step::Text(text) => Step::Text(script + text),
            other => other,
        });
        self.scripts.push(placed.collect());
        let leading = found.before_texts.iter().enumerate().filter(|(_, before)| **before == 0);
        let leading = leading.map(|(number, _)| Part::Script(script + number));
        let own = found.commands.first().map(|_| Part::Command(known));
        self.beginnings.push(leading.chain(own).collect());
        self.commands.extend(found.commands.into_iter().map(|command| Command::found(command, shell)));
        self.words.extend(found.words);
        self.functions.extend(found.functions.into_iter().map(|name| (shell, name)));
        Ok(found.texts)
    }

    /// The first command of the line, which may be in a nested text.
    fn first(&self) -> Option<usize> {
        let mut parts = vec![Part::Script(0)];
        while let Some(part) = parts.pop() {
            match part {
                Part::Command(command) => return Some(command),
                Part::Script(script) => {
                    parts.extend(self.beginnings.get(script).into_iter().flatten().rev());
                }
            }
        }
        None
    }

    /// Denies the first command that is not allowed at its position, or a misplaced `SKILL.md`.
    ///
    /// Commands are in the order of the text; those of nested texts follow the text's own.
    pub fn check(&self, lists: &CommandLists) -> Result<(), Denial> {
        // A line without commands, such as an assignment, runs in the shell, which an empty list
        // does not allow.
        if self.commands.is_empty() && lists.allow_none() {
            return Err(not_allowed(SHELL));
        }
        let first = self.first();
        let is_function = |command: &Command| self.functions.contains(&(command.shell, command.name.clone()));
        let begins = first.and_then(|first| self.commands.get(first)).filter(|one| !lists.may_begin(&one.name));
        let further = self.commands.iter().enumerate().filter(|(at, _)| Some(*at) != first).map(|(_, one)| one);
        let mut refused = further.filter(|command| !lists.may_stand(&command.name) && !is_function(command));
        if let Some(refused) = begins.or_else(|| refused.next()) {
            return Err(not_allowed(&refused.name));
        }
        let arguments = self.commands.iter();
        let arguments = arguments.flat_map(|command| paths(&command.name, &command.arguments, Printed::AreTexts));
        match arguments.chain(self.words.iter().map(String::as_str)).any(|word| is_misplaced(word, "")) {
            true => Err(misplaced()),
            false => Ok(()),
        }
    }

    /// True if the line names a program that is useless without a network.
    pub fn wants_network(&self) -> bool {
        self.commands.iter().any(|command| wants_network(&command.name, &command.arguments))
    }
}

/// A backslash at the end of the text is literal for the shell but an error for the grammar.
fn close(text: &str) -> Cow<'_, str> {
    let backslashes = text.len() - text.trim_end_matches('\\').len();
    if backslashes.is_multiple_of(2) { Cow::Borrowed(text) } else { Cow::Owned(format!("{text}\\")) }
}

impl Command {
    fn found(found: Found, shell: Shell) -> Self {
        let (arguments, spelled) = found.arguments.into_iter().map(|word| (word.plain, word.spelled)).unzip();
        let Word { plain: name, spelled: spelled_name, .. } = found.name;
        Self { name, arguments, shell, spelled_name, spelled, leads: Vec::new() }
    }

    fn of_words(plain: Vec<String>, spelled: Vec<String>, shell: Shell) -> Option<Self> {
        let (mut plain, mut spelled) = (plain.into_iter(), spelled.into_iter());
        let (name, spelled_name) = (plain.next()?, spelled.next()?);
        let (arguments, spelled) = (plain.collect(), spelled.collect());
        Some(Self { name, arguments, shell, spelled_name, spelled, leads: Vec::new() })
    }
}

pub(super) fn wants_network(name: &str, arguments: &[String]) -> bool {
    let is_module = |words: &[String]| words == ["-m", "pip"];
    match plain_name(name) {
        "curl" | "pip" | "pip3" | "wget" => true,
        "python" | "python3" => arguments.windows(2).any(is_module),
        _ => false,
    }
}

pub(super) fn not_allowed(name: &str) -> Denial {
    const SHOWN: usize = 80;
    let mut shown: String = name.chars().take(SHOWN).map(|one| if one.is_control() { ' ' } else { one }).collect();
    if name.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    Denial::new(DenialCode::CommandNotAllowed, format!("Security Error: Command '{shown}' is not allowed."))
}

pub(super) fn misplaced() -> Denial {
    Denial::new(
        DenialCode::FileReserved,
        "Security Error: 'SKILL.md' is a system reserved file. You can only create/edit it at the root of a skill \
         (e.g., skills/my_skill/SKILL.md).",
    )
}
