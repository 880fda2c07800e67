//! The rules of a session: its security mode, and who confirms risky code.
//!
//! Three sources are combined. The settings apply to every session. Rules that an operator sets for
//! the session replace them, whether looser or stricter. Rules of a user only tighten the result
//! (`auto-approve` < `websocket` = `callback` < `auto-reject`, `permissive` < `strict`). Rules
//! outlive the session's deletion, so that deleting and re-creating it lifts nothing; an operator's
//! rules then only tighten. An agent changes none of them.

use ringwall_policy::SecurityMode;
use ringwall_record::{AuthorRules, Confirmation, SessionRules};

use super::document::SessionsPart;

/// The rules in force for one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) confirmation: Confirmation,
    pub(crate) callback_url: Option<String>,
    pub(crate) mode: SecurityMode,
}

impl Rules {
    /// Combines the session's rules with the settings.
    pub(crate) fn over(said: SessionRules, settings: SessionsPart) -> Self {
        let SessionRules { operator, user, has_ended } = said;
        let base = Self {
            confirmation: match operator.confirmation {
                Some(word) if !has_ended || tightens(settings.confirmation, word) => word,
                Some(_) | None => settings.confirmation,
            },
            callback_url: operator.callback_url,
            mode: match (operator.security_mode.as_deref().map(read_mode), settings.security_mode) {
                (None, mode) => mode,
                (Some(word), _) if !has_ended => word,
                (Some(word), mode) => stricter(word, mode),
            },
        };
        base.tightened(&user)
    }

    /// Applies the user's rules where they are stricter. Others have no effect: the operator may
    /// have changed theirs since.
    fn tightened(self, user: &AuthorRules) -> Self {
        let confirmation = match user.confirmation {
            Some(word) if tightens(self.confirmation, word) => word,
            Some(_) | None => self.confirmation,
        };
        Self {
            confirmation,
            callback_url: self.callback_url.filter(|_| confirmation == Confirmation::Callback),
            mode: user.security_mode.as_deref().map_or(self.mode, |word| stricter(self.mode, read_mode(word))),
        }
    }
}

/// True if `word` is at least as strict as `base`. `callback` is `websocket` plus a message to the
/// operator's receiver, so `callback` tightens `websocket` and not the reverse.
pub(crate) fn tightens(base: Confirmation, word: Confirmation) -> bool {
    let adds_callback = base == Confirmation::Websocket && word == Confirmation::Callback;
    word == base || adds_callback || word.strictness() > base.strictness()
}

pub(crate) fn stricter(one: SecurityMode, other: SecurityMode) -> SecurityMode {
    match (one, other) {
        (SecurityMode::Permissive, SecurityMode::Permissive) => SecurityMode::Permissive,
        (SecurityMode::Strict, _) | (_, SecurityMode::Strict) => SecurityMode::Strict,
    }
}

pub(crate) fn read_mode(word: &str) -> SecurityMode {
    if word == SecurityMode::Permissive.key() { SecurityMode::Permissive } else { SecurityMode::Strict }
}
