//! Responses of the browser API: the result of an action, and the state of a session's browser with
//! its recent actions.

use std::sync::Arc;

use ringwall_browser::{Answer, Dialog};
use ringwall_ids::ExecId;
use ringwall_policy::BrowserKind;
use ringwall_record::{BrowserAction, BrowserStatus, Limit, Timestamp};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::auth::principal::Principal;
use crate::boxes::browser::Fault;
use crate::error::Error;
use crate::service::Service;
use crate::session_ref::SessionAddress;

/// Maximum number of actions shown.
const SHOWN: u64 = 50;

#[derive(Debug, Clone)]
pub struct BrowserView {
    /// `external` or `sandbox`; `None` without an open browser.
    pub kind: Option<&'static str>,
    pub url: Option<String>,
    pub title: Option<String>,
    /// The last screenshot, a PNG image.
    pub picture: Option<Arc<Vec<u8>>>,
    /// Newest first.
    pub actions: Vec<BrowserActionView>,
}

/// A recorded browser action. Typed text is not recorded, and of the page only the URL.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = BrowserAction)]
pub struct BrowserActionView {
    #[schema(value_type = String)]
    action_id: ExecId,
    action: String,
    /// `external` or `sandbox`
    kind: String,
    /// The parameters of the action, without the text to be typed
    #[schema(value_type = Object)]
    detail: Value,
    /// The id of the caller's token
    actor: String,
    /// `running`, `succeeded`, `failed`, `refused` or `lost`
    #[schema(value_type = String)]
    status: BrowserStatus,
    error: Option<String>,
    /// The URL of the page after the action, without query and fragment
    url: Option<String>,
    /// The browser's connections since the previous action
    #[schema(value_type = Option<Vec<Object>>)]
    connections: Option<Value>,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
}

impl From<BrowserAction> for BrowserActionView {
    fn from(action: BrowserAction) -> Self {
        let BrowserAction { asked, status, error, url, connections, ended_at } = action;
        Self {
            action_id: asked.id,
            action: asked.action,
            kind: asked.kind,
            detail: asked.detail,
            actor: asked.actor,
            status,
            error,
            url,
            connections,
            started_at: asked.started_at,
            ended_at,
        }
    }
}

impl Service {
    pub async fn browser(&self, by: &Principal, address: &SessionAddress) -> Result<BrowserView, Error> {
        let session = address.resolve(by)?;
        let found = self.inner.store.browser_actions(&session, Limit::nearest(SHOWN)).await?;
        let actions = found.into_iter().map(BrowserActionView::from).collect();
        let shown = self.inner.browsers.find(&session).map(|slot| slot.show());
        Ok(match shown.and_then(|shown| Some((shown.kind?, shown))) {
            Some((kind, shown)) => BrowserView {
                kind: Some(kind.key()),
                url: Some(shown.url),
                title: Some(shown.title),
                picture: shown.picture,
                actions,
            },
            None => BrowserView { kind: None, url: None, title: None, picture: None, actions },
        })
    }
}

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
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) answer: Answer,
    /// Paths of created files, relative to the session's workspace.
    pub(super) files: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl BrowserAnswer {
    pub(super) fn new(action_id: ExecId, kind: BrowserKind, done: Result<Done, Fault>) -> Self {
        match done {
            Ok(mut done) => {
                let picture = done.answer.screenshot.take();
                Self { action_id, success: true, data: data(kind, done), error: None, picture }
            }
            Err(Fault { message, .. }) => {
                Self { action_id, success: false, data: Value::Null, error: Some(message), picture: None }
            }
        }
    }
}

/// The action's data with the page's URL and title. Empty lists are left out.
fn data(kind: BrowserKind, done: Done) -> Value {
    let Done { answer, files, notes } = done;
    let mut data = match answer.data {
        Value::Object(object) => object,
        Value::Null => Map::new(),
        other => Map::from_iter([("value".to_owned(), other)]),
    };
    data.insert("browser".to_owned(), kind.key().into());
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
