//! Parses browser actions strictly, and describes them for the record without the text to be typed.

use std::time::Duration;

use ringwall_browser::{
    Action, DownloadSource, FieldKind, Format, ScreenshotArea, ScrollTarget, Target, WaitCondition,
};
use ringwall_record::Digest;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::Error;

const DEFAULT_SECONDS: u64 = 30;
const MAX_SECONDS: u64 = 120;
const MAX_SCRIPT: usize = 256 << 10;
/// Maximum recorded length of a script, an address or a target in bytes. A script's SHA-256 digest
/// is recorded too.
const MAX_NOTED: usize = 4096;
const MAX_FILES: usize = 20;

/// An element is named by exactly one of `selector`, `ref` and `text`.
#[derive(Debug, Deserialize)]
#[serde(tag = "action", content = "params", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ActionRequest {
    Navigate {
        url: String,
        timeout: Option<u64>,
    },
    Click {
        selector: Option<String>,
        r#ref: Option<String>,
        text: Option<String>,
    },
    Fill {
        selector: Option<String>,
        r#ref: Option<String>,
        value: String,
    },
    Screenshot {
        selector: Option<String>,
        r#ref: Option<String>,
        #[serde(default)]
        full_page: bool,
    },
    GetContent {
        #[serde(default)]
        format: ContentFormat,
    },
    Close {},
    WaitFor {
        selector: Option<String>,
        r#ref: Option<String>,
        text: Option<String>,
        timeout: Option<u64>,
    },
    Press {
        key: String,
    },
    Select {
        selector: Option<String>,
        r#ref: Option<String>,
        values: Vec<String>,
    },
    Scroll {
        selector: Option<String>,
        r#ref: Option<String>,
        text: Option<String>,
        #[serde(default)]
        x: i32,
        #[serde(default)]
        y: i32,
    },
    Back {},
    Evaluate {
        script: String,
    },
    Download {
        selector: Option<String>,
        r#ref: Option<String>,
        text: Option<String>,
        url: Option<String>,
        timeout: Option<u64>,
    },
    /// `files` are paths relative to the session's files.
    Upload {
        selector: Option<String>,
        r#ref: Option<String>,
        files: Vec<String>,
    },
    Pdf {},
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ContentFormat {
    #[default]
    Text,
    Html,
    Outline,
}

/// Keys that insert no character.
const SILENT_KEYS: [&str; 14] = [
    "Enter",
    "Tab",
    "Shift+Tab",
    "Escape",
    "ArrowUp",
    "ArrowDown",
    "ArrowLeft",
    "ArrowRight",
    "Home",
    "End",
    "PageUp",
    "PageDown",
    "Backspace",
    "Delete",
];

/// Results of the preparation that the action needs.
#[derive(Debug)]
pub(super) struct Known {
    /// The checked URL, if the action opens one.
    pub(super) page: Option<String>,
    pub(super) field: FieldKind,
    /// Paths of the uploads in the browser's box.
    pub(super) uploads: Vec<String>,
}

impl ActionRequest {
    pub(super) fn read(action: &str, params: Value) -> Result<Self, Error> {
        let params = if params.is_null() { Value::Object(Map::new()) } else { params };
        let request = Self::deserialize(json!({ "action": action, "params": params }))
            .map_err(|error| Error::invalid(format!("browser action {action:?}: {error}")))?;
        request.check().map_err(|wrong| Error::invalid(format!("browser action {action:?}: {wrong}")))?;
        Ok(request)
    }

