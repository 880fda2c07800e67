//! Everything together: a content, and the texts that it hands to other interpreters, become one assessment.

use std::collections::VecDeque;

use super::findings::{Finding, Findings, Lines, Nested};
use super::level::{Content, Level, Locale};
use super::rule::{Index, Refusal, Rule};
use super::work::Work;
use super::{browser, javascript, python, shell};

/// The most that is judged; whatever takes requests refuses more.
pub const MAX_CONTENT: usize = 1024 * 1024;
/// How deep texts may lie in texts.
const DEEPEST: u8 = 6;
/// How much of texts in texts is read, beside twice the length of the content: one of them can be run in many places.
const ANY_NESTED: usize = 16 * 1024;

/// How large a stack has to be to judge a text of this length. Our own walks are loops, but the parser's code calls itself once for
/// each of certain brackets within brackets: it took up to 48 bytes of stack for each byte of text.
pub const fn stack_needed(length: usize) -> usize {
    1024 * 1024 + 128 * length
}

#[derive(Debug)]
pub struct Assessment {
    pub content: Content,
    pub level: Level,
    /// By line.
    pub findings: Vec<Finding>,
}

impl Assessment {
    /// The gravest thing that was found, in a sentence.
    pub fn reason(&self, locale: Locale) -> String {
        let worst = self.findings.iter().find(|finding| finding.rule.level == self.level);
        match (worst, locale) {
            (Some(finding), Locale::English) => format!("{} (line {})", finding.message(locale), finding.line),
            (Some(finding), Locale::Chinese) => format!("{}（第 {} 行）", finding.message(locale), finding.line),
            (None, Locale::English) => "Nothing in it calls for care.".to_owned(),
            (None, Locale::Chinese) => "未发现需要注意的内容。".to_owned(),
        }
    }

    pub fn requires_confirmation(&self) -> bool {
        self.level.asks()
    }

    /// Whether the strict mode demands one of the stronger boxes that it names.
    pub fn requires_isolation(&self) -> bool {
        self.level > Level::Safe
    }

    /// What fits it best where everything is there.
    pub fn suggested_sandbox(&self) -> &'static str {
        match (self.content, self.level) {
            (Content::Browser, _) => "aio",
            (_, Level::Safe | Level::Low) => "native",
            (_, Level::Medium) => "docker",
            (_, Level::High | Level::Critical) => "gvisor",
        }
    }

    /// What the strict mode refuses without asking anybody.
    pub fn refused(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.rule.refusal == Refusal::Refused)
    }

    /// The sentence with which it is refused.
    pub fn refusal(&self, locale: Locale) -> Option<String> {
        let sentence = self.refused()?.message(locale);
        Some(match locale {
            Locale::English => format!("Execution refused: {sentence}"),
            Locale::Chinese => format!("执行被拒绝: {sentence}"),
        })
    }
}

/// Every rule there is.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    [python::RULES, javascript::RULES, shell::RULES, browser::RULES].into_iter().flatten()
}

pub fn assess(content: Content, text: &str) -> Assessment {
    assess_within(&Work::for_length(text.len()), content, text)
}

/// What is done is counted against what may be.
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
        // To the parsers it is the end of a text.
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
