//! Which document is shown, so that what somebody was asked about one is never done to another.
//!
//! A document is known by its page and its loader, and the place where its own scripts run by an id that Chromium gives once. An
//! address would not do: between a look at it and the deed a page can go elsewhere, and to the same address with another content.

use serde_json::json;

use crate::error::Error;
use crate::protocol::{DisableRuntime, EnableRuntime, Evaluate};
use crate::view::{SOON, View};
use crate::words;

const MAX_URL_LEN: usize = 8192;

/// One document of one page, from its being shown until it is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// Where it is, read beside the page's own scripts, which cannot say otherwise.
    pub url: String,
    pub(crate) session: String,
    pub(crate) loader: String,
    /// Where its own scripts run.
    pub(crate) scripts: String,
}

impl Document {
    pub(crate) async fn shown(view: &mut View<'_>) -> Result<Self, Error> {
        let url: String = view.ask("where", json!({}), SOON).await?;
        let Some(loader) = view.answered_by() else { return Err(Error::Moved) };
        // A document without scripts has no place for them until somebody asks for one.
        let nothing = Evaluate {
            expression: "0",
            return_by_value: true,
            await_promise: false,
            user_gesture: false,
            timeout: 5000,
            context_id: None,
            unique_context_id: None,
        };
        view.call(&nothing, SOON).await?;
        // Those that are there are told before the answer. Nothing else that this would tell is listened to for longer.
        view.call(&EnableRuntime {}, SOON).await?;
        let scripts = view.connection.scene(|scene| scene.of_session(&view.session)?.scripts.clone());
        view.call(&DisableRuntime {}, SOON).await?;
        let scripts = scripts.ok_or_else(|| Error::Page { why: "it has no place for scripts".to_owned() })?;
        let document = Self { url: words::cut(&url, MAX_URL_LEN), session: view.session.clone(), loader, scripts };
        if document.is_shown(view)? { Ok(document) } else { Err(Error::Moved) }
    }

    /// Whether the page that is seen shows it now.
    pub(crate) fn is_shown(&self, view: &View<'_>) -> Result<bool, Error> {
        Ok(view.session == self.session && view.loader()? == self.loader)
    }
}
