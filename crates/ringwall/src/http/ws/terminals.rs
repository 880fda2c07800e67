//! `/api/sessions/{id}/pty`: a terminal in the session box, over a WebSocket.
//!
//! Binary messages carry keyboard input and output. Text messages are JSON: the client sends the
//! window size, the server sends the start and the exit. A client that does not read output blocks
//! its own terminal and is disconnected after the socket's timeout. The terminal ends with the
//! socket.

use axum::extract::ws::{Message, close_code};
use axum::response::Response;
use ringwall_service::{OpenedTerminal, SessionAddress, Terminal, TerminalEvent, WindowSize};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::connection::{End, SocketConnection, SocketRequest};
use crate::http::transport::body::{PathParam, Query};
use crate::http::transport::json;
use crate::http::transport::problem::Problem;

/// Largest number of rows and of columns.
const MAX_WINDOW_SIDE: u16 = 1000;
const DEFAULT_WINDOW: WindowSize = WindowSize { rows: 24, columns: 80 };

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct TerminalQuery {
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
struct ClientMessage {
    resize: Size,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Size {
    cols: u16,
    rows: u16,
}

#[utoipa::path(get, path = "/api/sessions/{id}/pty", tag = "sessions", operation_id = "session_terminal",
    params(("id" = String, Path), TerminalQuery),
    responses(
        (status = 101, description = "A WebSocket. Binary messages are keyboard input and output. The client may send `{\"resize\":{\"cols\",\"rows\"}}`; the server sends `{\"begun\":{\"exec_id\"}}` and `{\"exit\":{\"code\",\"status\",\"reason\"}}`"),
    ))]
pub(crate) async fn open(
    request: SocketRequest,
    PathParam(id): PathParam<String>,
    Query(query): Query<TerminalQuery>,
) -> Result<Response, Problem> {
    let (upgrade, permit, by) =
        request.accept("POST /api/sessions/{id}/processes runs a command without a terminal")?;
    let TerminalQuery { cols, rows, command, agent_id, user_id, .. } = query;
    let size = window_size(cols.unwrap_or(DEFAULT_WINDOW.columns), rows.unwrap_or(DEFAULT_WINDOW.rows))
        .map_err(Problem::invalid)?;
    let address = SessionAddress { session_id: id, user_id, agent_id };
    let opened = match by.service.open_terminal(&by.principal, address, command, size).await {
        Ok(opened) => Ok(opened),
        // Sent as a close reason: browsers hide the response to a failed handshake from scripts.
        Err(error @ ringwall_service::Error::BackendUnavailable { .. }) => Err(error.to_string()),
        Err(error) => return Err(Problem::from_session_error(error)),
    };
    Ok(upgrade.on_upgrade(async move |socket| {
        let mut connection = SocketConnection::new(by.service, by.principal, permit, socket);
        let end = match opened {
            Ok(OpenedTerminal::There(terminal)) => {
                TerminalSocket { connection: &mut connection, terminal: *terminal }.run().await
            }
            Ok(OpenedTerminal::NeedsPerson(exec_id)) => {
                let reason = format!("{exec_id}: this command needs an approval; send it to POST …/exec instead");
                End::close(close_code::POLICY, reason)
            }
            Err(why) => End::close(close_code::AGAIN, why),
        };
        connection.close(end).await;
    }))
}

fn window_size(columns: u16, rows: u16) -> Result<WindowSize, String> {
    match [columns, rows].iter().all(|side| (1..=MAX_WINDOW_SIDE).contains(side)) {
        true => Ok(WindowSize { rows, columns }),
        false => Err(format!("cols and rows must be 1 to {MAX_WINDOW_SIDE}")),
    }
}

/// A terminal connected to a socket. Dropping it ends the terminal.
struct TerminalSocket<'a> {
    connection: &'a mut SocketConnection,
    terminal: Terminal,
}

impl TerminalSocket<'_> {
    async fn run(mut self) -> End {
        loop {
            let has_room = self.terminal.has_room();
            let step = tokio::select! {
                event = self.terminal.next() => match event {
                    Ok(event) => self.send_event(event).await,
                    Err(error) => Err(End::close(close_code::ERROR, error.code())),
                },
                message = self.connection.socket.recv(), if has_room => {
                    self.connection.watchdog.note_activity();
                    self.receive(message).await
                }
                event = self.connection.watchdog.next() => {
                    if !has_room {
                        self.connection.watchdog.note_activity();
                    }
                    self.connection.handle(event).await
                }
            };
            if let Err(end) = step {
                return end;
            }
        }
    }

    async fn send_event(&mut self, event: TerminalEvent) -> Result<(), End> {
        match event {
            TerminalEvent::Begun => self.send(json!({ "begun": { "exec_id": self.terminal.exec_id() } })).await,
            TerminalEvent::Shown(bytes) => self.connection.send(Message::binary(bytes)).await,
            TerminalEvent::Typed => Ok(()),
            TerminalEvent::Ended(end) => {
                let exit = json!({ "code": end.exit_code, "status": end.status, "reason": end.reason });
                self.send(json!({ "exit": exit })).await?;
                Err(End::close(close_code::NORMAL, ""))
            }
        }
    }

    async fn receive(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), End> {
        match message {
            Some(Ok(Message::Binary(bytes))) => {
                self.terminal.press(&bytes);
                Ok(())
            }
            Some(Ok(Message::Text(text))) => match parse_resize(&text) {
                Ok(size) => {
                    self.terminal.resize(size);
                    Ok(())
                }
                Err(message) => self.send(json!({ "error": { "code": "INVALID_MESSAGE", "message": message } })).await,
            },
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Close(_))) | None => Err(End::Lost),
            Some(Err(_)) => Err(End::malformed()),
        }
    }

    async fn send(&mut self, message: Value) -> Result<(), End> {
        self.connection.send(Message::text(message.to_string())).await
    }
}

fn parse_resize(text: &str) -> Result<WindowSize, String> {
    let value = json::read(text.as_bytes()).map_err(|error| format!("the message is not JSON: {error}"))?;
    let message: ClientMessage = serde_json::from_value(value).map_err(|error| error.to_string())?;
    window_size(message.resize.cols, message.resize.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_resize_is_rejected() {
        assert_eq!(parse_resize(r#"{"resize":{"cols":100,"rows":40}}"#), Ok(WindowSize { rows: 40, columns: 100 }));
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
            assert!(parse_resize(bad).is_err(), "{bad}");
        }
    }
}
