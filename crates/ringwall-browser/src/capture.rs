//! Content of a page: text, HTML, outline, screenshot, PDF and script values, each bounded in size.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::action::{Format, ScreenshotArea};
use crate::error::Error;
use crate::protocol::{CaptureScreenshot, Clip, Encoded, Evaluate, GetLayoutMetrics, PrintToPdf};
use crate::text;
use crate::view::{CALL_LIMIT, Effect, View};

/// Limit for reading or rendering a large page and for running a script.
const LONG_LIMIT: Duration = Duration::from_secs(30);
const MAX_WIDTH: f64 = 4096.0;
const MAX_HEIGHT: f64 = 16384.0;
const MAX_PIXELS: f64 = 16e6;
const MAX_VALUE: usize = 1 << 20;

#[derive(Deserialize)]
struct Outline {
    content: String,
    truncated: bool,
    next: u64,
}

#[derive(Deserialize)]
struct Region {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

pub(crate) async fn content(view: &mut View<'_>, format: Format) -> Result<Value, Error> {
    match format {
        Format::Text => view.run("text", json!({}), LONG_LIMIT).await,
        Format::Html => view.run("html", json!({}), LONG_LIMIT).await,
        Format::Outline => {
            // Numbers are never reused, so that a reference of an older outline is detected.
            let first = view.memory.references.1.max(1);
            let Outline { content, truncated, next } =
                view.run("outline", json!({ "first": first }), LONG_LIMIT).await?;
            let next = next.clamp(first, first.saturating_add(1 << 20));
            view.memory.references = (first, next);
            Ok(json!({ "content": content, "truncated": truncated }))
        }
    }
}

pub(crate) async fn screenshot(view: &mut View<'_>, of: &ScreenshotArea) -> Result<(Value, Vec<u8>), Error> {
    let region = match of {
        ScreenshotArea::Viewport => None,
        ScreenshotArea::FullPage => {
            let size = view.call(&GetLayoutMetrics {}, CALL_LIMIT).await?.css_content_size;
            Some(Region { x: 0.0, y: 0.0, width: size.width, height: size.height })
        }
        ScreenshotArea::Element(target) => Some(view.run_on("box", target, json!({}), Effect::None).await?),
    };
    let bounded = region.map(|Region { x, y, width, height }| {
        let across = width.clamp(1.0, MAX_WIDTH);
        let down = height.clamp(1.0, MAX_HEIGHT.min(MAX_PIXELS / across));
        (Clip { x, y, width: across, height: down, scale: 1.0 }, across < width || down < height)
    });
    let truncated = bounded.is_some_and(|(_, is_cut)| is_cut);
    let clip = bounded.map(|(clip, _)| clip);
    let call = CaptureScreenshot { format: "png", clip, capture_beyond_viewport: clip.is_some() };
    let picture = decode(view.call(&call, LONG_LIMIT).await?)?;
    Ok((json!({ "truncated": truncated }), picture))
}

pub(crate) async fn pdf(view: &View<'_>) -> Result<Vec<u8>, Error> {
    decode(view.call(&PrintToPdf { print_background: true }, LONG_LIMIT).await?)
}

fn decode(encoded: Encoded) -> Result<Vec<u8>, Error> {
    STANDARD.decode(encoded.data).map_err(|error| Error::Page { why: error.to_string() })
}

/// Runs a script in the page's own JavaScript context.
pub(crate) async fn evaluate(view: &View<'_>, script: &str) -> Result<Value, Error> {
    view.require_document()?;
    let call = Evaluate {
        expression: script,
        return_by_value: true,
        await_promise: true,
        user_gesture: false,
        timeout: 5000,
        context_id: None,
        unique_context_id: view.document.map(|document| document.scripts.as_str()),
    };
    let evaluated = match view.call(&call, LONG_LIMIT).await {
        // The script navigated, so it has no value.
        Err(Error::Refused { message, .. }) if message.contains("navigated or closed") => {
            return Ok(json!({ "value": null }));
        }
        Err(Error::Refused { message, .. }) if message.contains("uniqueContextId not found") => {
            return Err(Error::OtherPage);
        }
        Err(Error::Refused { message, .. }) => return Err(Error::Script { message }),
        other => other?,
    };
    if let Some(exception) = evaluated.exception_details {
        let thrown = exception
            .exception
            .and_then(|thrown| thrown.description.or_else(|| thrown.value.map(|value| value.to_string())));
        return Err(Error::Script { message: text::cut(&thrown.unwrap_or(exception.text), 1000) });
    }
    if let Some(message) = evaluated.result.unserializable_value {
        return Ok(json!({ "value": text::cut(&message, 1000) }));
    }
    let value = evaluated.result.value.as_ref().map_or("null", |value| value.get());
    if value.len() > MAX_VALUE {
        return Err(Error::TooLarge { what: "the script's value".to_owned() });
    }
    let value: Value = serde_json::from_str(value).map_err(|error| Error::Page { why: error.to_string() })?;
    Ok(json!({ "value": value }))
}
