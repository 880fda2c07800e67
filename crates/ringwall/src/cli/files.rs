//! `ringwall files ls|cat|put|get|edit|rm`: manages the files of an agent on a server.
//!
//! Paths on the server begin with `files/` or `skills/`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::cli::agent::{Agent, AgentArguments, data_of};
use crate::cli::folder;
use crate::cli::json_text::JsonText;
use crate::cli::{transfer, transfer::parent_of};
use crate::client::Download;
use crate::message::{Message, escape_invisible};

#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List the files below a directory
    Ls {
        #[command(flatten)]
        agent: AgentArguments,
        /// Directory on the server, such as files/data or skills
        #[arg(default_value = "files")]
        path: String,
    },
    /// Print a file or some of its lines
    Cat {
        #[command(flatten)]
        agent: AgentArguments,
        /// File on the server, such as files/notes.txt
        path: String,
        /// First line to print, counted from 1
        #[arg(long, value_name = "LINE")]
        offset: Option<u64>,
        /// Number of lines to print
        #[arg(long, value_name = "LINES")]
        limit: Option<u64>,
    },
    /// Upload a file
    Put {
        #[command(flatten)]
        agent: AgentArguments,
        /// File on this machine, or `-` for standard input
        file: PathBuf,
        /// Path on the server [default: files/ and the file's name]
        path: Option<String>,
    },
    /// Download a file, or a directory with its content
    Get {
        #[command(flatten)]
        agent: AgentArguments,
        /// File or directory on the server, such as files/data
        path: String,
        /// Path on this machine, or `-` for standard output [default: the name of the file or directory]
        target: Option<PathBuf>,
    },
    /// Replace text in a file
    Edit {
        #[command(flatten)]
        agent: AgentArguments,
        /// File on the server, such as files/notes.txt
        path: String,
        /// Text to replace
        old: String,
        /// Replacement
        new: String,
        /// Required number of occurrences; with another number the file is not changed
        #[arg(long, value_name = "COUNT", default_value_t = 1)]
        expected: u64,
    },
    /// Delete a file, or a directory with its content
    Rm {
        #[command(flatten)]
        agent: AgentArguments,
        /// File or directory on the server, such as files/data
        path: String,
    },
}

pub(crate) fn run(command: &FilesCommand, data: &Path) -> ExitCode {
    match command {
        FilesCommand::Ls { agent, path } => agent.with(data, |agent| list(agent, path)),
        FilesCommand::Cat { agent, path, offset: None, limit: None } => agent.with(data, |agent| cat(agent, path)),
        FilesCommand::Cat { agent, path, offset, limit } => {
            agent.with(data, |agent| cat_lines(agent, path, *offset, *limit))
        }
        FilesCommand::Put { agent, file, path } => agent.with(data, |agent| put(agent, file, path.as_deref())),
        FilesCommand::Get { agent, path, target } => agent.with(data, |agent| get(agent, path, target.as_deref())),
        FilesCommand::Edit { agent, path, old, new, expected } => agent.with(data, |agent| {
            let body = json!({
                "file_path": path, "old_string": old, "new_string": new, "expected_replacements": expected,
            });
            agent.print_text(&agent.request("POST", &agent.route("", "edit", &[]), Some(&body))?)
        }),
        FilesCommand::Rm { agent, path } => agent.with(data, |agent| {
            let route = agent.route("", "delete", &[("path", path)]);
            agent.print_text(&agent.request("DELETE", &route, None)?)
        }),
    }
}

fn list(agent: &Agent, path: &str) -> Result<(), Message> {
    let found = agent.request("GET", &agent.route("", "files", &[("path", path)]), None)?;
    agent.print_result(&found, |found| {
        let names = found.as_array().into_iter().flatten().filter_map(Value::as_str);
        names.map(|name| format!("{}\n", escape_invisible(name))).collect()
    })
}

fn cat_lines(agent: &Agent, path: &str, offset: Option<u64>, limit: Option<u64>) -> Result<(), Message> {
    let (offset, limit) = (offset.map(|line| line.to_string()), limit.map(|lines| lines.to_string()));
    let mut parameters = vec![("path", path)];
    parameters.extend(offset.as_deref().map(|offset| ("offset", offset)));
    parameters.extend(limit.as_deref().map(|limit| ("limit", limit)));
    let page = agent.request("GET", &agent.route("", "content", &parameters), None)?;
    agent.print_result(&page, |page| {
        let lines = page["lines"].as_array().into_iter().flatten().filter_map(Value::as_str);
        lines.map(|line| format!("{line}\n")).collect()
    })
}

