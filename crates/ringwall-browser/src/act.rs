//! Input to a page: click, type, press, select, scroll, wait, upload, download.
//!
//! Clicks and keys are sent as input events, so a page sees what it would see of a person. Text is
//! entered by one script call without a turn of the event loop, because between two calls the page
//! could replace the field.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::action::{DownloadSource, FieldKind, ScrollTarget, Target, WaitCondition};
use crate::error::Error;
use crate::keys::{self, KeyPress};
use crate::navigate::{self, finish_downloads, settle, snapshot};
use crate::protocol::{
    DisableFetch, EnableFetch, KeyEvent, MouseEvent, Navigate, ReleaseObject, RequestPattern, SetFiles,
};
use crate::text;
use crate::view::{CALL_LIMIT, Effect, View, field_word};

const MAX_WAIT: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Deserialize)]
struct Point {
    x: f64,
    y: f64,
}

pub(crate) async fn click(view: &mut View<'_>, target: &Target) -> Result<Value, Error> {
    let before = snapshot(view.connection);
    press_button(view, target).await?;
    settle(view, &before).await
}

async fn press_button(view: &mut View<'_>, target: &Target) -> Result<(), Error> {
    let Point { x, y } = view.run_on("place", target, json!({}), Effect::None).await?;
    for (kind, button, click_count) in
        [("mouseMoved", "none", 0), ("mousePressed", "left", 1), ("mouseReleased", "left", 1)]
    {
        match view.call(&MouseEvent { kind, x, y, button, click_count }, CALL_LIMIT).await {
            Ok(_) => {}
            // The page closed or navigated on the button press: that is the effect of the click.
            Err(Error::PageGone) if kind == "mouseReleased" => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(crate) async fn fill(
    view: &mut View<'_>,
    target: &Target,
    text: &str,
    expected: FieldKind,
) -> Result<Value, Error> {
    let arguments = json!({ "text": text, "expected": field_word(expected) });
    view.run_on("fill", target, arguments, Effect::MayAct).await
}

pub(crate) async fn press(view: &mut View<'_>, key: &str, expected: FieldKind) -> Result<Value, Error> {
    let KeyPress { modifiers, key, code, number, text, commands } =
        keys::read(key).ok_or_else(|| Error::Key { key: text::cut(key, 40) })?;
    let before = snapshot(view.connection);
    let found: Value = view.run_once_on("kind", &Target::Focused, json!({})).await?;
    match crate::view::field_kind(&found) {
        Some(found) if found == expected => {}
        Some(found) => return Err(Error::OtherField { target: Target::Focused.to_string(), expected, found }),
        None => return Err(Error::Page { why: "it does not report the kind of the focused element".to_owned() }),
    }
    view.require_document()?;
    let kind = if text.is_some() { "keyDown" } else { "rawKeyDown" };
    for (kind, text, commands) in [(kind, text.as_deref(), commands), ("keyUp", None, &[][..])] {
        let event =
            KeyEvent { kind, modifiers, key: &key, code: &code, windows_virtual_key_code: number, text, commands };
        match view.call(&event, CALL_LIMIT).await {
            Ok(_) => {}
            Err(Error::PageGone) if kind == "keyUp" => {}
            Err(error) => return Err(error),
        }
    }
    settle(view, &before).await
}

pub(crate) async fn select(
    view: &mut View<'_>,
    target: &Target,
    values: &[String],
    expected: FieldKind,
) -> Result<Value, Error> {
    let before = snapshot(view.connection);
    let arguments = json!({ "values": values, "expected": field_word(expected) });
    let selected: Value = view.run_on("select", target, arguments, Effect::MayAct).await?;
    settle(view, &before).await?;
    Ok(json!({ "selected": selected }))
}

pub(crate) async fn scroll(view: &mut View<'_>, to: &ScrollTarget) -> Result<Value, Error> {
    match to {
        ScrollTarget::Element(target) => view.run_on("scrollTo", target, json!({}), Effect::None).await,
        ScrollTarget::By { x, y } => view.run("scrollBy", json!({ "x": x, "y": y }), CALL_LIMIT).await,
    }
}

pub(crate) async fn upload(view: &mut View<'_>, target: &Target, paths: &[String]) -> Result<Value, Error> {
    let count = json!({ "count": paths.len() });
    let _: Value = view.run_on("takesFiles", target, count, Effect::None).await?;
    let object = view.element(target).await?;
    let set = view.call(&SetFiles { files: paths, object_id: &object }, CALL_LIMIT).await;
    // Releases the element even if it did not take the files. If that fails, the page is gone.
    let _ = view.call(&ReleaseObject { object_id: &object }, CALL_LIMIT).await;
    set?;
    Ok(Value::Null)
}

pub(crate) async fn wait_for(view: &mut View<'_>, until: &WaitCondition, timeout: Duration) -> Result<Value, Error> {
    let limit = timeout.min(MAX_WAIT);
    let end = Instant::now() + limit;
    let what = match until {
        WaitCondition::Load => {
            let is_loaded = navigate::wait_for_load(view.connection, limit).await?;
            let late = || Error::NotSeen { what: "the page's load event".to_owned(), limit };
            return is_loaded.then_some(Value::Null).ok_or_else(late);
        }
        WaitCondition::Element(target) => text::cut(&target.to_string(), 200),
        WaitCondition::Text(text) => format!("the text `{}`", text::cut(text, 200)),
    };
    loop {
        view.follow()?;
        let is_there = match until {
            WaitCondition::Element(target) => view.run_once_on("isThere", target, json!({})).await,
            WaitCondition::Text(text) => view.run("hasText", json!({ "text": text }), CALL_LIMIT).await,
            WaitCondition::Load => Ok(true),
        };
        match is_there {
            Ok(true) => return Ok(Value::Null),
            Ok(false) | Err(Error::NoElement { .. } | Error::Moved | Error::PageGone) => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= end {
            return Err(Error::NotSeen { what, limit });
        }
        tokio::time::sleep(PAUSE).await;
    }
}

pub(crate) async fn download(view: &mut View<'_>, from: &DownloadSource, timeout: Duration) -> Result<Value, Error> {
    let begun = snapshot(view.connection).begun();
    let end = Instant::now() + timeout.min(MAX_WAIT);
    match from {
        DownloadSource::Element(target) => press_button(view, target).await?,
        DownloadSource::Url(url) => {
            let documents = [RequestPattern { url_pattern: "*", resource_type: "Document", request_stage: "Response" }];
            view.call(&EnableFetch { patterns: &documents }, CALL_LIMIT).await?;
            let rest = end.saturating_duration_since(Instant::now());
            let asked = view.connection.call(Some(&view.session), &Navigate { url }, rest).await;
            let disabled = view.call(&DisableFetch {}, CALL_LIMIT).await;
            let navigated = asked?;
            disabled?;
            let is_begun = navigated.is_download || view.connection.pages(|pages| pages.begun) != begun;
            if let Some(text) = navigated.error_text.filter(|_| !is_begun) {
                return Err(Error::NotOpened { url: text::cut(url, 300), message: text::cut(&text, 300) });
            }
        }
    }
    finish_downloads(view.connection, begun, end).await?;
    Ok(Value::Null)
}
