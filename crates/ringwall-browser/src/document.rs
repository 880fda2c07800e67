//! Identifies the current document, so that an action that was approved for one document is not
//! done to another.
//!
//! A document is identified by its page, its loader id and the unique id of its JavaScript context.
//! A URL would not suffice: the page can navigate between check and action, even to other content
//! at the same URL.

use serde_json::json;

use crate::error::Error;
use crate::protocol::{DisableRuntime, EnableRuntime, Evaluate};
use crate::text;
use crate::view::{CALL_LIMIT, View};

const MAX_URL_LEN: usize = 8192;

/// One document of one page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Document {
    /// URL, read in our isolated world, which scripts of the page cannot change.
    pub url: String,
    pub(crate) session: String,
    pub(crate) loader: String,
    /// Unique id of the JavaScript context of the page's own scripts.
    pub(crate) scripts: String,
}

impl Document {
    pub(crate) async fn shown(view: &mut View<'_>) -> Result<Self, Error> {
        let url: String = view.run("where", json!({}), CALL_LIMIT).await?;
        let Some(loader) = view.answered_by() else { return Err(Error::Moved) };
        // A document without scripts has no context until one is requested.
        let nothing = Evaluate {
            expression: "0",
            return_by_value: true,
            await_promise: false,
            user_gesture: false,
            timeout: 5000,
            context_id: None,
            unique_context_id: None,
        };
        view.call(&nothing, CALL_LIMIT).await?;
        // Existing contexts are reported before the answer. Disabled again at once, because no
        // other runtime event is used.
        view.call(&EnableRuntime {}, CALL_LIMIT).await?;
        let scripts = view.connection.pages(|pages| pages.of_session(&view.session)?.scripts.clone());
        view.call(&DisableRuntime {}, CALL_LIMIT).await?;
        let scripts = scripts.ok_or_else(|| Error::Page { why: "it has no JavaScript context".to_owned() })?;
        let document = Self { url: text::cut(&url, MAX_URL_LEN), session: view.session.clone(), loader, scripts };
        if document.is_shown(view)? { Ok(document) } else { Err(Error::Moved) }
    }

    /// Returns whether the current page shows this document now.
    pub(crate) fn is_shown(&self, view: &View<'_>) -> Result<bool, Error> {
        Ok(view.session == self.session && view.loader()? == self.loader)
    }
}
