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
const NOTED: usize = 4096;
const MAX_FILES: usize = 20;

#[derive(Debug, Deserialize)]
#[serde(tag = "action", content = "params", rename_all = "snake_case")]
pub(super) enum ActionRequest {
    Navigate(Navigate),
    Click(At),
    Fill(Fill),
    Screenshot(Screenshot),
    GetContent(Content),
    Close(Nothing),
    WaitFor(WaitFor),
    Press(Press),
    Select(Select),
    Scroll(Scroll),
    Back(Nothing),
    Evaluate(Evaluate),
    Download(Download),
    Upload(Upload),
    Pdf(Nothing),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Navigate {
    url: String,
    timeout: Option<u64>,
}

/// An element, identified by exactly one of these fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct At {
    selector: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fill {
    selector: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Screenshot {
    selector: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    #[serde(default)]
    full_page: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Content {
    #[serde(default)]
    format: ContentFormat,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ContentFormat {
    #[default]
    Text,
    Html,
    Outline,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitFor {
    selector: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    text: Option<String>,
    timeout: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Press {
    key: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Select {
    selector: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    values: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Scroll {
    selector: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    text: Option<String>,
    #[serde(default)]
    x: i32,
    #[serde(default)]
    y: i32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Evaluate {
    pub(super) script: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Download {
    selector: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    text: Option<String>,
    url: Option<String>,
    timeout: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Upload {
    selector: Option<String>,
    #[serde(rename = "ref")]
    reference: Option<String>,
    /// Paths relative to the session's files.
    files: Vec<String>,
}

/// Keys that insert no character.
const SILENT: [&str; 14] = [
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

impl Press {
    /// True if the key may insert a character.
    pub(super) fn types(&self) -> bool {
        !SILENT.contains(&self.key.as_str())
    }
}

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
            ActionRequest::Navigate(_) => "navigate",
            ActionRequest::Click(_) => "click",
            ActionRequest::Fill(_) => "fill",
            ActionRequest::Screenshot(_) => "screenshot",
            ActionRequest::GetContent(_) => "get_content",
            ActionRequest::Close(_) => "close",
            ActionRequest::WaitFor(_) => "wait_for",
            ActionRequest::Press(_) => "press",
            ActionRequest::Select(_) => "select",
            ActionRequest::Scroll(_) => "scroll",
            ActionRequest::Back(_) => "back",
            ActionRequest::Evaluate(_) => "evaluate",
            ActionRequest::Download(_) => "download",
            ActionRequest::Upload(_) => "upload",
            ActionRequest::Pdf(_) => "pdf",
        }
    }

    fn check(&self) -> Result<(), String> {
        self.timeout()?;
        let target = self.target()?;
        let (needs_one, is_text_too) = match self {
            ActionRequest::Click(_) | ActionRequest::Fill(_) | ActionRequest::Select(_) | ActionRequest::Upload(_) => {
                (true, false)
            }
            ActionRequest::Download(download) => (download.url.is_none(), download.url.is_some()),
            _ => (false, false),
        };
        if needs_one && target.is_none() {
            return Err("what it is done to is missing: selector, ref or text".to_owned());
        }
        if is_text_too && target.is_some() {
            return Err("either url or an element".to_owned());
        }
        match self {
            ActionRequest::Evaluate(evaluate) if evaluate.script.len() > MAX_SCRIPT => {
                Err(format!("script: at most {MAX_SCRIPT} bytes"))
            }
            ActionRequest::Upload(upload) if !(1..=MAX_FILES).contains(&upload.files.len()) => {
                Err(format!("files: 1 to {MAX_FILES}"))
            }
            ActionRequest::Screenshot(picture) if picture.full_page && target.is_some() => {
                Err("either full_page or an element".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The element that the action applies to, if any.
    pub(super) fn target(&self) -> Result<Option<Target>, String> {
        let (selector, reference, text) = match self {
            ActionRequest::Click(At { selector, reference, text })
            | ActionRequest::WaitFor(WaitFor { selector, reference, text, .. })
            | ActionRequest::Scroll(Scroll { selector, reference, text, .. })
            | ActionRequest::Download(Download { selector, reference, text, .. }) => (selector, reference, text),
            ActionRequest::Fill(Fill { selector, reference, .. })
            | ActionRequest::Screenshot(Screenshot { selector, reference, .. })
            | ActionRequest::Select(Select { selector, reference, .. })
            | ActionRequest::Upload(Upload { selector, reference, .. }) => (selector, reference, &None),
            ActionRequest::Press(_) => return Ok(Some(Target::Focused)),
            ActionRequest::Navigate(_)
            | ActionRequest::GetContent(_)
            | ActionRequest::Close(_)
            | ActionRequest::Back(_)
            | ActionRequest::Evaluate(_)
            | ActionRequest::Pdf(_) => return Ok(None),
        };
        match (selector, reference, text) {
            (None, None, None) => Ok(None),
            (Some(selector), None, None) => Ok(Some(Target::Css(selector.clone()))),
            (None, Some(reference), None) => Ok(Some(Target::Reference(reference.clone()))),
            (None, None, Some(text)) => Ok(Some(Target::Text(text.clone()))),
            _ => Err("one of selector, ref and text, not more".to_owned()),
        }
    }

    /// The field that the action types into or selects in.
    pub(super) fn field(&self) -> Option<Target> {
        match self {
            ActionRequest::Fill(_) | ActionRequest::Press(_) | ActionRequest::Select(_) => self.target().ok().flatten(),
            _ => None,
        }
    }

    /// The URL that the action opens.
    pub(super) fn page(&self) -> Option<&str> {
        match self {
            ActionRequest::Navigate(Navigate { url, .. }) => Some(url),
            ActionRequest::Download(Download { url, .. }) => url.as_deref(),
            _ => None,
        }
    }

    /// The files that it uploads.
    pub(super) fn files(&self) -> &[String] {
        match self {
            ActionRequest::Upload(Upload { files, .. }) => files,
            _ => &[],
        }
    }

    fn timeout(&self) -> Result<Duration, String> {
        let said = match self {
            ActionRequest::Navigate(Navigate { timeout, .. })
            | ActionRequest::WaitFor(WaitFor { timeout, .. })
            | ActionRequest::Download(Download { timeout, .. }) => *timeout,
            _ => None,
        };
        match said {
            Some(1..=MAX_SECONDS) | None => Ok(Duration::from_secs(said.unwrap_or(DEFAULT_SECONDS))),
            Some(_) => Err(format!("timeout: 1 to {MAX_SECONDS} seconds")),
        }
    }

    /// Describes the action in questions about network access that it causes, without the text to
    /// be typed.
    pub(super) fn words(&self) -> String {
        let target = self.target().ok().flatten().map(|target| target.to_string());
        let about = self.page().map(|page| page.split(['?', '#']).next().unwrap_or_default().to_owned()).or(target);
        match about {
            Some(about) => format!("Browser: {} {}", self.verb(), shortened(&about)),
            None => format!("Browser: {}", self.verb()),
        }
    }

    /// The input of the risk assessment: what identifies the field, without the text to be typed.
    pub(super) fn for_assessment(&self) -> Value {
        let field = match self {
            ActionRequest::Fill(Fill { selector, .. }) | ActionRequest::Select(Select { selector, .. }) => {
                selector.clone()
            }
            _ => None,
        };
        json!({ "action": self.verb(), "params": { "selector": field, "url": self.page() } })
    }

    /// The recorded details, without the text to be typed.
    pub(super) fn detail(&self) -> Value {
        let mut detail = Map::new();
        let mut say = |name: &str, value: Value| {
            detail.insert(name.to_owned(), value);
        };
        if let Some(page) = self.page() {
            say("url", shortened(page).into());
        }
        if let Ok(Some(target)) = self.target() {
            say("target", shortened(&target.to_string()).into());
        }
        match self {
            ActionRequest::Fill(Fill { value, .. }) => say("characters", value.chars().count().into()),
            // A single character may be part of a password.
            ActionRequest::Press(Press { key }) if key.chars().count() > 1 => say("key", shortened(key).into()),
            ActionRequest::Evaluate(Evaluate { script }) => {
                say("script", shortened(script).into());
                say("script_sha256", Digest::of(script.as_bytes()).to_string().into());
            }
            ActionRequest::Upload(Upload { files, .. }) => say("files", json!(files)),
            ActionRequest::GetContent(Content { format }) => say("format", format!("{format:?}").to_lowercase().into()),
            _ => {}
        }
        Value::Object(detail)
    }

    /// The browser command; `None` for `close` or if a required part is missing.
    pub(super) fn action(self, known: Known) -> Option<Action> {
        let timeout = self.timeout().unwrap_or(Duration::from_secs(DEFAULT_SECONDS));
        let target = self.target().ok().flatten();
        let Known { page, field, uploads } = known;
        Some(match self {
            ActionRequest::Navigate(_) => Action::Navigate { url: page?, timeout },
            ActionRequest::Click(_) => Action::Click { target: target? },
            ActionRequest::Fill(Fill { value, .. }) => Action::Fill { target: target?, text: value, expected: field },
            ActionRequest::Screenshot(Screenshot { full_page, .. }) => {
                let viewport = if full_page { ScreenshotArea::FullPage } else { ScreenshotArea::Viewport };
                Action::Screenshot { of: target.map_or(viewport, ScreenshotArea::Element) }
            }
            ActionRequest::GetContent(Content { format }) => Action::Content {
                format: match format {
                    ContentFormat::Text => Format::Text,
                    ContentFormat::Html => Format::Html,
                    ContentFormat::Outline => Format::Outline,
                },
            },
            ActionRequest::WaitFor(WaitFor { text: Some(text), .. }) => {
                Action::WaitFor { until: WaitCondition::Text(text), timeout }
            }
            ActionRequest::WaitFor(_) => {
                Action::WaitFor { until: target.map_or(WaitCondition::Load, WaitCondition::Element), timeout }
            }
            ActionRequest::Press(Press { key }) => Action::Press { key, expected: field },
            ActionRequest::Select(Select { values, .. }) => Action::Select { target: target?, values, expected: field },
            ActionRequest::Scroll(Scroll { x, y, .. }) => {
                Action::Scroll { to: target.map_or(ScrollTarget::By { x, y }, ScrollTarget::Element) }
            }
            ActionRequest::Back(_) => Action::Back,
            ActionRequest::Evaluate(Evaluate { script }) => Action::Evaluate { script },
            ActionRequest::Download(_) => {
                let from = match page {
                    Some(url) => DownloadSource::Url(url),
                    None => DownloadSource::Element(target?),
                };
                Action::Download { from, timeout }
            }
            ActionRequest::Upload(_) => Action::Upload { target: target?, paths: uploads },
            ActionRequest::Pdf(_) => Action::Pdf,
            ActionRequest::Close(_) => return None,
        })
    }
}

pub(super) fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(NOTED)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_browser_action_is_refused() {
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
    fn nothing_that_is_typed_is_told_to_the_record() {
        let known = || Known { page: None, field: FieldKind::Password, uploads: Vec::new() };
        for (action, params) in [
            ("fill", json!({"selector": "#p", "value": "hunter2"})),
            ("press", json!({"key": "7"})),
            ("select", json!({"ref": "e7", "values": ["hunter2"]})),
        ] {
            let request = ActionRequest::read(action, params).unwrap();
            let told = format!("{}{}", request.detail(), request.for_assessment());
            assert!(!told.contains("hunter2") && !told.contains("\"7\""), "{told}");
            assert!(request.action(known()).is_some());
        }
        assert!(ActionRequest::read("close", Value::Null).unwrap().action(known()).is_none());
        let scroll = ActionRequest::read("scroll", json!({"y": 500})).unwrap().action(known());
        assert!(matches!(scroll, Some(Action::Scroll { to: ScrollTarget::By { x: 0, y: 500 } })));
    }
}
