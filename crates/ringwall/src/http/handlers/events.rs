//! `/sandbox/execs/{id}/events`: status and output of an exec as server-sent events that a client
//! can resume.
//!
//! The id of an event is the cursor after it. In text encoding, a UTF-8 character that arrives in
//! two reads is sent in one event: its first bytes are held back and the cursor stays before them,
//! so a client that resumes after any event misses nothing.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, stream};
use ringwall_service::{Event, EventCursor, EventKind, HeldLogin, Stream};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use super::execs::{exec_id, parse};
use crate::http::AppState;
use crate::http::transport::access::Caller;
use crate::http::transport::body::{PathParam, Query};
use crate::http::transport::guarded_body::guard_body;
use crate::http::transport::problem::Problem;

/// Between two keep-alive comments, so that proxies do not close the connection of a silent exec.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Encoding of output: `text` (default) or `base64`
    encoding: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Text,
    Base64,
}

#[utoipa::path(get, path = "/sandbox/execs/{id}/events", tag = "execs",
    params(("id" = String, Path), EventQuery, ("Last-Event-ID" = Option<String>, Header, description = "Id of the last received event; the stream resumes after it")),
    responses((status = 200, description = "Events `status`, `stdout` and `stderr`, and at last `end` with the exec", content_type = "text/event-stream", body = String)))]
pub(crate) async fn follow(
    State(state): State<AppState>,
    by: Caller,
    login: Option<Extension<HeldLogin>>,
    PathParam(id): PathParam<String>,
    Query(query): Query<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let encoding = match query.encoding.as_deref() {
        None | Some("text") => Encoding::Text,
        Some("base64") => Encoding::Base64,
        Some(_) => return Err(Problem::invalid("encoding: text or base64")),
    };
    let last = headers.get("last-event-id").map(|value| value.to_str().unwrap_or("?"));
    let after = parse::<EventCursor>(last.filter(|last| !last.is_empty()))?;
    let permit = state.streams.acquire(&by.principal)?;
    let events = by.service.events(&by.principal, &exec_id(&id)?, after).await?;
    let mut characters = WholeCharacters { encoding, held: [Vec::new(), Vec::new()] };
    let logged_out = async move {
        match login {
            Some(Extension(login)) => login.ended().await,
            None => std::future::pending().await,
        }
    };
    let events = events
        .take_until(Box::pin(logged_out))
        // After a read error the stream ends without `end`, and the client reconnects.
        .take_while(|event| std::future::ready(event.is_ok()))
        .filter_map(|event| std::future::ready(event.ok()))
        .flat_map(move |event| stream::iter(characters.pass(event)))
        .map(move |event| Ok::<_, Infallible>(sse_event(&event, encoding)));
    let response = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL)).into_response();
    Ok(guard_body(response, permit))
}

fn sse_event(event: &Event, encoding: Encoding) -> sse::Event {
    let (name, data) = match &event.kind {
        EventKind::Status(status) => ("status", json!({ "status": status.to_string() })),
        EventKind::Output { stream, offset, bytes } => {
            let data = match encoding {
                Encoding::Text => json!({ "offset": offset, "text": String::from_utf8_lossy(bytes) }),
                Encoding::Base64 => json!({ "offset": offset, "base64": STANDARD.encode(bytes) }),
            };
            (if *stream == Stream::Stdout { "stdout" } else { "stderr" }, data)
        }
        EventKind::End(view) => ("end", json!(view)),
    };
    sse::Event::default().id(event.cursor.to_string()).event(name).data(data.to_string())
}

/// Joins UTF-8 characters that were split between reads: holds back the first bytes until the rest
/// arrives.
struct WholeCharacters {
    encoding: Encoding,
    /// The held bytes of standard output and of standard error.
    held: [Vec<u8>; 2],
}

