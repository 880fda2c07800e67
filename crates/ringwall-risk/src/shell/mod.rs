//! Assesses shell text: finds its commands with the survey of [`crate::shell_syntax`] and judges each.
//!
//! Commands that run others are followed. Text that they pass to a shell, Python or Node is
//! assessed as a nested text.

mod commands;
mod judge;
mod rules;
mod tools;
mod words;

use std::collections::HashSet;
use std::sync::LazyLock;

use super::code::parse::{Steps, parse};
use super::findings::{Findings, Lines};
use super::level::Content;
use super::rule::{Index, Rule};
use super::work::Work;
use crate::shell_syntax::{Next, find_fault, follow, plain_name, set_apart, survey};
use commands::{Command, Variables};

pub(crate) use words::{names_everything, quoted};

pub(crate) static RULES: &[Rule] = rules::RULES;
pub(crate) static INDEX: LazyLock<Index> = LazyLock::new(|| Index::new(RULES));

/// Work to judge a command, and per word of it: both are compared with many tables.
const PER_COMMAND: usize = 600;
const PER_WORD: usize = 60;
/// Maximum length of a chain of commands that run each other: `sudo nice env …`.
const DEEPEST: u8 = 16;

pub(crate) fn inspect(text: &str, lines: Lines, work: &Work, findings: &mut Findings) {
    let text = &*set_apart(text);
    let tree = parse(&tree_sitter_bash::LANGUAGE.into(), text, Steps::Copying, work);
    let found = tree.and_then(|tree| {
        let fault = find_fault(&tree).map(|fault| fault.start_position().row);
        let found = survey(&tree, text)?;
        work.spend_text(found.copied).then_some((found, fault))
    });
    let Some((found, fault)) = found else {
        findings.add_by_id(&INDEX, "sh.too_complex", lines.of(0));
        return;
    };
    if let Some(row) = fault {
        findings.add_by_id(&INDEX, "sh.syntax", lines.of(row));
    }
    let variables = Variables::new(&found.assignments);
    let functions: HashSet<&str> = found.functions.iter().map(String::as_str).collect();
    for redirect in &found.redirects {
        let target = variables.expand(&redirect.target);
        if !work.spend(PER_WORD) || !work.spend_text(16 * target.len()) {
            findings.add_by_id(&INDEX, "sh.too_complex", lines.of(redirect.row));
            return;
        }
        judge::redirect(&target, redirect.writes, lines.of(redirect.row), findings);
    }
    for (text, row) in found.texts.iter().zip(&found.text_rows) {
        findings.nest(Content::Shell, text, lines.within(*row));
    }
    let mut calls_itself = std::collections::HashMap::new();
    for command in &found.commands {
        if command.setting.within.as_deref() == Some(command.name.plain.as_str()) {
            let times = calls_itself.entry(command.name.plain.as_str()).or_insert(0);
            *times += if command.setting.piped { 2 } else { 1 };
            if *times == 2 {
                findings.add_by_id(&INDEX, "sh.bomb", lines.of(command.setting.row));
            }
        }
    }
    for command in &found.commands {
        let mut waiting = vec![(Command::new(command, &variables, lines, work), 0)];
        while let Some((command, depth)) = waiting.pop() {
            let has_work =
                work.spend(PER_COMMAND + PER_WORD * command.arguments.len()) && work.spend_text(command.length());
            if depth > DEEPEST || !has_work {
                findings.add_by_id(&INDEX, "sh.too_complex", command.line());
                return;
            }
            if functions.contains(command.name.as_str()) {
                continue;
            }
            judge::command(&command, findings);
            let name = plain_name(&command.name);
            let next = follow(words::shell_alias(name), &command.arguments).into_iter();
            for next in next.chain(tools::follow(name, &command.arguments)) {
                match next {
                    Next::Words { words, .. } => waiting.extend(command.led_to(words).map(|next| (next, depth + 1))),
                    Next::Text(text) | Next::OtherShell(text) => findings.nest(Content::Shell, &text, command.lines),
                }
            }
        }
    }
}
