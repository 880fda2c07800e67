//! Static analysis: what a piece of code, a shell line or a browser action could do, before it
//! runs.
//!
//! The result is advice. It decides whether an approval is needed and what the approver reads; the
//! box limits what the code can do. Rules match syntax trees, so a word in a string or a comment is
//! no finding. Assessment cannot fail: text that cannot be parsed is a finding.
//!
//! No content can overflow the stack or take unlimited time: walks are loops over a list or have a
//! maximum depth, and all work is counted against a limit that follows from the content's length
//! (`work`). The parser recurses without a limit; the caller provides its stack ([`stack_needed`]).
//!
//! This crate does no I/O, reads no clock and has no async code.
//!
//! Reading order: `level` and `rule` (data), the analysis of code (`code`), each language
//! (`python`, `javascript`, `shell`, `browser`), and the whole assessment (`assess`).
//! [`shell_syntax`] finds the commands of a shell text, also for `ringwall-policy`.

mod assess;
mod browser;
mod code;
mod findings;
mod javascript;
mod level;
mod python;
mod rule;
mod shell;
pub mod shell_syntax;
mod work;

#[cfg(test)]
mod shapes;

pub use assess::{Assessment, MAX_CONTENT, assess, rules, stack_needed};
pub use browser::{PASSWORD_FIELDS, PAYMENT_FIELDS};
pub use findings::Finding;
pub use level::{Content, Level, Locale};
pub use rule::{Refusal, Rule};
