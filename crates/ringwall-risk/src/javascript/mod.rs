//! JavaScript: its nodes, its bindings, and its calls with a risk.

mod bindings;
mod calls;
mod grammar;
mod rules;

use std::sync::LazyLock;

use super::findings::{Findings, Lines};
use super::rule::{Index, Rule};
use super::work::Work;

pub(crate) static RULES: &[Rule] = rules::RULES;
pub(crate) static INDEX: LazyLock<Index> = LazyLock::new(|| Index::new(RULES));

pub(crate) fn inspect(text: &str, lines: Lines, work: &Work, findings: &mut Findings) {
    let language = tree_sitter_javascript::LANGUAGE.into();
    super::code::inspect::inspect::<grammar::JavaScript>(&language, text, lines, work, findings);
}
