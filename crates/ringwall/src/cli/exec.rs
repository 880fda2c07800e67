//! `ringwall exec`: runs a script on a server, prints its output live and exits with its exit code. With
//! `--code` it runs code in a session; the request waits for an approval if the policy asks for one,
//! and the output is printed at the end.
//!
//! The exec keeps running if the connection breaks. Output is read as events with byte cursors, so that
//! a new connection continues without loss. Ctrl-C cancels the exec; a second Ctrl-C exits at once.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use ringwall_service::Language;
use serde_json::{Value, json};

use crate::client::event_stream::{Events, SentEvent};
use crate::client::{Client, ServerArguments};
use crate::message::{BAD_ANSWER, Message, UNREACHABLE};
use crate::runtime::{self, StopSignals};

const TIMED_OUT: u8 = 124;
const KILLED: u8 = 137;
const INTERRUPTED: i32 = 130;
/// Consecutive broken connections without an event between them.
const MAX_CONNECTION_LOSSES: u32 = 5;
/// Far above the size of the server's events.
const MAX_EVENT_BYTES: usize = 64 << 20;
const CHUNK_BYTES: usize = 64 << 10;
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// More than a server accepts, so that the server reports code that is too long.
const MAX_CODE_BYTES: u64 = 2 << 20;
const LANGUAGES: [&str; 3] = [Language::ALL[0].key(), Language::ALL[1].key(), Language::ALL[2].key()];