    pub(super) const fn verb(&self) -> &'static str {
        match self {
            Self::Navigate { .. } => "navigate",
            Self::Click { .. } => "click",
            Self::Fill { .. } => "fill",
            Self::Screenshot { .. } => "screenshot",
            Self::GetContent { .. } => "get_content",
            Self::Close {} => "close",
            Self::WaitFor { .. } => "wait_for",
            Self::Press { .. } => "press",
            Self::Select { .. } => "select",
            Self::Scroll { .. } => "scroll",
            Self::Back {} => "back",
            Self::Evaluate { .. } => "evaluate",
            Self::Download { .. } => "download",
            Self::Upload { .. } => "upload",
            Self::Pdf {} => "pdf",
        }
    }

    fn check(&self) -> Result<(), String> {
        self.timeout()?;
        let has_target = self.target()?.is_some();
        match self {
            Self::Click { .. }
            | Self::Fill { .. }
            | Self::Select { .. }
            | Self::Upload { .. }
            | Self::Download { url: None, .. }
                if !has_target =>
            {
                Err("the element is missing: name it by selector, ref or text".to_owned())
            }
            Self::Download { url: Some(_), .. } if has_target => Err("either url or an element".to_owned()),
            Self::Screenshot { full_page: true, .. } if has_target => Err("either full_page or an element".to_owned()),
            Self::Evaluate { script } if script.len() > MAX_SCRIPT => {
                Err(format!("script: at most {MAX_SCRIPT} bytes"))
            }
            Self::Upload { files, .. } if !(1..=MAX_FILES).contains(&files.len()) => {
                Err(format!("files: 1 to {MAX_FILES}"))
            }
            _ => Ok(()),
        }
    }

    /// The element that the action applies to, if any.
    pub(super) fn target(&self) -> Result<Option<Target>, String> {
        let (selector, reference, text) = match self {
            Self::Click { selector, r#ref, text }
            | Self::WaitFor { selector, r#ref, text, .. }
            | Self::Scroll { selector, r#ref, text, .. }
            | Self::Download { selector, r#ref, text, .. } => (selector, r#ref, text),
            Self::Fill { selector, r#ref, .. }
            | Self::Screenshot { selector, r#ref, .. }
            | Self::Select { selector, r#ref, .. }
            | Self::Upload { selector, r#ref, .. } => (selector, r#ref, &None),
            Self::Press { .. } => return Ok(Some(Target::Focused)),
            Self::Navigate { .. }
            | Self::GetContent { .. }
            | Self::Close {}
            | Self::Back {}
            | Self::Evaluate { .. }
            | Self::Pdf {} => return Ok(None),
        };
        match (selector.clone(), reference.clone(), text.clone()) {
            (None, None, None) => Ok(None),
            (Some(selector), None, None) => Ok(Some(Target::Css(selector))),
            (None, Some(reference), None) => Ok(Some(Target::Reference(reference))),
            (None, None, Some(text)) => Ok(Some(Target::Text(text))),
            _ => Err("name one element, by selector, ref or text".to_owned()),
        }
    }

    /// The field that the action types into or selects in.
    pub(super) fn field(&self) -> Option<Target> {
        match self {
            Self::Fill { .. } | Self::Press { .. } | Self::Select { .. } => self.target().ok().flatten(),
            _ => None,
        }
    }

    /// True if a key press may insert a character.
    pub(super) fn types_character(&self) -> bool {
        matches!(self, Self::Press { key } if !SILENT_KEYS.contains(&key.as_str()))
    }

    /// The URL that the action opens.
    pub(super) fn page(&self) -> Option<&str> {
        match self {
            Self::Navigate { url, .. } => Some(url),
            Self::Download { url, .. } => url.as_deref(),
            _ => None,
        }
    }

    /// The files that it uploads.
    pub(super) fn files(&self) -> &[String] {
        match self {
            Self::Upload { files, .. } => files,
            _ => &[],
        }
    }

    fn timeout(&self) -> Result<Duration, String> {
        let seconds = match self {
            Self::Navigate { timeout, .. } | Self::WaitFor { timeout, .. } | Self::Download { timeout, .. } => *timeout,
            _ => None,
        };
        match seconds.unwrap_or(DEFAULT_SECONDS) {
            seconds @ 1..=MAX_SECONDS => Ok(Duration::from_secs(seconds)),
            _ => Err(format!("timeout: 1 to {MAX_SECONDS} seconds")),
        }
    }

    /// Describes the action in questions about hosts that it causes, without the text to be typed.
    pub(super) fn description(&self) -> String {
        let page = self.page().map(|page| page.split(['?', '#']).next().unwrap_or_default().to_owned());
        match page.or(self.target().ok().flatten().map(|target| target.to_string())) {
            Some(object) => format!("Browser: {} {}", self.verb(), shortened(&object)),
            None => format!("Browser: {}", self.verb()),
        }
    }

    /// The input of the risk assessment: what identifies the field, without the text to be typed.
    pub(super) fn for_assessment(&self) -> Value {
        let field = match self {
            Self::Fill { selector, .. } | Self::Select { selector, .. } => selector.as_ref(),
            _ => None,
        };
        json!({ "action": self.verb(), "params": { "selector": field, "url": self.page() } })
    }

    /// The recorded details, without the text to be typed.
    pub(super) fn detail(&self) -> Value {
        let mut detail = json!({});
        if let Some(page) = self.page() {
            detail["url"] = shortened(page).into();
        }
        if let Ok(Some(target)) = self.target() {
            detail["target"] = shortened(&target.to_string()).into();
        }
        match self {
            Self::Fill { value, .. } => detail["characters"] = value.chars().count().into(),
            // A single character may be part of a password.
            Self::Press { key } if key.chars().count() > 1 => detail["key"] = shortened(key).into(),
            Self::Evaluate { script } => {
                detail["script"] = shortened(script).into();
                detail["script_sha256"] = Digest::of(script.as_bytes()).to_string().into();
            }
            Self::Upload { files, .. } => detail["files"] = json!(files),
            Self::GetContent { format } => detail["format"] = format!("{format:?}").to_lowercase().into(),
            _ => {}
        }
        detail
    }

    /// The browser command; `None` for `close` or if a required part is missing.
    pub(super) fn action(self, known: Known) -> Option<Action> {
        let timeout = self.timeout().unwrap_or(Duration::from_secs(DEFAULT_SECONDS));
        let target = self.target().ok().flatten();
        let Known { page, field, uploads } = known;
        Some(match self {
            Self::Navigate { .. } => Action::Navigate { url: page?, timeout },
            Self::Click { .. } => Action::Click { target: target? },
            Self::Fill { value, .. } => Action::Fill { target: target?, text: value, expected: field },
            Self::Screenshot { full_page, .. } => {
                let area = if full_page { ScreenshotArea::FullPage } else { ScreenshotArea::Viewport };
                Action::Screenshot { of: target.map_or(area, ScreenshotArea::Element) }
            }
            Self::GetContent { format: ContentFormat::Text } => Action::Content { format: Format::Text },
            Self::GetContent { format: ContentFormat::Html } => Action::Content { format: Format::Html },
            Self::GetContent { format: ContentFormat::Outline } => Action::Content { format: Format::Outline },
            Self::WaitFor { text: Some(text), .. } => Action::WaitFor { until: WaitCondition::Text(text), timeout },
            Self::WaitFor { .. } => {
                Action::WaitFor { until: target.map_or(WaitCondition::Load, WaitCondition::Element), timeout }
            }
            Self::Press { key } => Action::Press { key, expected: field },
            Self::Select { values, .. } => Action::Select { target: target?, values, expected: field },
            Self::Scroll { x, y, .. } => {
                Action::Scroll { to: target.map_or(ScrollTarget::By { x, y }, ScrollTarget::Element) }
            }
            Self::Back {} => Action::Back,
            Self::Evaluate { script } => Action::Evaluate { script },
            Self::Download { .. } => {
                let from = match page {
                    Some(url) => DownloadSource::Url(url),
                    None => DownloadSource::Element(target?),
                };
                Action::Download { from, timeout }
            }
            Self::Upload { .. } => Action::Upload { target: target?, paths: uploads },
            Self::Pdf {} => Action::Pdf,
            Self::Close {} => return None,
        })
    }
}

pub(super) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_NOTED)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_action_is_refused() {
        for (action, params) in [
            ("teleport", json!({})),
            ("navigate", json!({})),
            ("navigate", json!({"url": "https://a.com", "speed": 1})),
            ("navigate", json!({"url": "https://a.com", "timeout": 0})),
            ("click", json!({})),
            ("click", json!({"selector": "a", "text": "b"})),
            ("fill", json!({"selector": "a"})),
            ("fill", json!({"selector": "a", "value": 1})),
            ("screenshot", json!({"selector": "a", "full_page": true})),
            ("get_content", json!({"format": "pdf"})),
            ("download", json!({"selector": "a", "url": "https://a.com"})),
            ("upload", json!({"selector": "a", "files": []})),
            ("close", json!({"now": true})),
        ] {
            let wrong = ActionRequest::read(action, params.clone());
            assert!(matches!(wrong, Err(Error::InvalidArgument { .. })), "{action} {params}");
        }
        assert!(ActionRequest::read("teleport", json!({})).unwrap_err().to_string().contains("`navigate`"));
    }

    #[test]
    fn typed_text_is_not_recorded() {
        let known = || Known { page: None, field: FieldKind::Password, uploads: Vec::new() };
        for (action, params) in [
            ("fill", json!({"selector": "#p", "value": "hunter2"})),
            ("press", json!({"key": "7"})),
            ("select", json!({"ref": "e7", "values": ["hunter2"]})),
        ] {
            let request = ActionRequest::read(action, params).unwrap();
            let recorded = format!("{}{}", request.detail(), request.for_assessment());
            assert!(!recorded.contains("hunter2") && !recorded.contains("\"7\""), "{recorded}");
            assert!(request.action(known()).is_some());
        }
        assert!(ActionRequest::read("close", Value::Null).unwrap().action(known()).is_none());
        let scroll = ActionRequest::read("scroll", json!({"y": 500})).unwrap().action(known());
        assert!(matches!(scroll, Some(Action::Scroll { to: ScrollTarget::By { x: 0, y: 500 } })));
    }
}
