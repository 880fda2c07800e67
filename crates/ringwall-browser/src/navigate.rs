//! Navigation: to a URL, back, and as the effect of a click or a key.
//!
//! No wait exceeds its limit. If a page is not complete by then, the answer says so.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::error::Error;
use crate::pages::Pages;
use crate::protocol::{Evaluate, GetHistory, Navigate, NavigateToEntry, StopLoading};
use crate::text;
use crate::view::{CALL_LIMIT, View};

/// Limit for a navigation that an action caused.
const LOAD_LIMIT: Duration = Duration::from_secs(10);
/// Limit for a requested navigation to start.
const BEGIN_LIMIT: Duration = Duration::from_secs(2);
/// Events of an action arrive within this time if the page itself reports no activity.
const QUIET_LIMIT: Duration = Duration::from_millis(100);
/// Error text of a navigation that led to no document, and the time that its reason (a download or
/// a crash) may take to arrive.
const ABORTED: &str = "net::ERR_ABORTED";
const REASON_LIMIT: Duration = Duration::from_secs(1);
const MAX_DURATION: Duration = Duration::from_secs(300);

/// State before an action, to detect its effects.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    session: Option<String>,
    commits: u32,
    requests: u32,
    begun: u64,
}

impl Snapshot {
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }
}

pub(crate) fn snapshot(connection: &Connection) -> Snapshot {
    connection.pages(|pages| take_snapshot(pages))
}

fn take_snapshot(pages: &Pages) -> Snapshot {
    let page = pages.current();
    Snapshot {
        session: page.map(|page| page.session.clone()),
        commits: page.map_or(0, |page| page.commits),
        requests: page.map_or(0, |page| page.requests),
        begun: pages.begun,
    }
}

pub(crate) async fn navigate(view: &View<'_>, url: &str, timeout: Duration) -> Result<Value, Error> {
    let timeout = timeout.min(MAX_DURATION);
    let end = Instant::now() + timeout;
    let before = snapshot(view.connection);
    let navigated = view.connection.call(Some(&view.session), &Navigate { url }, timeout).await;
    let navigated = match navigated {
        Ok(navigated) => navigated,
        Err(Error::TimedOut { .. }) => {
            give_up(view).await?;
            return Err(Error::NoAnswer { url: text::cut(url, 300), limit: timeout });
        }
        Err(Error::Refused { message, .. }) => return Err(Error::NotOpened { url: text::cut(url, 300), message }),
        Err(error) => return Err(error),
    };
    if let Some(text) = navigated.error_text {
        // A download or a crash aborts the navigation, and its event may arrive later.
        let known = |pages: &Pages| match pages.open.iter().find(|page| page.session == view.session) {
            _ if pages.begun != before.begun => Some(Ok(true)),
            Some(page) => page.is_crashed.then_some(Err(Error::Crashed)),
            None => Some(Err(Error::PageGone)),
        };
        let limit = if text == ABORTED { REASON_LIMIT } else { Duration::ZERO };
        let is_download = match view.connection.watch(limit, known).await? {
            Some(known) => known?,
            None => navigated.is_download,
        };
        if !is_download {
            return Err(Error::NotOpened { url: text::cut(url, 300), message: text::cut(&text, 300) });
        }
        finish_downloads(view.connection, before.begun, end).await?;
        return Ok(json!({ "status": null, "loaded": true }));
    }
    let Some(loader) = navigated.loader_id else {
        return Ok(json!({ "status": null, "loaded": true }));
    };
    let session = view.session.as_str();
    let rest = end.saturating_duration_since(Instant::now());
    let shown = view.connection.watch(rest, |pages| {
        let Some(page) = pages.open.iter().find(|page| page.session == session) else {
            return Some(Err(Error::PageGone));
        };
        if page.is_crashed {
            return Some(Err(Error::Crashed));
        }
        let is_there = page.loader == loader || page.commits != before.commits;
        (is_there && page.is_loaded).then_some(Ok(()))
    });
    let is_loaded = shown.await?.transpose()?.is_some();
    let status = view.connection.pages(|pages| {
        let page = pages.of_session(session)?;
        let (of, status) = page.status.as_ref()?;
        (*of == page.loader && *status > 0).then_some(*status)
    });
    Ok(json!({ "status": status, "loaded": is_loaded }))
}