fn put(agent: &Agent, file: &Path, path: Option<&str>) -> Result<(), Message> {
    let failed = |error: io::Error| Message::io(format!("{}: {error}", file.display()));
    let (source, length): (Box<dyn Read>, _) = if file == Path::new("-") {
        (Box::new(io::stdin()), None)
    } else {
        let opened = File::open(file).map_err(failed)?;
        let found = opened.metadata().map_err(failed)?;
        if found.is_dir() {
            return Err(Message::new(format!("{} is a directory", file.display()))
                .with_hint("upload its files one by one; `ringwall skills push` uploads the folder of a skill"));
        }
        (Box::new(opened), found.is_file().then_some(found.len()))
    };
    let own = file.file_name().and_then(|name| name.to_str()).filter(|name| *name != "-");
    let path = match (path, own) {
        (Some(path), _) => path.to_owned(),
        (None, Some(name)) => format!("files/{name}"),
        (None, None) => {
            return Err(Message::new("standard input has no file name, so a path on the server is required")
                .with_hint("add a path, such as files/notes.txt"));
        }
    };
    let response = match path.strip_prefix("files/") {
        Some(name) if !name.is_empty() && !name.contains('/') => {
            let bar = transfer::progress_bar("sending", name, length);
            let (route, source) = (agent.route("files/", "upload", &[]), bar.wrap_read(source));
            data_of(transfer::upload(&agent.client, &route, name, length, &bar, source)?)?
        }
        _ => put_text(agent, file, &path, source, length)?,
    };
    agent.print_text(&response)
}

/// Writes to a path in a subdirectory, for which the server accepts only text, in a JSON body.
fn put_text(agent: &Agent, file: &Path, path: &str, source: impl Read, length: Option<u64>) -> Result<Value, Message> {
    let not_text = || {
        Message::new(format!("{} is not UTF-8 text", file.display()))
            .with_hint("only text can be written to a subdirectory: upload it to files/NAME and move it with a command")
    };
    // With a known length the server refuses a body that is too long before it is sent. The length of a
    // pipe is not known.
    let whole = match length.map(|_| File::open(file).and_then(|opened| JsonText::measure(path, opened))) {
        None => None,
        Some(Ok(whole)) => Some(whole),
        Some(Err(error)) if error.kind() == io::ErrorKind::InvalidData => return Err(not_text()),
        Some(Err(error)) => return Err(Message::io(format!("{}: {error}", file.display()))),
    };
    let bar = transfer::progress_bar("sending", path, length);
    let mut body = JsonText::new(path, bar.wrap_read(source));
    let response = agent.client.send_stream(&agent.route("", "write", &[]), "application/json", whole, &mut body);
    bar.finish_and_clear();
    match (response, body.is_broken()) {
        (Err(_), true) => Err(not_text()),
        (response, _) => data_of(response?),
    }
}

fn download(agent: &Agent, path: &str) -> Result<Download, Message> {
    agent.client.download(&agent.route("", "download", &[("path", path)]))
}

fn cat(agent: &Agent, path: &str) -> Result<(), Message> {
    let response = download(agent, path)?;
    if response.is_archive {
        return Err(Message::new(format!("{path} is a directory"))
            .with_hint("`ringwall files ls` lists it, `ringwall files get` downloads it"));
    }
    transfer::print_body(response, path)
}

fn get(agent: &Agent, path: &str, target: Option<&Path>) -> Result<(), Message> {
    let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let target = match target {
        Some(target) => target.to_owned(),
        None if name.is_empty() || name == ".." || name == "." => {
            return Err(Message::new(format!("{path} does not end in a name, so a target is required"))
                .with_hint("add a target, such as ./data"));
        }
        None => PathBuf::from(name),
    };
    let response = download(agent, path)?;
    if target == Path::new("-") {
        return transfer::print_body(response, path);
    }
    let (files, bytes) = if response.is_archive {
        let archive = transfer::save_unnamed(response, name, parent_of(&target))?;
        let bytes = archive.metadata().map_or(0, |found| found.len());
        (folder::unpack(archive, &target)?, bytes)
    } else {
        (1, transfer::save(response, name, &target)?)
    };
    let result = json!({ "path": path, "target": target.to_string_lossy(), "files": files, "bytes": bytes });
    agent.print_result(&result, |_| {
        format!("{} -> {}\n", escape_invisible(path), escape_invisible(&target.to_string_lossy()))
    })
}
