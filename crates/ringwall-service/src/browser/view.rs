//! The state of a session's browser for display: page, last screenshot and recent actions.

use std::sync::Arc;

use ringwall_ids::ExecId;
use ringwall_record::{BrowserAction, BrowserStatus, Limit, Timestamp};
use serde::Serialize;
use serde_json::Value;

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::Service;
use crate::session_ref::{SessionAddress, SessionRef};

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

/// What was done, without what was typed and without anything of the page but its address.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = BrowserAction)]
pub struct BrowserActionView {
    #[schema(value_type = String)]
    action_id: ExecId,
    action: String,
    /// `external` or `sandbox`
    kind: String,
    /// What it was asked for
    #[schema(value_type = Object)]
    detail: Value,
    /// Who asked: the id of their token
    actor: String,
    /// `running`, `succeeded`, `failed`, `refused` or `lost`
    #[schema(value_type = String)]
    status: BrowserStatus,
    error: Option<String>,
    /// Where the page was afterwards
    url: Option<String>,
    /// What the browser asked of the network since the action before
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
        let place = SessionRef::read(by, address)?;
        let found = self.inner.store.browser_actions(&place.name, Limit::nearest(SHOWN)).await?;
        let actions = found.into_iter().map(BrowserActionView::from).collect();
        let shown = self.inner.browsers.find(&place.name).map(|slot| slot.show());
        Ok(match shown.filter(|shown| shown.window.is_some()) {
            Some(shown) => BrowserView {
                kind: shown.window.map(ringwall_policy::BrowserKind::key),
                url: Some(shown.url),
                title: Some(shown.title),
                picture: shown.picture,
                actions,
            },
            None => BrowserView { kind: None, url: None, title: None, picture: None, actions },
        })
    }
}
