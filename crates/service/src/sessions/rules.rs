//! How a session's code is treated: who is asked about it, and how strictly it is held.
//!
//! What was said about the session counts, else the settings. A word that makes it more lenient, or has this server call an
//! address, is an operator's; an agent never changes how it is watched. What was said about an earlier session of the same
//! id is forgotten and never counts.

use policy::SecurityMode;
use record::{ApprovalKind, Confirmation, Holder, SessionName, SessionRules};

use super::place::Place;
use crate::approvals::ApprovalView;
use crate::error::Error;
use crate::principal::Principal;
use crate::service::{Service, now};
use crate::settings::{SessionsPart, Webhook, is_address};

const LONGEST_URL: usize = 2048;
/// Who forgets, in the record.
const BY: &str = "ringwall";

/// What is in force for one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) confirmation: Confirmation,
    pub(crate) callback_url: Option<String>,
    pub(crate) mode: SecurityMode,
}

/// What somebody wants to be different. What is absent stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionChange {
    pub confirmation: Option<Confirmation>,
    pub callback_url: Option<String>,
    pub security_mode: Option<SecurityMode>,
}

impl Rules {
    /// What was said about a session, over what all have.
    pub(super) fn over(said: SessionRules, usual: SessionsPart) -> Self {
        Self {
            confirmation: said.confirmation.unwrap_or(usual.confirmation),
            callback_url: said.callback_url,
            mode: match said.security_mode.as_deref() {
                None => usual.security_mode,
                Some("permissive") => SecurityMode::Permissive,
                Some(_) => SecurityMode::Strict,
            },
        }
    }
}

impl SessionChange {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check_role(&self, by: &Principal) -> Result<(), Error> {
        if let Holder::Agent(..) = by.holder() {
            return Err(Error::Forbidden { why: "an agent does not change how it is watched".to_owned() });
        }
        match self.confirmation {
            Some(mode @ Confirmation::AutoApprove) => {
                by.require_operator(&format!("set a session's confirmation to {mode}"))?;
            }
            Some(Confirmation::Websocket | Confirmation::AutoReject | Confirmation::Callback) | None => {}
        }
        // This server calls it from inside the operator's network, and signs what it says there with their secret.
        if self.callback_url.is_some() {
            by.require_operator("set a session's callback_url")?;
        }
        match self.security_mode {
            Some(SecurityMode::Permissive) => by.require_operator("make a session permissive"),
            Some(SecurityMode::Strict) | None => Ok(()),
        }
    }

    /// What is then said about the session, put over what was. A callback without an address of its own is told where all
    /// questions are, if that is anywhere.
    fn over(&self, before: SessionRules, webhook_url: Option<&str>) -> Result<SessionRules, Error> {
        let confirmation = self.confirmation.or(before.confirmation);
        let security_mode = self.security_mode.map(|mode| mode.key().to_owned()).or(before.security_mode);
        let callback_url = match confirmation {
            Some(Confirmation::Callback) => self.callback_url.clone().or(before.callback_url),
            Some(_) | None if self.callback_url.is_some() => {
                return Err(Error::invalid("callback_url: it counts with confirmation callback alone"));
            }
            Some(_) | None => None,
        };
        match (confirmation, &callback_url) {
            (Some(Confirmation::Callback), None) if webhook_url.is_none() => Err(Error::invalid(
                "callback_url: where a question is told is missing, and there is no approvals.webhook_url either",
            )),
            (_, Some(url)) if !is_address(url) || url.len() > LONGEST_URL => {
                let message = format!(
                    "callback_url: an address with http:// or https:// and without blanks, at most {LONGEST_URL} bytes"
                );
                Err(Error::invalid(message))
            }
            _ => Ok(SessionRules { confirmation, callback_url, security_mode }),
        }
    }
}

impl Service {
    pub(crate) async fn session_rules(&self, place: &Place) -> Result<Rules, Error> {
        let said = self.said_of(place).await?.unwrap_or_default();
        Ok(Rules::over(said, self.settings_now().sessions))
    }

