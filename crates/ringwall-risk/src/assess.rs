//! Assesses a content together with the texts that it passes to other interpreters.

use std::collections::VecDeque;

use super::findings::{Finding, Findings, Lines, Nested};
use super::level::{Content, Level, Locale};
use super::rule::{Index, Refusal, Rule};
use super::work::Work;
use super::{browser, javascript, python, shell};

/// Maximum length of a content. Callers reject longer ones.
pub const MAX_CONTENT: usize = 1024 * 1024;
/// Maximum nesting of texts.
const DEEPEST: u8 = 6;
/// Limit of the bytes of nested texts, in addition to twice the content's length: one text can be
/// run at many places.
const ANY_NESTED: usize = 16 * 1024;

/// The stack that the assessment of a text of this length needs. The parser recurses for some
/// nested brackets; up to 48 bytes of stack per byte of text were measured. Our own walks have a
/// maximum depth.
pub const fn stack_needed(length: usize) -> usize {
    1024 * 1024 + 128 * length
}

#[derive(Debug)]
pub struct Assessment {
    pub content: Content,
    pub level: Level,
    /// Sorted by line.
    pub findings: Vec<Finding>,
}

impl Assessment {
    /// The message of the most severe finding.
    pub fn reason(&self, locale: Locale) -> String {
        let worst = self.findings.iter().find(|finding| finding.rule.level == self.level);
        match (worst, locale) {
            (Some(finding), Locale::English) => format!("{} (line {})", finding.message(locale), finding.line),
            (Some(finding), Locale::Chinese) => format!("{}（第 {} 行）", finding.message(locale), finding.line),
            (None, Locale::English) => "No risk was found.".to_owned(),
            (None, Locale::Chinese) => "未发现需要注意的内容。".to_owned(),
        }
    }

    pub fn requires_confirmation(&self) -> bool {
        self.level.asks()
    }

    /// True if strict mode requires one of the operator's stronger isolations.
    pub fn requires_isolation(&self) -> bool {
        self.level > Level::Safe
    }

    /// The isolation that fits best if all are available.
    pub fn suggested_sandbox(&self) -> &'static str {
        match (self.content, self.level) {
            (Content::Browser, _) => "aio",
            (_, Level::Safe | Level::Low) => "native",
            (_, Level::Medium) => "docker",
            (_, Level::High | Level::Critical) => "gvisor",
        }
    }

    /// The finding that strict mode denies, if any.
    pub fn refused(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.rule.refusal == Refusal::Refused)
    }

    /// The message of the denial.
    pub fn refusal(&self, locale: Locale) -> Option<String> {
        let sentence = self.refused()?.message(locale);
        Some(match locale {
            Locale::English => format!("Execution refused: {sentence}"),
            Locale::Chinese => format!("执行被拒绝: {sentence}"),
        })
    }
}

/// All rules of all languages.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [python::RULES, javascript::RULES, shell::RULES, browser::RULES].into_iter().flatten()
}

pub fn assess(content: Content, text: &str) -> Assessment {
    assess_within(&Work::for_length(text.len()), content, text)
}

/// `assess` with a given limit of work.
pub(super) fn assess_within(work: &Work, content: Content, text: &str) -> Assessment {
    let mut findings = Findings::of(text);
    let first = Nested { content, text: text.to_owned(), lines: Lines::From(1) };
    let mut waiting = VecDeque::from([(first, 0)]);
    let mut room = ANY_NESTED + 3 * text.len();
    while let Some((task, depth)) = waiting.pop_front() {
        let fits = task.text.len() <= room.min(MAX_CONTENT);
        room = room.saturating_sub(task.text.len());
        if depth > DEEPEST || !fits || !work.spend_text(8 * task.text.len()) {
            let (index, id) = too_complex(task.content);
            findings.add_by_id(index, id, task.lines.of(0));
            continue;
        }
        // Parsers take NUL for the end of the text.
        let text = task.text.replace('\0', "\u{fffd}");
        match task.content {
            Content::Python => python::inspect(&text, task.lines, work, &mut findings),
            Content::Javascript => javascript::inspect(&text, task.lines, work, &mut findings),
            Content::Shell => shell::inspect(&text, task.lines, work, &mut findings),
            Content::Browser => browser::inspect(&text, &mut findings),
        }
        waiting.extend(findings.nested().into_iter().map(|nested| (nested, depth + 1)));
    }
    if let Some((content, line)) = findings.unread() {
        let (index, id) = too_complex(content);
        findings.add_by_id(index, id, line);
    }
    Assessment { content, level: findings.level(), findings: findings.sorted() }
}

fn too_complex(content: Content) -> (&'static Index, &'static str) {
    match content {
        Content::Python => (&python::INDEX, "py.too_complex"),
        Content::Javascript => (&javascript::INDEX, "js.too_complex"),
        Content::Shell => (&shell::INDEX, "sh.too_complex"),
        Content::Browser => (&browser::INDEX, "web.too_complex"),
    }
}
