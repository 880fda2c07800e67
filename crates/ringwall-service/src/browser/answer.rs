//! The result of a browser action as it is returned to the caller.

use ringwall_browser::{Answer, Dialog};
use ringwall_ids::ExecId;
use ringwall_policy::BrowserKind;
use serde_json::{Map, Value, json};

use crate::boxes::browser::Fault;

/// The result of an action. A failed or refused action has one too.
#[derive(Debug, Clone)]
pub struct BrowserAnswer {
    /// The id of the action in the record and in its question.
    pub action_id: ExecId,
    pub success: bool,
    pub data: Value,
    pub error: Option<String>,
    /// A PNG image.
    pub picture: Option<Vec<u8>>,
}

/// The result of a successful action.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) answer: Answer,
    /// Paths of created files, relative to the session's workspace.
    pub(super) files: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl BrowserAnswer {
    pub(super) fn new(action_id: ExecId, window: BrowserKind, done: Result<Done, Fault>) -> Self {
        match done {
            Ok(mut done) => {
                let picture = done.answer.screenshot.take();
                Self { action_id, success: true, data: data(window, done), error: None, picture }
            }
            Err(Fault { message, .. }) => {
                Self { action_id, success: false, data: Value::Null, error: Some(message), picture: None }
            }
        }
    }
}

/// The action's data with the page's URL and title. Empty lists are left out.
fn data(window: BrowserKind, done: Done) -> Value {
    let Done { answer, files, notes } = done;
    let mut data = match answer.data {
        Value::Object(object) => object,
        Value::Null => Map::new(),
        other => Map::from_iter([("value".to_owned(), other)]),
    };
    data.insert("browser".to_owned(), window.key().into());
    data.insert("url".to_owned(), answer.url.into());
    data.insert("title".to_owned(), answer.title.into());
    let shown = |Dialog { kind, message }: &Dialog| json!({ "kind": kind, "message": message });
    for (name, values) in [
        ("files", files.into_iter().map(Value::from).collect::<Vec<_>>()),
        ("dialogs", answer.dialogs.iter().map(shown).collect()),
        ("notes", notes.into_iter().map(Value::from).collect()),
    ] {
        if !values.is_empty() {
            data.insert(name.to_owned(), values.into());
        }
    }
    if answer.popups > 0 {
        data.insert("popups".to_owned(), answer.popups.into());
    }
    Value::Object(data)
}
