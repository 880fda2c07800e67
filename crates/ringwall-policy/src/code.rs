//! The rules for code: what is refused, what a person is asked about, and how strong a box it gets.
//!
//! The assessment is advice and the box is the boundary; so nothing here allows anything that a grant would not. A
//! person's word is an input like any other, and counts for exactly the code that it was given for.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, de};

use crate::error::Error;
use crate::risk::{Assessment, Level, Locale};
use crate::verdict::{Ask, AskedRisk, Denial, DenialCode};

/// How strictly a session's code is treated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecurityMode {
    /// Destruction is refused, and what is not safe needs the strongest box that the operator names and has.
    #[default]
    Strict,
    /// For development: destruction is asked about, and any box will do.
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

/// What a person said about this very code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Consent {
    NotAsked,
    Given,
}

/// Code that is to run, as it was assessed.
#[derive(Debug, Clone)]
pub struct Code {
    pub assessment: Arc<Assessment>,
    pub mode: SecurityMode,
    pub consent: Consent,
}

impl Code {
    /// What is refused whoever would allow it.
    pub(crate) fn refusal(&self) -> Option<Denial> {
        match self.mode {
            SecurityMode::Strict => {
                let message = self.assessment.refusal(Locale::English)?;
                Some(Denial::new(DenialCode::CodeDestructive, message))
            }
            SecurityMode::Permissive => None,
        }
    }

    /// What a person has to allow first.
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

/// How much stands between code and the host, the least first.
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

/// Whether the strict mode has a say in the box for code of this level.
pub const fn demands_isolation(mode: SecurityMode, level: Level) -> bool {
    matches!((mode, level), (SecurityMode::Strict, Level::Low | Level::Medium | Level::High | Level::Critical))
}

/// The box that code gets: what is demanded, or the stronger one that was asked for. A weaker one is refused and never
/// replaced in silence.
pub fn choose_isolation(asked: Option<Isolation>, demanded: Option<Isolation>) -> Result<Isolation, Denial> {
    match (asked, demanded) {
        (None, demanded) => Ok(demanded.unwrap_or(Isolation::Native)),
        (Some(asked), Some(demanded)) if asked < demanded => {
            let message = format!("the strict mode demands {demanded} for this code, and {asked} is weaker");
            let hint = format!("leave the backend out, or ask for {demanded} or a stronger one");
            Err(Denial::new(DenialCode::BackendWeaker, message).with_hint(hint))
        }
        (Some(asked), _) => Ok(asked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::risk::{Content, assess};
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
    fn destruction_is_refused_in_strict_mode_whoever_agrees() {
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
    fn nobody_is_asked_about_what_would_be_denied_anyway() {
        let denied = verdict("rm x", SecurityMode::Strict, Consent::NotAsked, &[]);
        assert!(matches!(denied, Verdict::Deny(_)), "{denied:?}");
        let Verdict::Ask(ask) = verdict("ls; rm x", SecurityMode::Strict, Consent::NotAsked, &["bash"]) else {
            panic!("it deletes");
        };
        let risk = ask.risk.expect("it is about a risk");
        assert_eq!((risk.level, risk.findings[0].rule.id), (Level::High, "sh.delete"));
    }

    #[test]
    fn a_stronger_box_may_be_asked_for_and_no_weaker_one() {
        use Isolation::{Docker, Gvisor, Native};
        for (asked, demanded, expected) in [
            (None, None, Some(Native)),
            (None, Some(Docker), Some(Docker)),
            (Some(Native), None, Some(Native)),
            (Some(Native), Some(Native), Some(Native)),
            (Some(Gvisor), Some(Docker), Some(Gvisor)),
            (Some(Docker), Some(Docker), Some(Docker)),
            (Some(Native), Some(Docker), None),
            (Some(Docker), Some(Gvisor), None),
        ] {
            assert_eq!(choose_isolation(asked, demanded).ok(), expected, "{asked:?} {demanded:?}");
        }
    }
}
