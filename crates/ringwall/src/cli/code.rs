//! `ringwall exec --code`: runs code in a session of a server, prints its output and exits with its exit
//! code. The request waits for an approval if the policy asks for one.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use ringwall_service::Language;
use serde_json::{Value, json};

use crate::cli::client::Client;
use crate::cli::message::Message;

/// More than a server accepts, so that the server reports code that is too long.
const MAX_CODE_BYTES: u64 = 2 << 20;
const LANGUAGES: [&str; 3] = [Language::ALL[0].key(), Language::ALL[1].key(), Language::ALL[2].key()];

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
    pub(crate) fn request(&self) -> Result<Option<Value>, Message> {
        let Some(source) = &self.code else { return Ok(None) };
        Ok(Some(json!({
            "session_id": self.session,
            "code": read(source)?,
            "language": self.language,
            "timeout": self.timeout,
            "backend": self.backend,
        })))
    }
}

fn read(source: &str) -> Result<String, Message> {
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

pub(crate) fn follow(client: &Client, run: &Value, is_json: bool) -> Result<ExitCode, Message> {
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
    Ok(exit_code(&result))
}

fn exit_code(result: &Value) -> ExitCode {
    match (result["success"].as_bool(), result["exit_code"].as_i64().and_then(|code| u8::try_from(code).ok())) {
        (Some(true), _) => ExitCode::SUCCESS,
        (_, Some(code)) if code != 0 => ExitCode::from(code),
        _ => ExitCode::FAILURE,
    }
}
