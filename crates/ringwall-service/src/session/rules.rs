//! The rules of one session: how the approval of its code is decided and which security mode
//! applies. Operators and users can change them.

use ringwall_policy::SecurityMode;
use ringwall_record::{
    ApprovalKind, AuthorRules, Confirmation, Holder, RulesAuthor, SessionKey, SessionRules, UserRules,
};

use crate::approvals::ApprovalView;
use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;
use crate::settings::{Rules, SessionsPart, Webhook, is_address, read_mode, tightens};
use crate::time::now;

const MAX_URL_LEN: usize = 2048;
/// The actor in the audit entry of a session whose directory was removed by hand.
const BY: &str = "ringwall";

/// A requested change of the rules. Absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionChange {
    pub confirmation: Option<Confirmation>,
    pub callback_url: Option<String>,
    pub security_mode: Option<SecurityMode>,
}

impl SessionChange {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check_role(&self, by: &Principal) -> Result<(), Error> {
        if let Holder::Agent(..) = by.holder() {
            return Err(Error::Forbidden { why: "an agent cannot change the rules of its session".to_owned() });
        }
        match self.confirmation {
            Some(mode @ Confirmation::AutoApprove) => {
                by.require_operator(&format!("set a session's confirmation to {mode}"))?;
            }
            Some(Confirmation::Websocket | Confirmation::AutoReject | Confirmation::Callback) | None => {}
        }
        // The server calls this URL from inside the operator's network and signs the request with
        // the operator's secret.
        if self.callback_url.is_some() {
            by.require_operator("set a session's callback_url")?;
        }
        match self.security_mode {
            Some(SecurityMode::Permissive) => by.require_operator("make a session permissive"),
            Some(SecurityMode::Strict) | None => Ok(()),
        }
    }

    /// The session's rules after the change. `callback` without a `callback_url` uses
    /// `approvals.webhook_url`.
    fn over(
        &self,
        author: RulesAuthor,
        before: SessionRules,
        settings: SessionsPart,
        webhook_url: Option<&str>,
    ) -> Result<SessionRules, Error> {
        let after = match author {
            RulesAuthor::Operator => self.by_operator(before, settings)?,
            RulesAuthor::User => self.by_user(before, settings)?,
        };
        match (self.confirmation, &after.operator.callback_url) {
            (Some(Confirmation::Callback), None) if webhook_url.is_none() => Err(Error::invalid(
                "callback_url: confirmation callback needs a callback_url, because approvals.webhook_url is not set",
            )),
            (_, Some(url)) if !is_address(url) || url.len() > MAX_URL_LEN => {
                let message = format!(
                    "callback_url: a URL with http:// or https://, without whitespace, of at most {MAX_URL_LEN} bytes"
                );
                Err(Error::invalid(message))
            }
            _ => Ok(after),
        }
    }

    /// An operator's value replaces the user's value of the same field.
    fn by_operator(&self, before: SessionRules, settings: SessionsPart) -> Result<SessionRules, Error> {
        let SessionRules { mut operator, mut user, has_ended } = before;
        if has_ended {
            // These rules were set for a deleted session. A rule that loosens the settings must not
            // become valid again when another field is changed.
            operator.confirmation = operator.confirmation.filter(|mode| tightens(settings.confirmation, *mode));
            operator.security_mode = operator.security_mode.filter(|mode| read_mode(mode) == SecurityMode::Strict);
        }
        if let Some(confirmation) = self.confirmation {
            operator.confirmation = Some(confirmation);
            user.confirmation = None;
        }
        if let Some(mode) = self.security_mode {
            operator.security_mode = Some(mode.key().to_owned());
            user.security_mode = None;
        }
        operator.callback_url = match operator.confirmation {
            Some(Confirmation::Callback) => self.callback_url.clone().or(operator.callback_url),
            Some(_) | None if self.callback_url.is_some() => {
                return Err(Error::invalid("callback_url: only valid with confirmation callback"));
            }
            Some(_) | None => None,
        };
        Ok(SessionRules { operator, user, has_ended: false })
    }

    /// A user's value that loosens the confirmation is refused rather than stored without effect.
    fn by_user(&self, before: SessionRules, settings: SessionsPart) -> Result<SessionRules, Error> {
        let SessionRules { operator, mut user, has_ended } = before;
        let base = SessionRules { operator: operator.clone(), user: AuthorRules::default(), has_ended };
        let base = Rules::over(base, settings);
        if let Some(wanted) = self.confirmation {
            if !tightens(base.confirmation, wanted) {
                let why = format!(
                    "an operator set the confirmation of this session to {}; a user may only tighten it, and {wanted} \
                     does not; ask an operator",
                    base.confirmation
                );
                return Err(Error::Forbidden { why });
            }
            user.confirmation = Some(wanted);
        }
        if let Some(mode) = self.security_mode {
            user.security_mode = Some(mode.key().to_owned());
        }
        Ok(SessionRules { operator, user, has_ended })
    }
}

impl Service {
    pub(crate) async fn session_rules(&self, session: &SessionKey) -> Result<Rules, Error> {
        Ok(Rules::over(self.stored_rules(session).await?, self.settings_now().sessions))
    }

