//! The network access that a layer asks for, and the access that results from all layers.
//!
//! The operator's layer sets the access; later layers may only narrow it. A layer that asks for
//! more is denied, not clamped, as with limits.

use serde::{Deserialize, Serialize, Serializer};

use crate::layer::LayerName;
use crate::verdict::{Denial, DenialCode};

use super::list::NetList;

/// Network mode of a box. Ordered from strict to wide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetMode {
    #[default]
    None,
    /// Listed hosts, through our proxy only.
    Allowlist,
}

impl NetMode {
    pub const fn key(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Allowlist => "allowlist",
        }
    }
}

/// How a host that is not in the list is handled. Ordered from strict to wide.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownHost {
    #[default]
    Deny,
    /// An approval opens, and the connection waits for the answer.
    Ask,
}

impl UnknownHost {
    pub const fn key(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Ask => "ask",
        }
    }
}

/// What one layer asks for. In a narrowing layer an absent value keeps that of the earlier layers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "RawNetRequest")]
pub struct NetRequest {
    pub mode: NetMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<NetList>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<UnknownHost>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object such as {\"mode\":\"none\"}")]
struct RawNetRequest {
    mode: NetMode,
    allow: Option<NetList>,
    unknown: Option<UnknownHost>,
}

impl TryFrom<RawNetRequest> for NetRequest {
    type Error = &'static str;

    fn try_from(raw: RawNetRequest) -> Result<Self, Self::Error> {
        let RawNetRequest { mode, allow, unknown } = raw;
        match (mode, &allow, unknown) {
            // Rejected, because a list beside `none` would have no effect.
            (NetMode::None, Some(_), _) => Err("allow is for mode allowlist"),
            (NetMode::None, _, Some(_)) => Err("unknown is for mode allowlist"),
            (NetMode::None, None, None) | (NetMode::Allowlist, ..) => Ok(NetRequest { mode, allow, unknown }),
        }
    }
}

/// The resulting network access.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Net {
    #[default]
    None,
    Allowlist {
        allow: NetList,
        unknown: UnknownHost,
    },
}

impl Net {
    pub const fn mode(&self) -> NetMode {
        match self {
            Net::None => NetMode::None,
            Net::Allowlist { .. } => NetMode::Allowlist,
        }
    }

    /// True if everything that `self` allows is allowed by `other`.
    pub fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (Net::None, _) => true,
            (Net::Allowlist { .. }, Net::None) => false,
            (Net::Allowlist { allow, unknown }, Net::Allowlist { allow: outer, unknown: outer_unknown }) => {
                outer.exceeded_by(allow).is_none() && unknown <= outer_unknown
            }
        }
    }

    /// The access that the operator's layer sets.
    pub(crate) fn of(request: &NetRequest) -> Self {
        match request.mode {
            NetMode::None => Net::None,
            NetMode::Allowlist => Net::Allowlist {
                allow: request.allow.clone().unwrap_or_default(),
                unknown: request.unknown.unwrap_or_default(),
            },
        }
    }

    /// The access after a narrowing layer, or a denial if the layer asks for more.
    pub(crate) fn narrow(&self, request: &NetRequest, by: LayerName, set_by: LayerName) -> Result<Self, Denial> {
        let refuse = |what: &str, hint: String| Denial {
            layer: Some(set_by),
            requested_by: Some(by),
            hint: Some(hint),
            ..Denial::new(
                DenialCode::NetExceeded,
                format!("{what}, asked for by {by}, exceeds the network access allowed by {set_by}"),
            )
        };
        match (request.mode, self) {
            (NetMode::None, _) => Ok(Net::None),
            (NetMode::Allowlist, Net::None) => {
                let hint = "boxes have no network unless an operator sets net.mode to allowlist and net.allow to hosts";
                Err(refuse("net.mode: allowlist", hint.to_owned()))
            }
            (NetMode::Allowlist, Net::Allowlist { allow, unknown }) => {
                let wanted = request.allow.as_ref().unwrap_or(allow);
                if let Some(entry) = allow.exceeded_by(wanted) {
                    let hint = match allow.is_empty() {
                        true => "the list is empty; an operator adds hosts to net.allow".to_owned(),
                        false => format!("choose from {}", allow.words().join(", ")),
                    };
                    return Err(refuse(&format!("net.allow: {entry}"), hint));
                }
                let wanted_unknown = request.unknown.unwrap_or(*unknown);
                if wanted_unknown > *unknown {
                    let hint = "unlisted hosts are refused; an operator can set net.unknown to ask";
                    return Err(refuse("net.unknown: ask", hint.to_owned()));
                }
                Ok(Net::Allowlist { allow: wanted.clone(), unknown: wanted_unknown })
            }
        }
    }
}

impl Serialize for Net {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mode = self.mode();
        match self {
            Net::None => NetRequest { mode, ..NetRequest::default() },
            Net::Allowlist { allow, unknown } => {
                NetRequest { mode, allow: Some(allow.clone()), unknown: Some(*unknown) }
            }
        }
        .serialize(serializer)
    }
}
