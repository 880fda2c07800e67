//! A command to be judged: its words after expansion of known variables.

use std::collections::HashMap;

use crate::findings::Lines;
use crate::shell_syntax::Found;
use crate::work::Work;

#[derive(Debug)]
pub(super) struct Command {
    pub(super) name: String,
    pub(super) arguments: Vec<String>,
    /// Lines, starting at that of the command.
    pub(super) lines: Lines,
    /// True if it reads the output of another command of its pipeline.
    pub(super) fed: bool,
    pub(super) input: Option<String>,
}

impl Command {
    /// Includes only the words for which there is work left.
    pub(super) fn new(found: &Found, variables: &Variables, lines: Lines, work: &Work) -> Self {
        let words = std::iter::once(&found.name).chain(&found.arguments).take_while(|_| !work.is_spent());
        let mut words = words.flat_map(|word| {
            let expanded = variables.expand(&word.plain);
            work.spend_text(expanded.len());
            // The value of an unquoted variable is split at whitespace.
            if !word.is_quoted && expanded != word.plain && !expanded.contains(['$', '`']) {
                expanded.split_whitespace().map(str::to_owned).collect()
            } else {
                vec![expanded]
            }
        });
        let name = words.next().unwrap_or_default();
        let arguments = words.collect();
        let setting = &found.setting;
        Command { name, arguments, lines: lines.within(setting.row), fed: setting.fed, input: setting.input.clone() }
    }

    /// The bytes of all words and of the input, weighted by how often they are searched.
    pub(super) fn length(&self) -> usize {
        let words = std::iter::once(&self.name).chain(&self.arguments).map(|word| word.len() * 16);
        words.sum::<usize>() + self.input.as_ref().map_or(0, String::len)
    }

    pub(super) fn line(&self) -> usize {
        self.lines.of(0)
    }

    /// The command that this one runs.
    pub(super) fn led_to(&self, words: Vec<String>) -> Option<Command> {
        let mut words = words.into_iter();
        let name = words.next()?;
        Some(Command { name, arguments: words.collect(), lines: self.lines, fed: self.fed, input: self.input.clone() })
    }

    pub(super) fn has(&self, options: &[&str]) -> bool {
        self.arguments.iter().any(|argument| options.contains(&argument.as_str()))
    }

    /// True if one of these letters is among the short options.
    pub(super) fn has_letter(&self, letters: &[char]) -> bool {
        let is_short = |argument: &&String| argument.starts_with('-') && !argument.starts_with("--");
        self.arguments.iter().take_while(|argument| *argument != "--").filter(is_short).any(|one| one.contains(letters))
    }

    /// The arguments that are not options.
    pub(super) fn operands(&self) -> impl Iterator<Item = &str> {
        let end = self.arguments.iter().position(|argument| argument == "--").unwrap_or(self.arguments.len());
        let is_operand =
            move |(at, argument): &(usize, &String)| *at > end || (*at < end && !argument.starts_with('-'));
        self.arguments.iter().enumerate().filter(is_operand).map(|(_, argument)| argument.as_str())
    }
}

/// Variables that have the same value in all assignments.
#[derive(Debug)]
pub(super) struct Variables<'a> {
    known: HashMap<&'a str, Option<&'a str>>,
}

/// Maximum length of an expanded word.
const MAX_LEN: usize = 4096;

impl<'a> Variables<'a> {
    pub(super) fn new(assignments: &'a [(String, String)]) -> Self {
        let mut known: HashMap<&str, Option<&str>> = HashMap::from([("IFS", Some(" "))]);
        for (name, value) in assignments {
            let is_plain = value.len() <= MAX_LEN && !value.contains(['$', '`']);
            let value = is_plain.then_some(value.as_str());
            known.entry(name).and_modify(|known| *known = known.filter(|known| Some(*known) == value)).or_insert(value);
        }
        Variables { known }
    }

    pub(super) fn expand(&self, word: &str) -> String {
        let mut whole = String::new();
        let mut rest = word;
        while let Some(at) = rest.find('$') {
            whole.push_str(&rest[..at]);
            let (name, length) = variable(&rest[at + 1..]);
            match self.known.get(name) {
                Some(Some(value)) if whole.len() + value.len() <= MAX_LEN => whole.push_str(value),
                _ => whole.push_str(&rest[at..=at + length]),
            }
            rest = &rest[at + 1 + length..];
        }
        whole.push_str(rest);
        whole
    }
}

/// The name of a variable after a `$`, and the length of the text that it takes.
fn variable(text: &str) -> (&str, usize) {
    let is_name = |character: char| character.is_ascii_alphanumeric() || character == '_';
    match text.strip_prefix('{') {
        Some(inner) => match inner.find('}') {
            Some(end) if inner[..end].chars().all(is_name) => (&inner[..end], end + 2),
            _ => ("", 0),
        },
        None => {
            let length = text.find(|character| !is_name(character)).unwrap_or(text.len());
            (&text[..length], length)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_with_one_value_is_expanded() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let assigned = [pair("a", "rm"), pair("b", "x"), pair("b", "y"), pair("c", "$a"), pair("é", "z")];
        let variables = Variables::new(&assigned);
        let table = [
            ("$a", "rm"),
            ("${a}b", "rmb"),
            ("$b$a", "$brm"),
            ("$c", "$c"),
            ("$", "$"),
            ("${a", "${a"),
            ("x${IFS}y", "x y"),
            ("$é", "$é"),
        ];
        for (word, expected) in table {
            assert_eq!(variables.expand(word), expected, "{word}");
        }
    }
}