    pub(super) async fn stored_rules(&self, session: &SessionKey) -> Result<SessionRules, Error> {
        let stored = self.inner.store.session_rules(session).await?;
        let Some(rules) = stored else { return Ok(SessionRules::default()) };
        if rules.has_ended || self.session_times(session).await?.is_some() {
            return Ok(rules);
        }
        // The session's directory was removed by hand.
        self.inner.store.end_session(session.clone(), UserRules::Kept, now(), BY).await?;
        Ok(SessionRules { has_ended: true, ..rules })
    }

    /// The session's rules after a change. Fails if the change is invalid or not allowed to the
    /// caller.
    pub(super) fn check_change(
        &self,
        by: &Principal,
        change: &SessionChange,
        before: SessionRules,
    ) -> Result<SessionRules, Error> {
        let settings = self.settings_now();
        let url = settings.approvals.webhook_url.as_deref();
        let rules = change.over(author_of(by), before, settings.sessions, url)?;
        if change.confirmation == Some(Confirmation::Callback) && settings.approvals.webhook_secret.is_none() {
            let message = "callbacks are signed, and the server has no secret for that; start it with \
                           RINGWALL_APPROVALS_WEBHOOK_SECRET";
            return Err(Error::Conflict { message: message.to_owned() });
        }
        Ok(rules)
    }

    /// Stores a change, unless it is empty. The caller holds the agent's write lock, so the session
    /// cannot be deleted before the change is stored.
    pub(super) async fn store_rules(
        &self,
        by: &Principal,
        session: &SessionKey,
        change: &SessionChange,
    ) -> Result<(), Error> {
        if change.is_empty() {
            return Ok(());
        }
        self.require_session(session).await?;
        let rules = self.check_change(by, change, self.stored_rules(session).await?)?;
        self.inner.store.set_session_rules(session.clone(), author_of(by), rules, now(), by.caller()).await?;
        self.review_approvals();
        Ok(())
    }

    /// The session's own webhook for a risk question and the secret that signs the call. Questions
    /// about paths and hosts have none.
    pub async fn callback(&self, asked: &ApprovalView) -> Option<Webhook> {
        if asked.kind != ApprovalKind::Risk {
            return None;
        }
        let session = SessionKey {
            user_id: asked.user.clone(),
            agent_id: asked.agent.clone(),
            session_id: asked.session_id.parse().ok()?,
        };
        let rules = self.session_rules(&session).await.ok()?;
        Some(Webhook { url: rules.callback_url?, secret: self.settings_now().approvals.webhook_secret.clone()? })
    }
}

fn author_of(by: &Principal) -> RulesAuthor {
    match by.holder() {
        Holder::Owner | Holder::Operator => RulesAuthor::Operator,
        Holder::User(_) | Holder::Agent(..) => RulesAuthor::User,
    }
}

#[cfg(test)]
mod tests {
    use ringwall_record::AuthorRules;

    use super::*;
    use Confirmation::{AutoApprove, AutoReject, Callback, Websocket};
    use SecurityMode::{Permissive, Strict};

    fn change(confirmation: Option<Confirmation>, url: Option<&str>, mode: Option<SecurityMode>) -> SessionChange {
        SessionChange { confirmation, callback_url: url.map(str::to_owned), security_mode: mode }
    }

    fn rule(confirmation: Option<Confirmation>, mode: Option<SecurityMode>) -> AuthorRules {
        let security_mode = mode.map(|mode| mode.key().to_owned());
        AuthorRules { confirmation, callback_url: None, security_mode }
    }

    fn settings(confirmation: Confirmation, security_mode: SecurityMode) -> SessionsPart {
        SessionsPart { confirmation, security_mode, ..SessionsPart::default() }
    }

    const MODES: [Option<SecurityMode>; 3] = [None, Some(Strict), Some(Permissive)];

    fn confirmations() -> impl Iterator<Item = Option<Confirmation>> {
        std::iter::once(None).chain(Confirmation::ALL.map(Some))
    }

    /// Calls `check` for every combination of settings, operator rules and `has_ended`.
    fn for_all_bases(mut check: impl FnMut(SessionsPart, &SessionRules)) {
        for by_settings in Confirmation::ALL {
            for mode_by_settings in [Strict, Permissive] {
                for operator in confirmations() {
                    for mode in MODES {
                        for has_ended in [false, true] {
                            let settings = settings(by_settings, mode_by_settings);
                            let operator = rule(operator, mode);
                            check(settings, &SessionRules { operator, user: AuthorRules::default(), has_ended });
                        }
                    }
                }
            }
        }
    }

    fn is_looser(one: &Rules, than: &Rules) -> bool {
        !tightens(than.confirmation, one.confirmation) || (one.mode == Permissive && than.mode == Strict)
    }

    #[test]
    fn stored_user_rule_never_loosens() {
        for_all_bases(|settings, base| {
            let before = Rules::over(base.clone(), settings);
            for confirmation in confirmations() {
                for mode in MODES {
                    let after = SessionRules { user: rule(confirmation, mode), ..base.clone() };
                    let after = Rules::over(after, settings);
                    assert!(!is_looser(&after, &before), "{settings:?} {base:?} {confirmation:?} {mode:?}");
                }
            }
        });
    }

