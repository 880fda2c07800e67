//! `/api/sessions/{id}/pty`: a terminal in a session's box, over a WebSocket.
//!
//! Binary messages are what is typed and what is shown; text is JSON: the window's new size from here, how it began and ended
//! from there. Whoever does not take what is shown stops the terminal and nobody else, and after a while is gone. The
//! terminal ends with the socket.

use axum::extract::ws::{Message, close_code};
use axum::extract::{Extension, State};
use axum::response::Response;
use ringwall_service::{HeldLogin, OpenedTerminal, Principal, SessionAddress, Terminal, TerminalEvent, WindowSize};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::socket_line::{Asked, End, Line, Place, upgrade};
use crate::http::Door;
use crate::http::transport::body::{Named, Words};
use crate::http::transport::connections::Caller;
use crate::http::transport::json;
use crate::http::transport::problem::Problem;

/// Of either side of a window.
const MAX_SIDE: u16 = 1000;
const DEFAULT: WindowSize = WindowSize { rows: 24, columns: 80 };

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TerminalWords {
    /// 1 to 1000; 80 unless said
    cols: Option<u16>,
    /// 1 to 1000; 24 unless said
    rows: Option<u16>,
    /// A line for bash; an interactive shell unless said
    command: Option<String>,
    /// `default` unless said
    agent_id: Option<String>,
    /// For an owner or operator: whose session; `default` unless said
    user_id: Option<String>,
    /// For a program that cannot send headers
    #[serde(rename = "ticket")]
    _ticket: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    resize: Size,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    cols: u16,
    rows: u16,
}

#[utoipa::path(get, path = "/api/sessions/{id}/pty", tag = "sessions", operation_id = "session_terminal",
    params(("id" = String, Path), TerminalWords),
    responses(
        (status = 101, description = "a WebSocket: binary is what is typed and shown; takes `{\"resize\":{\"cols\",\"rows\"}}`, says `{\"begun\":{\"exec_id\"}}` and `{\"exit\":{\"code\",\"status\",\"reason\"}}`"),
    ))]
pub(crate) async fn open(
    State(door): State<Door>,
    Extension(principal): Extension<Principal>,
    caller: Option<Extension<Caller>>,
    login: Option<Extension<HeldLogin>>,
    Named(id): Named<String>,
    Words(words): Words<TerminalWords>,
    asked: Asked,
) -> Result<Response, Problem> {
    let upgrade = upgrade(asked, "POST /api/sessions/{id}/processes runs a line without a terminal")?;
    let TerminalWords { cols, rows, command, agent_id, user_id, .. } = words;
    let size = window(cols.unwrap_or(DEFAULT.columns), rows.unwrap_or(DEFAULT.rows)).map_err(Problem::invalid)?;
    let place = Place::take(&door, &principal, caller, login)?;
    let address = SessionAddress { session_id: id, user_id, agent_id };
    let opened = match door.service.open_terminal(&principal, address, command, size).await {
        Ok(opened) => Ok(opened),
        // A page is not told why a socket is refused, only why it is closed.
        Err(error @ ringwall_service::Error::BackendUnavailable { .. }) => Err(error.to_string()),
        Err(error) => return Err(Problem::of_session(error)),
    };
    let service = door.service.clone();
    Ok(upgrade.on_upgrade(async move |socket| {
        let mut line = Line::new(service, principal, place, socket);
        let end = match opened {
            Ok(OpenedTerminal::There(terminal)) => Sitting { line: &mut line, terminal: *terminal }.sit().await,
            Ok(OpenedTerminal::NeedsPerson(exec_id)) => {
                let reason = format!("{exec_id}: a person has to allow this command; send it to POST …/exec instead");
                End::close(close_code::POLICY, reason)
            }
            Err(why) => End::close(close_code::AGAIN, why),
        };
        line.finish(end).await;
    }))
}

fn window(columns: u16, rows: u16) -> Result<WindowSize, String> {
    match [columns, rows].iter().all(|side| (1..=MAX_SIDE).contains(side)) {
        true => Ok(WindowSize { rows, columns }),
        false => Err(format!("cols and rows are 1 to {MAX_SIDE}")),
    }
}

/// Somebody at a terminal. The terminal ends with this.
struct Sitting<'a> {
    line: &'a mut Line,
    terminal: Terminal,
}

impl Sitting<'_> {
    async fn sit(mut self) -> End {
        loop {
            let has_room = self.terminal.has_room();
            let step = tokio::select! {
                event = self.terminal.next() => match event {
                    Ok(event) => self.tell(event).await,
                    Err(error) => Err(End::close(close_code::ERROR, error.code())),
                },
                message = self.line.socket.recv(), if has_room => {
                    self.line.watch.heard();
                    self.hear(message).await
                }
                moment = self.line.watch.next() => {
                    if !has_room {
                        self.line.watch.heard();
                    }
                    self.line.attend(moment).await
                }
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn tell(&mut self, event: TerminalEvent) -> Result<(), End> {
        match event {
            TerminalEvent::Begun => self.say(json!({ "begun": { "exec_id": self.terminal.exec_id() } })).await,
            TerminalEvent::Shown(bytes) => self.line.pass(Message::binary(bytes)).await,
            TerminalEvent::Typed => Ok(()),
            TerminalEvent::Ended(end) => {
                let exit = json!({ "code": end.exit_code, "status": end.status, "reason": end.reason });
                self.say(json!({ "exit": exit })).await?;
                Err(End::close(close_code::NORMAL, ""))
            }
        }
    }

    async fn hear(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        match message {
            Some(Ok(Message::Binary(bytes))) => {
                self.terminal.press(&bytes);
                Ok(())
            }
            Some(Ok(Message::Text(text))) => match read(&text) {
                Ok(size) => {
                    self.terminal.resize(size);
                    Ok(())
                }
                Err(message) => self.say(json!({ "error": { "code": "INVALID_MESSAGE", "message": message } })).await,
            },
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Close(_))) | None => Err(End::Lost),
            Some(Err(_)) => Err(End::malformed()),
        }
    }

    async fn say(&mut self, message: Value) -> Result<(), End> {
        self.line.pass(Message::text(message.to_string())).await
    }
}

fn read(text: &str) -> Result<WindowSize, String> {
    let value = json::read(text.as_bytes()).map_err(|error| format!("that is no JSON: {error}"))?;
    let order: Order = serde_json::from_value(value).map_err(|error| error.to_string())?;
    window(order.resize.cols, order.resize.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_a_size() {
        assert_eq!(read(r#"{"resize":{"cols":100,"rows":40}}"#), Ok(WindowSize { rows: 40, columns: 100 }));
        for bad in [
            "",
            "1",
            "{}",
            r#"{"resize":{}}"#,
            r#"{"resize":{"cols":0,"rows":40}}"#,
            r#"{"resize":{"cols":100,"rows":1001}}"#,
            r#"{"resize":{"cols":100,"rows":70000}}"#,
            r#"{"resize":{"cols":100,"rows":40},"more":1}"#,
            r#"{"resize":{"cols":100,"rows":40},"resize":{"cols":1,"rows":1}}"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
