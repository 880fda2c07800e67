//! Risk levels, kinds of content, and the language of messages.

use serde::{Deserialize, Serialize};

/// In ascending order, so that `max` is the strictest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Safe,
    Low,
    Medium,
    High,
    Critical,
}

impl Level {
    pub fn key(self) -> &'static str {
        match self {
            Level::Safe => "safe",
            Level::Low => "low",
            Level::Medium => "medium",
            Level::High => "high",
            Level::Critical => "critical",
        }
    }

    /// True if an approval is needed.
    pub fn asks(self) -> bool {
        self >= Level::High
    }
}

/// The kind of an assessed content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Content {
    Python,
    Javascript,
    Shell,
    Browser,
}

impl Content {
    pub const fn key(self) -> &'static str {
        match self {
            Content::Python => "python",
            Content::Javascript => "javascript",
            Content::Shell => "shell",
            Content::Browser => "browser",
        }
    }
}

/// The language of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locale {
    English,
    Chinese,
}

impl Locale {
    /// The supported language with the highest weight in an `Accept-Language` header; English if
    /// none.
    pub fn of_header(header: &str) -> Self {
        let mut best = (0.0, Locale::English);
        for item in header.split(',') {
            let mut parts = item.split(';').map(str::trim);
            let tag = parts.next().unwrap_or_default().to_ascii_lowercase();
            let weight = parts.find_map(|part| part.strip_prefix("q=")?.parse::<f32>().ok()).unwrap_or(1.0);
            let locale = match tag.split('-').next() {
                Some("zh") => Locale::Chinese,
                Some("en") => Locale::English,
                _ => continue,
            };
            if weight > best.0 {
                best = (weight, locale);
            }
        }
        best.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preferred_supported_language_is_chosen() {
        for chinese in ["zh", "zh-CN,zh;q=0.9,en;q=0.8", "en;q=0.3, ZH-hans;q=0.5", "fr, zh;q=0.1"] {
            assert_eq!(Locale::of_header(chinese), Locale::Chinese, "{chinese}");
        }
        for english in ["", "en", "en-US,en;q=0.9,zh;q=0.8", "fr", "*", "zh;q=0", "zhx", "zh;q=x0, en"] {
            let expected = if english.starts_with("zh;q=x0") { Locale::Chinese } else { Locale::English };
            assert_eq!(Locale::of_header(english), expected, "{english}");
        }
    }
}
