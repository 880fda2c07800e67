//! `/api/sessions/{id}/pty`: a terminal in the session box, over a WebSocket.
//!
//! Binary messages carry keyboard input and output. Text messages are JSON: the client sends the
//! window size, the server sends the start and the exit. A client that does not read output blocks
//! its own terminal and is disconnected after the socket's timeout. The terminal ends with the
//! socket.

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

/// Largest number of rows and of columns.
const MAX_SIDE: u16 = 1000;
const DEFAULT: WindowSize = WindowSize { rows: 24, columns: 80 };

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TerminalWords {
    /// Columns, 1 to 1000; default 80
    cols: Option<u16>,
    /// Rows, 1 to 1000; default 24
    rows: Option<u16>,
    /// Command line for bash. Default: an interactive shell
    command: Option<String>,
    /// Agent of the session. Default: an agent token's own agent, otherwise `default`
    agent_id: Option<String>,
    /// User of the session. Default: the token's own user; `default` for owner and operator tokens
    user_id: Option<String>,
    /// Ticket of `POST /api/tickets`, for clients that cannot send headers
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
        (status = 101, description = "A WebSocket. Binary messages are keyboard input and output. The client may send `{\"resize\":{\"cols\",\"rows\"}}`; the server sends `{\"begun\":{\"exec_id\"}}` and `{\"exit\":{\"code\",\"status\",\"reason\"}}`"),
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
    let upgrade = upgrade(asked, "POST /api/sessions/{id}/processes runs a command without a terminal")?;
    let TerminalWords { cols, rows, command, agent_id, user_id, .. } = words;
    let size = window(cols.unwrap_or(DEFAULT.columns), rows.unwrap_or(DEFAULT.rows)).map_err(Problem::invalid)?;
    let place = Place::take(&door, &principal, caller, login)?;
    let address = SessionAddress { session_id: id, user_id, agent_id };
    let opened = match door.service.open_terminal(&principal, address, command, size).await {
        Ok(opened) => Ok(opened),
        // Sent as a close reason: browsers hide the response to a failed handshake from scripts.
        Err(error @ ringwall_service::Error::BackendUnavailable { .. }) => Err(error.to_string()),
        Err(error) => return Err(Problem::of_session(error)),
    };
    let service = door.service.clone();
    Ok(upgrade.on_upgrade(async move |socket| {
        let mut line = Line::new(service, principal, place, socket);
        let end = match opened {
            Ok(OpenedTerminal::There(terminal)) => Sitting { line: &mut line, terminal: *terminal }.sit().await,
            Ok(OpenedTerminal::NeedsPerson(exec_id)) => {
                let reason = format!("{exec_id}: this command needs an approval; send it to POST …/exec instead");
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
        false => Err(format!("cols and rows must be 1 to {MAX_SIDE}")),
    }
}

/// A terminal connected to a socket. Dropping it ends the terminal.
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
    let value = json::read(text.as_bytes()).map_err(|error| format!("the message is not JSON: {error}"))?;
    let order: Order = serde_json::from_value(value).map_err(|error| error.to_string())?;
    window(order.resize.cols, order.resize.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_resize_is_rejected() {
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
