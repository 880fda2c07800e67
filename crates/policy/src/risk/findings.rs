//! What was found so far, each thing once per line, and what is still to be read: texts within the text.
//!
//! The number of findings is bounded; the worst are kept.

use std::collections::HashSet;

use super::level::{Content, Level, Locale};
use super::rule::{Index, Rule};

const MOST: usize = 200;

/// One thing that deserves care, where it stands.
#[derive(Debug, Clone, Copy)]
pub struct Finding {
    pub rule: &'static Rule,
    /// From 1.
    pub line: usize,
}

impl PartialEq for Finding {
    /// A rule is known by its id.
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

/// A text that stands in another one and is run by it.
#[derive(Debug)]
pub(crate) struct Nested {
    pub(crate) content: Content,
    pub(crate) text: String,
    pub(crate) line: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    seen: HashSet<(&'static str, usize)>,
    pub(crate) nested: Vec<Nested>,
}

impl Findings {
    pub(crate) fn add(&mut self, rule: &'static Rule, line: usize) {
        // Of each level some are kept, so that a thousand harmless ones cannot push a grave one out.
        let kept = self.list.iter().filter(|finding| finding.rule.level == rule.level).count();
        if kept < MOST / 4 && self.seen.insert((rule.id, line)) {
            self.list.push(Finding { rule, line });
        }
    }

    pub(crate) fn add_by_id(&mut self, index: &Index, id: &str, line: usize) {
        if let Some(rule) = index.by_id(id) {
            self.add(rule, line);
        }
    }

    pub(crate) fn nest(&mut self, content: Content, text: &str, line: usize) {
        self.nested.push(Nested { content, text: text.to_owned(), line });
    }

    /// By line, the gravest of a line first.
    pub(crate) fn sorted(mut self) -> Vec<Finding> {
        self.list.sort_by_key(|finding| (finding.line, std::cmp::Reverse(finding.rule.level), finding.rule.id));
        self.list
    }

    pub(crate) fn level(&self) -> Level {
        self.list.iter().map(|finding| finding.rule.level).max().unwrap_or(Level::Safe)
    }
}
