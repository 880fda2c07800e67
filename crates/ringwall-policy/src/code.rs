//! Rules for assessed code: what is denied, what needs an approval, and which isolation it gets.
//!
//! An assessment is advice, so these rules only restrict: they allow nothing that
//! [`decide`](crate::decide) would not. A consent applies to exactly the code that it was given
//! for.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use ringwall_risk::{Assessment, Level, Locale};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::error::Error;
use crate::verdict::{Ask, AskedRisk, Denial, DenialCode};

/// How strictly a session's code is treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecurityMode {
    /// Destructive code is denied. Code with a risk needs the strongest isolation that the operator
    /// has listed and that is available.
    #[default]
    Strict,
    /// For development: destructive code needs an approval, and every isolation is accepted.
    Permissive,
}

impl SecurityMode {
    pub const fn key(self) -> &'static str {
        match self {
            SecurityMode::Strict => "strict",
            SecurityMode::Permissive => "permissive",
        }
    }
}

/// The answer of an approver about exactly this code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    NotAsked,
    Given,
}

/// Code to run and its assessment.
#[derive(Debug, Clone)]
pub struct Code {
    pub assessment: Arc<Assessment>,
    pub mode: SecurityMode,
    pub consent: Consent,
}

impl Code {
    /// The denial of destructive code in strict mode. No approval overrides it.
    pub(crate) fn refusal(&self) -> Option<Denial> {
        match self.mode {
            SecurityMode::Strict => {
                let message = self.assessment.refusal(Locale::English)?;
                Some(Denial::new(DenialCode::CodeDestructive, message))
            }
            SecurityMode::Permissive => None,
        }
    }

    /// The question to the approver, unless it was answered.
    pub(crate) fn ask(&self) -> Option<Ask> {
        match self.consent {
            Consent::NotAsked if self.assessment.requires_confirmation() => {}
            Consent::NotAsked | Consent::Given => return None,
        }
        let findings: Vec<_> = self.assessment.findings.iter().filter(|finding| finding.rule.level.asks()).collect();
        let reasons = findings.iter().map(|finding| finding.message(Locale::English).to_owned()).collect();
        let findings = self.assessment.findings.clone();
        Some(Ask { reasons, blocked: Vec::new(), risk: Some(AskedRisk { level: self.assessment.level, findings }) })
    }
}

/// The isolation of code from the host, the weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Isolation {
    Native,
    Docker,
    Gvisor,
}

impl Isolation {
    /// The strongest first.
    pub const ALL: [Self; 3] = [Self::Gvisor, Self::Docker, Self::Native];

    pub const fn key(self) -> &'static str {
        match self {
            Isolation::Native => "native",
            Isolation::Docker => "docker",
            Isolation::Gvisor => "gvisor",
        }
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.key())
    }
}

impl FromStr for Isolation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|isolation| isolation.key() == text);
        found.ok_or(Error::IsolationUnknown)
    }
}

impl<'de> Deserialize<'de> for Isolation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// True if strict mode requires one of the operator's isolations for code of this level.
pub const fn requires_isolation(mode: SecurityMode, level: Level) -> bool {
    matches!((mode, level), (SecurityMode::Strict, Level::Low | Level::Medium | Level::High | Level::Critical))
}

/// Chooses the required isolation, or a stronger one if requested. A weaker request is denied, not
/// silently replaced.
pub fn choose_isolation(requested: Option<Isolation>, required: Option<Isolation>) -> Result<Isolation, Denial> {
    match (requested, required) {
        (None, required) => Ok(required.unwrap_or(Isolation::Native)),
        (Some(requested), Some(required)) if requested < required => {
            let message = format!("strict mode requires {required} for this code, and {requested} is weaker");
            let hint = format!("omit the backend, or choose {required} or a stronger one");
            Err(Denial::new(DenialCode::BackendWeaker, message).with_hint(hint))
        }
        (Some(requested), _) => Ok(requested),
    }
}

#[cfg(test)]
mod tests {
    use ringwall_risk::{Content, assess};

    use super::*;
    use crate::{Ceilings, Layer, LayerName, Layers, Request, Root, Verdict, Workspace, decide_code, profile};

    fn verdict(text: &str, mode: SecurityMode, consent: Consent, argv: &[&str]) -> Verdict {
        let request = Request {
            argv: argv.iter().map(Into::into).collect(),
            env: Default::default(),
            cwd: None,
            root: Root::Host,
            workspace: Workspace::Private,
            read_only: vec![],
        };
        let layers = Layers {
            system: profile::FILES,
            ceilings: Ceilings { limits: profile::SERVICE_CEILINGS, set_by: LayerName::System },
            operator: Layer::new(LayerName::Settings),
            narrowing: vec![],
        };
        let assessment = Arc::new(assess(Content::Shell, text));
        decide_code(&request, &layers, &Code { assessment, mode, consent })
    }

    fn judged(text: &str, mode: SecurityMode, consent: Consent) -> &'static str {
        match verdict(text, mode, consent, &["bash"]) {
            Verdict::Allow(_) => "allow",
            Verdict::Ask(_) => "ask",
            Verdict::Deny(denial) => denial.code.key(),
        }
    }

    #[test]
    fn destructive_code_is_denied_in_strict_mode_despite_consent() {
        use Consent::{Given, NotAsked};
        use SecurityMode::{Permissive, Strict};
        for (text, mode, consent, expected) in [
            ("ls", Strict, NotAsked, "allow"),
            ("echo x > y", Strict, NotAsked, "allow"),
            ("rm x", Strict, NotAsked, "ask"),
            ("rm x", Strict, Given, "allow"),
            ("rm x", Permissive, NotAsked, "ask"),
            ("curl x | bash", Strict, NotAsked, "ask"),
            ("curl x | bash", Strict, Given, "allow"),
            ("rm -rf /", Strict, NotAsked, "code_destructive"),
            ("rm -rf /", Strict, Given, "code_destructive"),
            ("rm -rf /", Permissive, NotAsked, "ask"),
            ("rm -rf /", Permissive, Given, "allow"),
        ] {
            assert_eq!(judged(text, mode, consent), expected, "{text} {mode:?} {consent:?}");
        }
    }

    #[test]
    fn invalid_request_is_denied_before_risk_is_asked() {
        let denied = verdict("rm x", SecurityMode::Strict, Consent::NotAsked, &[]);
        assert!(matches!(denied, Verdict::Deny(_)), "{denied:?}");
        let Verdict::Ask(ask) = verdict("ls; rm x", SecurityMode::Strict, Consent::NotAsked, &["bash"]) else {
            panic!("it deletes");
        };
        let risk = ask.risk.expect("it is about a risk");
        assert_eq!((risk.level, risk.findings[0].rule.id), (Level::High, "sh.delete"));
    }

    #[test]
    fn weaker_isolation_than_required_is_denied() {
        use Isolation::{Docker, Gvisor, Native};
        for (requested, required, expected) in [
            (None, None, Some(Native)),
            (None, Some(Docker), Some(Docker)),
            (Some(Native), None, Some(Native)),
            (Some(Native), Some(Native), Some(Native)),
            (Some(Gvisor), Some(Docker), Some(Gvisor)),
            (Some(Docker), Some(Docker), Some(Docker)),
            (Some(Native), Some(Docker), None),
            (Some(Docker), Some(Gvisor), None),
        ] {
            assert_eq!(choose_isolation(requested, required).ok(), expected, "{requested:?} {required:?}");
        }
    }
}
