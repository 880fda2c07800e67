//! What a piece of code, a line of shell or a browser's action could do, told before it runs.
//!
//! It is advice: it decides whether a person is asked, and with what words; the box decides what can happen. Everything is
//! judged on syntax trees, so a word in a string or a comment is no alarm. Nothing here fails: what cannot be read is a
//! finding of its own. Every walk is a loop over a list, and everything that is done is counted against what a content of
//! its length may take (`work`), so that no content can take our stack or our time. The parser's stack is the caller's to
//! provide (`stack_needed`).
//!
//! Reading order: a `level` and a `rule` (data), the trees of code (`code`), what each language adds (`python`,
//! `javascript`, `shell`, `browser`), and all of it together (`assess`).

mod assess;
mod browser;
mod code;
mod findings;
mod javascript;
mod level;
mod python;
mod rule;
mod shell;
mod work;

pub use assess::{Assessment, MAX_CONTENT, assess, rules, stack_needed};
pub use browser::{PASSWORD_FIELDS, PAYMENT_FIELDS};
pub use findings::Finding;
pub use level::{Content, Level, Locale};
pub use rule::{Refusal, Rule};
