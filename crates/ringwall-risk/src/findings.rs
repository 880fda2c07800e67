//! Collects findings, each once per line, and nested texts that are still to be assessed.
//!
//! The number of findings is limited per level.

use std::collections::{BTreeMap, HashSet};

use super::level::{Content, Level, Locale};
use super::rule::{Index, Rule};

/// Per level, so that many harmless findings cannot displace a severe one.
const MAX_PER_LEVEL: usize = 50;
/// Maximum number of nested texts.
const MAX_TEXTS: usize = 256;

/// A match of a rule at a line.
#[derive(Debug, Clone, Copy)]
pub struct Finding {
    pub rule: &'static Rule,
    /// From 1.
    pub line: usize,
}

impl PartialEq for Finding {
    /// The id identifies a rule.
    fn eq(&self, other: &Self) -> bool {
        (self.rule.id, self.line) == (other.rule.id, other.line)
    }
}

impl Eq for Finding {}

impl Finding {
    pub fn message(&self, locale: Locale) -> &'static str {
        self.rule.sentence(locale)
    }
}

/// The lines of the content to which the rows of a nested text correspond, from 1.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lines {
    /// The first row is this line; the others follow.
    From(usize),
    /// The text is put together elsewhere; all rows are reported at this line.
    All(usize),
}

impl Lines {
    /// The line of a row. Rows count from 0.
    pub(crate) fn of(self, row: usize) -> usize {
        match self {
            Lines::From(first) => first + row,
            Lines::All(line) => line,
        }
    }

    /// For a text that starts in this row of the current one.
    pub(crate) fn within(self, row: usize) -> Self {
        match self {
            Lines::From(first) => Lines::From(first + row),
            Lines::All(line) => Lines::All(line),
        }
    }
}

/// A text that is contained in another one and run by it.
#[derive(Debug)]
pub(crate) struct Nested {
    pub(crate) content: Content,
    pub(crate) text: String,
    pub(crate) lines: Lines,
}

#[derive(Debug)]
pub(crate) struct Findings {
    /// The number of the content's last line.
    last: usize,
    list: Vec<Finding>,
    kept: BTreeMap<Level, usize>,
    seen: HashSet<(&'static str, usize)>,
    nested: Vec<Nested>,
    texts: usize,
    /// The first nested text above the limit.
    unread: Option<(Content, usize)>,
}

impl Findings {
    pub(crate) fn of(text: &str) -> Self {
        let last = text.lines().count().max(1);
        let (list, kept, seen, nested) = (Vec::new(), BTreeMap::new(), HashSet::new(), Vec::new());
        Findings { last, list, kept, seen, nested, texts: 0, unread: None }
    }

    pub(crate) fn add(&mut self, rule: &'static Rule, line: usize) {
        let line = line.min(self.last);
        let kept = self.kept.entry(rule.level).or_default();
        if *kept < MAX_PER_LEVEL && self.seen.insert((rule.id, line)) {
            *kept += 1;
            self.list.push(Finding { rule, line });
        }
    }

    pub(crate) fn add_by_id(&mut self, index: &Index, id: &str, line: usize) {
        if let Some(rule) = index.by_id(id) {
            self.add(rule, line);
        }
    }

    pub(crate) fn nest(&mut self, content: Content, text: &str, lines: Lines) {
        match self.texts < MAX_TEXTS {
            true => self.nested.push(Nested { content, text: text.to_owned(), lines }),
            false => drop(self.unread.get_or_insert((content, lines.of(0)))),
        }
        self.texts += 1;
    }

    /// The nested texts found since the last call.
    pub(crate) fn nested(&mut self) -> Vec<Nested> {
        std::mem::take(&mut self.nested)
    }

    pub(crate) fn unread(&self) -> Option<(Content, usize)> {
        self.unread
    }

    /// Sorted by line, the most severe finding of a line first.
    pub(crate) fn sorted(mut self) -> Vec<Finding> {
        self.list.sort_by_key(|finding| (finding.line, std::cmp::Reverse(finding.rule.level), finding.rule.id));
        self.list
    }

    pub(crate) fn level(&self) -> Level {
        self.list.iter().map(|finding| finding.rule.level).max().unwrap_or(Level::Safe)
    }
}