/// Stops a navigation that takes too long, and checks that the page still responds.
async fn give_up(view: &View<'_>) -> Result<(), Error> {
    // The next call shows whether this worked.
    let _ = view.connection.call(Some(&view.session), &StopLoading {}, Duration::from_secs(2)).await;
    let nothing = Evaluate {
        expression: "0",
        return_by_value: true,
        await_promise: false,
        user_gesture: false,
        timeout: 1000,
        context_id: None,
        unique_context_id: None,
    };
    match view.call(&nothing, Duration::from_secs(2)).await {
        Ok(_) | Err(Error::Stuck | Error::Refused { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

pub(crate) async fn back(view: &View<'_>) -> Result<Value, Error> {
    let before = snapshot(view.connection);
    let history = view.call(&GetHistory {}, CALL_LIMIT).await?;
    let entry = history.current_index.checked_sub(1).and_then(|index| history.entries.get(index));
    let entry = entry.ok_or(Error::NoHistory)?;
    view.call(&NavigateToEntry { entry_id: entry.id }, CALL_LIMIT).await?;
    let moved = |pages: &Pages| (take_snapshot(pages).commits != before.commits).then_some(());
    let is_moved = view.connection.watch(LOAD_LIMIT, moved).await?.is_some();
    wait_for_load(view.connection, LOAD_LIMIT).await?;
    Ok(json!({ "navigated": is_moved }))
}

/// Waits for the effect of an action: another document, another page, a download, or nothing.
pub(crate) async fn settle(view: &mut View<'_>, before: &Snapshot) -> Result<Value, Error> {
    // The action is done and may have led to another document.
    view.document = None;
    // Form submissions and timers run after the event; two turns of the page's event loop later
    // they have run.
    match view.run::<Value>("settle", json!({}), CALL_LIMIT).await {
        Ok(_) | Err(Error::Moved | Error::PageGone | Error::Page { .. }) => {}
        Err(error) => return Err(error),
    }
    let is_busy = |pages: &Pages| pages.current().is_some_and(|page| page.is_busy);
    let connection = view.connection;
    let touched = |pages: &Pages| (take_snapshot(pages) != *before || is_busy(pages)).then_some(());
    if connection.watch(QUIET_LIMIT, touched).await?.is_none() {
        return Ok(json!({ "navigated": false }));
    }
    let has_moved = |pages: &Pages| {
        let now = take_snapshot(pages);
        now.session != before.session || now.commits != before.commits || now.begun != before.begun
    };
    connection.watch(BEGIN_LIMIT, |pages| (has_moved(pages) || is_busy(pages)).then_some(())).await?;
    wait_for_load(connection, LOAD_LIMIT).await?;
    let (now, is_crashed) =
        connection.pages(|pages| (take_snapshot(pages), pages.current().is_some_and(|page| page.is_crashed)));
    if is_crashed {
        return Err(Error::Crashed);
    }
    Ok(json!({ "navigated": now.session != before.session || now.commits != before.commits }))
}

/// Waits until the current page is loaded. False if the limit passes first.
pub(crate) async fn wait_for_load(connection: &Connection, limit: Duration) -> Result<bool, Error> {
    let is_done = |pages: &Pages| match pages.current() {
        Some(page) => (page.is_crashed || (page.is_loaded && !page.is_busy)).then_some(()),
        None => Some(()),
    };
    Ok(connection.watch(limit, is_done).await?.is_some())
}

/// Waits until a download has started after number `begun`, and all such downloads have ended.
pub(crate) async fn finish_downloads(connection: &Connection, begun: u64, end: Instant) -> Result<(), Error> {
    let limit = end.saturating_duration_since(Instant::now());
    match connection.watch(limit, |pages| pages.outcome_since(begun)).await? {
        Some(outcome) => outcome.map_err(|why| Error::DownloadFailed { why }),
        None if connection.pages(|pages| pages.begun) == begun => Err(Error::NoDownload { limit }),
        None => Err(Error::DownloadFailed { why: "it took too long" }),
    }
}
