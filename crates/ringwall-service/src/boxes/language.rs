//! The languages in which code can be run, with their names in the APIs.

use ringwall_risk::Content;
use serde::Deserialize;
use utoipa::ToSchema;

/// `python` unless said
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    #[default]
    Python,
    Javascript,
    Shell,
}

impl Language {
    pub const ALL: [Self; 3] = [Self::Python, Self::Javascript, Self::Shell];

    pub const fn key(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Javascript => "javascript",
            Self::Shell => "shell",
        }
    }
}

impl From<Language> for Content {
    fn from(language: Language) -> Self {
        match language {
            Language::Python => Self::Python,
            Language::Javascript => Self::Javascript,
            Language::Shell => Self::Shell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_is_parsed_from_its_key() {
        for language in Language::ALL {
            let read: Language = serde_json::from_value(language.key().into()).expect("its own name");
            assert_eq!(read, language);
        }
    }
}