#[derive(Debug, Args)]
pub(crate) struct ExecArguments {
    #[command(flatten)]
    server: ServerArguments,
    /// Project to run the script in
    #[arg(long, value_name = "PROJECT", default_value = "default")]
    project: String,
    /// Language of the script
    #[arg(long, value_enum, default_value_t = Kind::Shell)]
    kind: Kind,
    /// Print a JSON object about the exec at its end, instead of its output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    code: CodeArguments,
    /// Script; several arguments are joined with spaces
    #[arg(
        required_unless_present = "code",
        conflicts_with_all = ["code", "language", "session", "timeout", "backend"],
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "SCRIPT"
    )]
    script: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct CodeArguments {
    /// Run code in a session instead of a script: a file, `-` for standard input, or the code itself
    #[arg(long, value_name = "FILE|-|TEXT", allow_hyphen_values = true)]
    code: Option<String>,
    /// Language of --code
    #[arg(long, value_name = "LANGUAGE", value_parser = LANGUAGES, default_value = Language::Python.key())]
    language: String,
    /// Session to run --code in
    #[arg(long, value_name = "SESSION", default_value = "default")]
    session: String,
    /// Stop --code after this many seconds, 1 to 300 [default: 30]
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Backend for --code: native, docker, gvisor or aio [default: the server's choice]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<String>,
}

impl CodeArguments {
    /// The request's body; `None` without `--code`.
    fn request(&self) -> Result<Option<Value>, Message> {
        let Some(source) = &self.code else { return Ok(None) };
        Ok(Some(json!({
            "session_id": self.session,
            "code": read_code(source)?,
            "language": self.language,
            "timeout": self.timeout,
            "backend": self.backend,
        })))
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Shell,
    Python,
}

pub(crate) fn run(arguments: &ExecArguments, data: &Path) -> ExitCode {
    follow(arguments, data).unwrap_or_else(|message| message.print_as(arguments.json))
}

fn follow(arguments: &ExecArguments, data: &Path) -> Result<ExitCode, Message> {
    let client = Client::new(&arguments.server, data)?;
    if let Some(run) = arguments.code.request()? {
        return run_code(&client, &run, arguments.json);
    }
    let script = arguments.script.join(" ");
    let exec = match arguments.kind {
        Kind::Shell => json!({ "kind": "shell", "command": "bash", "args": ["-lc", script] }),
        Kind::Python => json!({ "kind": "python", "command": "python", "args": ["-c", script] }),
    };
    let body = json!({ "project_id": arguments.project, "exec": exec });
    let accepted = client.json("POST", "/sandbox/execs", &[("prefer", "respond-async")], Some(&body))?;
    let id = accepted["exec_id"]
        .as_str()
        .ok_or_else(|| Message::failed(BAD_ANSWER, "the server's response has no exec_id"))?
        .to_owned();
    cancel_when_interrupted(client.clone(), id.clone());
    let end = read_events(&client, &id, arguments.json)?;
    if arguments.json {
        writeln!(std::io::stdout(), "{end}")
            .map_err(|error| Message::io(format!("could not write the result: {error}")))?;
    } else if let Some(reason) = end["error_reason"]["message"].as_str() {
        Message::new(reason).print();
    }
    Ok(exit_code(&end))
}

/// The exec's exit code, or the one that shells use for a timeout or a kill.
fn exit_code(end: &Value) -> ExitCode {
    let own = end["exit_code"].as_i64().and_then(|code| u8::try_from(code).ok());
    ExitCode::from(match (end["status"].as_str(), own) {
        (Some("SUCCEEDED"), _) => 0,
        (_, Some(code)) if code != 0 => code,
        (Some("TIMEOUT"), _) => TIMED_OUT,
        (Some("CANCELLED" | "LOST"), _) => KILLED,
        _ if end["error_reason"]["code"] == "OOM" => KILLED,
        _ => 1,
    })
}

fn read_code(source: &str) -> Result<String, Message> {
    let fail = |error: std::io::Error| Message::io(format!("could not read the code from {source}: {error}"));
    let mut code = String::new();
    if source == "-" {
        std::io::stdin().take(MAX_CODE_BYTES).read_to_string(&mut code).map_err(fail)?;
    } else if Path::new(source).is_file() {
        std::fs::File::open(source)
            .and_then(|file| file.take(MAX_CODE_BYTES).read_to_string(&mut code))
            .map_err(fail)?;
    } else {
        code = source.to_owned();
    }
    Ok(code)
}

/// Runs code and prints its output at the end.
fn run_code(client: &Client, run: &Value, is_json: bool) -> Result<ExitCode, Message> {
    let result = client.json("POST", "/api/run", &[], Some(run))?;
    let fail = |error: std::io::Error| Message::io(format!("could not write the output of the code: {error}"));
    if is_json {
        writeln!(std::io::stdout(), "{result}").map_err(fail)?;
    } else {
        let text = |name: &str| result[name].as_str().unwrap_or_default().to_owned();
        std::io::stdout().write_all(text("stdout").as_bytes()).map_err(fail)?;
        std::io::stderr().write_all(text("stderr").as_bytes()).map_err(fail)?;
        // With -1 the code did not exit by itself; any other exit code needs no message.
        if let Some(error) = result["error"].as_str().filter(|_| result["exit_code"] == -1) {
            Message::new(error).print();
        }
    }
    Ok(code_exit_code(&result))
}

fn code_exit_code(result: &Value) -> ExitCode {
    match (result["success"].as_bool(), result["exit_code"].as_i64().and_then(|code| u8::try_from(code).ok())) {
        (Some(true), _) => ExitCode::SUCCESS,
        (_, Some(code)) if code != 0 => ExitCode::from(code),
        _ => ExitCode::FAILURE,
    }
}

/// Prints the exec's output until its end, reconnecting if the connection breaks. Returns the data of
/// the event `end`.
fn read_events(client: &Client, id: &str, is_silent: bool) -> Result<Value, Message> {
    let path = format!("/sandbox/execs/{id}/events?encoding=base64");
    let (mut cursor, mut losses) = (String::new(), 0);
    loop {
        let resume = [("last-event-id", cursor.as_str())];
        let response = client.stream(&path, if cursor.is_empty() { &[] } else { &resume });
        let stream = match response {
            Ok(stream) => stream,
            Err(message) if losses == 0 || losses >= MAX_CONNECTION_LOSSES => return Err(message),
            Err(_) => {
                losses += 1;
                std::thread::sleep(RETRY_PAUSE);
                continue;
            }
        };
        let (mut stream, mut chunk, mut events) = (stream, [0; CHUNK_BYTES], Events::new(MAX_EVENT_BYTES));
        while let Ok(length @ 1..) = stream.read(&mut chunk) {
            let Ok(whole) = events.take(&chunk[..length]) else { break };
            for SentEvent { id, name, data } in whole {
                let data: Value = serde_json::from_str(&data).unwrap_or_default();
                match name.as_str() {
                    "end" => return Ok(data),
                    "stdout" if !is_silent => print(&mut std::io::stdout(), &data)?,
                    "stderr" if !is_silent => print(&mut std::io::stderr(), &data)?,
                    _ => {}
                }
                (cursor, losses) = (id, 0);
            }
        }
        losses += 1;
        if losses >= MAX_CONNECTION_LOSSES {
            return Err(Message::failed(
                UNREACHABLE,
                format!("lost the connection to the server; the exec {id} may still be running"),
            )
            .with_hint(format!("GET /sandbox/execs/{id} returns its state")));
        }
        std::thread::sleep(RETRY_PAUSE);
    }
}

fn print(to: &mut impl Write, data: &Value) -> Result<(), Message> {
    let bytes = STANDARD.decode(data["base64"].as_str().unwrap_or_default()).unwrap_or_default();
    to.write_all(&bytes)
        .and_then(|()| to.flush())
        .map_err(|error| Message::io(format!("could not write the exec's output: {error}")))
}

/// Starts a thread that cancels the exec at the first SIGINT or SIGTERM and exits at the second.
fn cancel_when_interrupted(client: Client, id: String) {
    let watch = move || {
        let Ok(runtime) = runtime::current_thread() else { return };
        runtime.block_on(async {
            let Ok(mut signals) = StopSignals::listen() else { return };
            signals.next().await;
            // `read_events` receives the end of the exec, whether or not it was cancelled.
            let _ = client.json("DELETE", &format!("/sandbox/execs/{id}"), &[], None);
            signals.next().await;
            std::process::exit(INTERRUPTED);
        });
    };
    // Without the thread, Ctrl-C ends only this process.
    let _ = std::thread::Builder::new().name("interrupt".into()).spawn(watch);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_code_follows_the_status() {
        let code = |end: Value| format!("{:?}", exit_code(&end));
        let is = |code: u8| format!("{:?}", ExitCode::from(code));
        assert_eq!(code(json!({ "status": "SUCCEEDED", "exit_code": 0 })), is(0));
        assert_eq!(code(json!({ "status": "FAILED", "exit_code": 7 })), is(7));
        assert_eq!(code(json!({ "status": "TIMEOUT", "exit_code": null })), is(124));
        assert_eq!(code(json!({ "status": "FAILED", "error_reason": { "code": "OOM" } })), is(137));
        assert_eq!(code(json!({ "status": "POLICY_DENIED" })), is(1));
    }
}