    async fn said_of(&self, place: &Place) -> Result<Option<SessionRules>, Error> {
        let Some(said) = self.inner.store.session_rules(&place.name).await? else { return Ok(None) };
        if self.session_times(place).await?.is_some() {
            return Ok(Some(said));
        }
        // Its files were taken away by hand, and so it is over.
        self.inner.store.forget_session(place.name.clone(), now(), BY).await?;
        Ok(None)
    }

    /// What would be said about a session after a change, if that can be.
    pub(super) fn check_change(&self, change: &SessionChange, before: SessionRules) -> Result<SessionRules, Error> {
        let settings = self.settings_now();
        let rules = change.over(before, settings.approvals.webhook_url.as_deref())?;
        let is_told = rules.confirmation == Some(Confirmation::Callback);
        if is_told && settings.approvals.webhook_secret.is_none() {
            return Err(Error::Conflict {
                message: "a callback is signed, and there is no secret to sign with; start the server with \
                          RINGWALL_APPROVALS_WEBHOOK_SECRET"
                    .to_owned(),
            });
        }
        Ok(rules)
    }

    /// Says something about a session that is there.
    pub(super) async fn rule_session(
        &self,
        by: &Principal,
        place: &Place,
        change: &SessionChange,
    ) -> Result<(), Error> {
        let before = self.said_of(place).await?.unwrap_or_default();
        let rules = self.check_change(change, before)?;
        self.inner.store.rule_session(place.name.clone(), rules, now(), by.caller()).await?;
        self.review_approvals();
        Ok(())
    }

    /// Where a question about a session's code is told beside everywhere else, and what signs that.
    pub async fn callback(&self, asked: &ApprovalView) -> Option<Webhook> {
        match asked.kind {
            ApprovalKind::Risk => {}
            ApprovalKind::Path | ApprovalKind::Network => return None,
        }
        let name = SessionName {
            user_id: asked.user.clone(),
            agent_id: asked.agent.clone(),
            session_id: asked.session_id.clone(),
        };
        let place = Place { id: asked.session_id.parse().ok()?, name };
        let rules = self.session_rules(&place).await.ok()?;
        Some(Webhook { url: rules.callback_url?, secret: self.settings_now().approvals.webhook_secret.clone()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(confirmation: Option<Confirmation>, url: Option<&str>, mode: Option<SecurityMode>) -> SessionChange {
        SessionChange { confirmation, callback_url: url.map(str::to_owned), security_mode: mode }
    }

    #[test]
    fn lenience_is_an_operators_to_give() {
        use Confirmation::{AutoApprove, AutoReject, Callback, Websocket};
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
        assert_eq!(may(&change(None, None, Some(SecurityMode::Permissive))), [true, true, false, false]);
        assert_eq!(may(&change(None, None, Some(SecurityMode::Strict))), [true, true, true, false]);
    }

    #[test]
    fn a_callback_has_an_address_and_nothing_else_has() {
        let callback = change(Some(Confirmation::Callback), Some("https://hooks.example/x"), None);
        let said = callback.over(SessionRules::default(), None).unwrap();
        assert_eq!(said.callback_url.as_deref(), Some("https://hooks.example/x"));
        let strict = change(None, None, Some(SecurityMode::Strict)).over(said.clone(), None).unwrap();
        assert_eq!((strict.confirmation, strict.callback_url), (said.confirmation, said.callback_url.clone()));
        let away = change(Some(Confirmation::Websocket), None, None).over(said, None).unwrap();
        assert_eq!(away.callback_url, None);
        let told_with_all = change(Some(Confirmation::Callback), None, None);
        let said = told_with_all.over(SessionRules::default(), Some("https://hooks.example/all")).unwrap();
        assert_eq!((said.confirmation, said.callback_url), (Some(Confirmation::Callback), None));
        for (confirmation, url) in [
            (Some(Confirmation::Callback), None),
            (Some(Confirmation::Callback), Some("file:///etc/passwd")),
            (Some(Confirmation::Callback), Some("http://")),
            (Some(Confirmation::Callback), Some("http://a b")),
            (Some(Confirmation::Callback), Some("http://a\r\nx: y")),
            (Some(Confirmation::Websocket), Some("http://x")),
            (None, Some("http://x")),
        ] {
            assert!(change(confirmation, url, None).over(SessionRules::default(), None).is_err(), "{url:?}");
        }
    }
}