    #[test]
    fn user_change_is_refused_unless_it_tightens() {
        for_all_bases(|settings, base| {
            let before = Rules::over(base.clone(), settings).confirmation;
            for wanted in Confirmation::ALL {
                let changed = change(Some(wanted), None, None).by_user(base.clone(), settings);
                assert_eq!(changed.is_ok(), tightens(before, wanted), "{settings:?} {base:?} {wanted}");
                if let Ok(after) = changed {
                    assert_eq!(Rules::over(after, settings).confirmation, wanted);
                }
            }
        });
    }

    #[test]
    fn user_may_take_back_their_own_rule() {
        let settings = settings(Websocket, Strict);
        let rejecting = change(Some(AutoReject), None, None).by_user(SessionRules::default(), settings).unwrap();
        let asking = change(Some(Websocket), None, None).by_user(rejecting, settings).unwrap();
        assert_eq!(Rules::over(asking, settings).confirmation, Websocket);
    }

    #[test]
    fn operator_rule_of_deleted_session_only_tightens() {
        for_all_bases(|settings, base| {
            let ended = SessionRules { has_ended: true, ..base.clone() };
            let floor = Rules::over(SessionRules::default(), settings);
            assert!(!is_looser(&Rules::over(ended.clone(), settings), &floor), "{settings:?} {base:?}");
            for one_field in [change(None, None, Some(Strict)), change(Some(AutoReject), None, None)] {
                let after = Rules::over(one_field.by_operator(ended.clone(), settings).unwrap(), settings);
                let is_revived = match one_field.confirmation {
                    None => after.confirmation.strictness() < floor.confirmation.strictness(),
                    Some(_) => after.mode == Permissive && floor.mode == Strict,
                };
                assert!(!is_revived, "{settings:?} {base:?} {one_field:?}");
            }
        });
    }

    #[test]
    fn operator_change_replaces_user_rule_of_same_field_only() {
        let settings = settings(Websocket, Permissive);
        let user = rule(Some(AutoReject), Some(Strict));
        let before = SessionRules { user, ..SessionRules::default() };
        let after = change(Some(AutoApprove), None, None).by_operator(before, settings).unwrap();
        let after = Rules::over(after, settings);
        assert_eq!((after.confirmation, after.mode), (AutoApprove, Strict));
    }

    #[test]
    fn only_operators_may_loosen_rules() {
        let user = || "u".parse().unwrap();
        let holders =
            [Holder::Owner, Holder::Operator, Holder::User(user()), Holder::Agent(user(), "a".parse().unwrap())];
        let may = |change: &SessionChange| {
            holders.each_ref().map(|holder| {
                let principal = Principal::new("t", holder.clone());
                change.check_role(&principal).is_ok()
            })
        };
        for mode in [Websocket, AutoReject, Callback] {
            assert_eq!(may(&change(Some(mode), None, None)), [true, true, true, false], "{mode}");
        }
        assert_eq!(may(&change(Some(AutoApprove), None, None)), [true, true, false, false]);
        assert_eq!(may(&change(Some(Callback), Some("http://x"), None)), [true, true, false, false]);
        assert_eq!(may(&change(None, Some("http://x"), None)), [true, true, false, false]);
        assert_eq!(may(&change(None, None, Some(Permissive))), [true, true, false, false]);
        assert_eq!(may(&change(None, None, Some(Strict))), [true, true, true, false]);
    }

    #[test]
    fn callback_url_is_valid_only_with_confirmation_callback() {
        let settings = settings(Websocket, Strict);
        let put = |change: SessionChange, before, url| change.over(RulesAuthor::Operator, before, settings, url);
        let callback = change(Some(Callback), Some("https://hooks.example/x"), None);
        let rules = put(callback, SessionRules::default(), None).unwrap();
        assert_eq!(rules.operator.callback_url.as_deref(), Some("https://hooks.example/x"));
        let strict = put(change(None, None, Some(Strict)), rules.clone(), None).unwrap().operator;
        let before = rules.operator.clone();
        assert_eq!((strict.confirmation, strict.callback_url), (before.confirmation, before.callback_url));
        let away = put(change(Some(Websocket), None, None), rules, None).unwrap();
        assert_eq!(away.operator.callback_url, None);
        let without_url = change(Some(Callback), None, None);
        let rules = put(without_url, SessionRules::default(), Some("https://hooks.example/all")).unwrap().operator;
        assert_eq!((rules.confirmation, rules.callback_url), (Some(Callback), None));
        for (confirmation, url) in [
            (Some(Callback), None),
            (Some(Callback), Some("file:///etc/passwd")),
            (Some(Callback), Some("http://")),
            (Some(Callback), Some("http://a b")),
            (Some(Callback), Some("http://a\r\nx: y")),
            (Some(Websocket), Some("http://x")),
            (None, Some("http://x")),
        ] {
            assert!(put(change(confirmation, url, None), SessionRules::default(), None).is_err(), "{url:?}");
        }
    }
}
