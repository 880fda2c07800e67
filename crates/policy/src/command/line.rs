//! A line for the shell: all its commands, and whether each may be there.
//!
//! Reading finds what is no line at all; checking finds what is not allowed. Texts within texts are read by a list of
//! what is still to do and to a bounded depth, so that no line can take our stack or our time.

use std::collections::{BTreeSet, VecDeque};

use super::follow::{Next, follow};
use super::grammar::{Budget, parse};
use super::lists::{CommandLists, plain_name};
use super::operands::{Printed, paths};
use super::reserved::is_misplaced;
use super::survey::survey;
use crate::error::Error;
use crate::reach::{HostPath, normalise};
use crate::verdict::{Denial, DenialCode};

/// How deep texts may lie in texts: `bash -c 'bash -c "…"'`.
const DEEPEST: u8 = 16;

/// A line that is well-formed.
#[derive(Debug)]
pub struct CommandLine {
    commands: Vec<Command>,
    words: Vec<String>,
    functions: BTreeSet<(Shell, String)>,
}

/// One of the shells that a line needs, by number.
type Shell = u32;

#[derive(Debug)]
struct Command {
    name: String,
    arguments: Vec<String>,
    shell: Shell,
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
    Words(Vec<String>),
}

impl CommandLine {
    pub fn read(text: &str) -> Result<Self, Error> {
        if text.trim().is_empty() {
            return Err(Error::CommandEmpty);
        }
        let mut line = Self { commands: Vec::new(), words: Vec::new(), functions: BTreeSet::new() };
        let mut budget = Budget::default();
        let mut shells = 0;
        let first = Task { what: What::Text(text.to_owned()), shell: 0, depth: 0 };
        let mut tasks = VecDeque::from([first]);
        while let Some(task) = tasks.pop_front() {
            if task.depth > DEEPEST {
                return Err(Error::CommandTooComplex);
            }
            let known = line.commands.len();
            let below = |what, shell| Task { what, shell, depth: task.depth + 1 };
            match task.what {
                What::Text(text) => {
                    let texts = line.take(&text, task.shell, &mut budget)?;
                    tasks.extend(texts.into_iter().map(|text| below(What::Text(text), task.shell)));
                }
                What::Words(words) => {
                    budget.read(words.iter().map(|word| word.len() + 1).sum())?;
                    line.commands.extend(words.split_first().map(|(name, arguments)| Command {
                        name: name.clone(),
                        arguments: arguments.to_vec(),
                        shell: task.shell,
                    }));
                }
            }
            for command in &line.commands[known..] {
                for next in follow(&command.name, &command.arguments) {
                    tasks.push_back(match next {
                        Next::Words(words) => below(What::Words(words), command.shell),
                        Next::Text(text) => below(What::Text(text), command.shell),
                        Next::OtherShell(text) => {
                            shells += 1;
                            below(What::Text(text), shells)
                        }
                    });
                }
            }
        }
        Ok(line)
    }

    /// Takes what one text holds, and gives the texts that are to be read after it.
    fn take(&mut self, text: &str, shell: Shell, budget: &mut Budget) -> Result<Vec<String>, Error> {
        let tree = parse(text, budget)?;
        let found = survey(&tree, text);
        self.commands.extend(found.commands.into_iter().map(|command| Command {
            name: command.name,
            arguments: command.arguments,
            shell,
        }));
        self.words.extend(found.words);
        self.functions.extend(found.functions.into_iter().map(|name| (shell, name)));
        Ok(found.texts)
    }

    /// The first command that no list has, or a `SKILL.md` where none may be.
    pub fn check(&self, lists: &CommandLists) -> Result<(), Denial> {
        for command in &self.commands {
            let is_listed = lists.may_stand(&command.name);
            if !is_listed && !self.functions.contains(&(command.shell, command.name.clone())) {
                return Err(not_allowed(&command.name));
            }
        }
        let arguments = self.commands.iter();
        let arguments = arguments.flat_map(|command| paths(&command.name, &command.arguments, Printed::AreTexts));
        match arguments.chain(self.words.iter().map(String::as_str)).any(|word| is_misplaced(word, "")) {
            true => Err(misplaced()),
            false => Ok(()),
        }
    }

    /// Whether a command of this name stands in it.
    pub fn names(&self, name: &str) -> bool {
        self.commands.iter().any(|command| command.name == name)
    }

    /// The paths that it names, each once and in their order: from `cwd` where they are relative.
    pub fn operands(&self, cwd: &str, home: &str) -> Result<Vec<HostPath>, Error> {
        let arguments = self.commands.iter();
        let arguments = arguments.flat_map(|command| paths(&command.name, &command.arguments, Printed::AreTexts));
        let mut named: Vec<HostPath> = Vec::new();
        for word in arguments.chain(self.words.iter().map(String::as_str)) {
            if let Ok(path) = normalise(word, cwd, Some(home))
                && !word.starts_with('-')
                && !word.contains(['$', '`'])
                && !named.contains(&path)
            {
                named.push(path);
            }
        }
        Ok(named)
    }

    /// Whether it names a program that is of use with a network alone.
    pub fn wants_network(&self) -> bool {
        self.commands.iter().any(|command| wants_network(&command.name, &command.arguments))
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