impl WholeCharacters {
    fn pass(&mut self, event: Event) -> Vec<Event> {
        if self.encoding == Encoding::Base64 {
            return vec![event];
        }
        match event.kind {
            EventKind::Status(_) => vec![Event { cursor: self.before_held(event.cursor), ..event }],
            EventKind::Output { stream, offset, bytes } => {
                let held = &mut self.held[index_of(stream)];
                let offset = offset - held.len() as u64;
                let mut bytes = [std::mem::take(held), bytes].concat();
                *held = bytes.split_off(bytes.len() - incomplete_len(&bytes));
                let cursor = self.before_held(event.cursor);
                let is_silent = bytes.is_empty();
                let event = Event { cursor, kind: EventKind::Output { stream, offset, bytes } };
                if is_silent { Vec::new() } else { vec![event] }
            }
            // The rest of a held character never came: its bytes are sent before the end.
            EventKind::End(_) => {
                let mut events = Vec::new();
                for stream in [Stream::Stdout, Stream::Stderr] {
                    let bytes = std::mem::take(&mut self.held[index_of(stream)]);
                    let end = if stream == Stream::Stdout { event.cursor.stdout } else { event.cursor.stderr };
                    let offset = end - bytes.len() as u64;
                    if !bytes.is_empty() {
                        let cursor = self.before_held(event.cursor);
                        events.push(Event { cursor, kind: EventKind::Output { stream, offset, bytes } });
                    }
                }
                events.push(event);
                events
            }
        }
    }

    fn before_held(&self, cursor: EventCursor) -> EventCursor {
        let [stdout, stderr] = self.held.each_ref().map(|held| held.len() as u64);
        EventCursor { stdout: cursor.stdout - stdout, stderr: cursor.stderr - stderr }
    }
}

const fn index_of(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// The number of bytes at the end that begin an incomplete character.
fn incomplete_len(bytes: &[u8]) -> usize {
    let mut tail = bytes.iter().rev().take(3).enumerate();
    let lead = tail.find(|(_, byte)| !matches!(byte, 0x80..=0xbf));
    match lead {
        Some((after, 0xc2..=0xdf)) if after < 1 => after + 1,
        Some((after, 0xe0..=0xef)) if after < 2 => after + 1,
        Some((after, 0xf0..=0xf4)) if after < 3 => after + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes the bytes in pieces of `piece` bytes. Returns the joined text, and offset and cursor
    /// of each event.
    fn pass_in_pieces(bytes: &[u8], piece: usize) -> (String, Vec<(u64, u64)>) {
        let mut characters = WholeCharacters { encoding: Encoding::Text, held: Default::default() };
        let (mut text, mut positions, mut offset) = (String::new(), Vec::new(), 0);
        for part in bytes.chunks(piece) {
            let kind = EventKind::Output { stream: Stream::Stdout, offset, bytes: part.to_vec() };
            offset += part.len() as u64;
            for event in characters.pass(Event { cursor: EventCursor { stdout: offset, stderr: 0 }, kind }) {
                let EventKind::Output { offset, bytes, .. } = event.kind else { panic!("another kind") };
                assert_eq!(offset + bytes.len() as u64, event.cursor.stdout, "the cursor is where the text ends");
                positions.push((offset, event.cursor.stdout));
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
        }
        (text, positions)
    }

    #[test]
    fn split_character_is_sent_in_one_event() {
        let text = "aé文🦀z";
        for piece in 1..=text.len() {
            let (joined, positions) = pass_in_pieces(text.as_bytes(), piece);
            assert_eq!(joined, text, "in pieces of {piece}");
            assert!(positions.windows(2).all(|pair| pair[0].1 == pair[1].0), "{positions:?}");
        }
    }

    #[test]
    fn only_an_incomplete_character_is_held_back() {
        assert_eq!(incomplete_len(b"abc\xff"), 0);
        assert_eq!(incomplete_len(b"\x80\x80\x80\x80"), 0);
        assert_eq!(incomplete_len("文".as_bytes()), 0);
        assert_eq!(incomplete_len(&"文".as_bytes()[..2]), 2);
        assert_eq!(incomplete_len(&"🦀".as_bytes()[..3]), 3);
    }
}
