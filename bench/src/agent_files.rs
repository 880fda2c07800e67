//! Files and skills of an agent over HTTP, compared with a bare static file server, `find`, `unzip`
//! and a shell loop that reads the files.
//!
//! All files are created through the API, so owners and modes are the server's. Answers are read
//! completely and must report success.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use axum::Router;
use axum::serve::ListenerExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower_http::services::ServeFile;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::contestant::time;
use crate::error::Error;
use crate::samples::Samples;
use crate::server::{Connection, Server};
use crate::throughput::{CONCURRENCY, at_once};

const AGENT: &str = "bench";
const READ_BYTES: usize = 4096;
const LISTED_FILES: usize = 100_000;
const ZIPPED_FILES: usize = 5_000;
const LISTED_SKILLS: usize = 1_000;
/// The reads are made in this many blocks, the contestants taking turns.
const BLOCKS: usize = 4;

#[derive(Debug)]
pub(crate) struct AgentFiles {
    /// Reads of a small file a second.
    pub(crate) reads: f64,
    pub(crate) static_reads: f64,
    pub(crate) pairs: Vec<Pair>,
}

/// The same work by the server and by a tool.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) name: &'static str,
    pub(crate) tool: &'static str,
    pub(crate) server_samples: Samples,
    pub(crate) tool_samples: Samples,
}

pub(crate) fn measure(ringwall: &Path, reads: usize, rounds: usize) -> Result<AgentFiles, Error> {
    let server = Server::start(ringwall, None)?;
    let scratch = TempDir::with_prefix("ringwall-bench-files-").map_err(Error::Scratch)?;
    let (reads, static_reads) = measure_reads(&server, scratch.path(), reads)?;
    let pairs = vec![
        list_files(&server, rounds)?,
        unpack(&server, scratch.path(), rounds)?,
        list_skills(&server, scratch.path(), rounds)?,
    ];
    Ok(AgentFiles { reads, static_reads, pairs })
}

fn measure_reads(server: &Server, scratch: &Path, reads: usize) -> Result<(f64, f64), Error> {
    let text = "a line of text that is read again\n".repeat(READ_BYTES / 34 + 1);
    let text = &text[..READ_BYTES];
    let file = scratch.join("file.txt");
    std::fs::write(&file, text).map_err(Error::Scratch)?;
    let write = json!({ "file_path": "files/file.txt", "content": text });
    succeed(&server.connect()?.exchange(&server.request("POST", &format!("/v1/{AGENT}/write"), &write))?)?;
    let static_address = serve_statically(&file)?;
    let ours = server.request_without_body("GET", &format!("/v1/{AGENT}/content?path=files/file.txt"));
    let theirs = format!("GET /file.txt HTTP/1.1\r\nHost: {static_address}\r\n\r\n").into_bytes();
    let mut seconds = [0.0; 2];
    let block = reads.div_ceil(BLOCKS);
    for _ in 0..BLOCKS {
        seconds[0] += at_once(CONCURRENCY, block, |_| Ok(reader(server.connect()?, &ours)))?;
        seconds[1] += at_once(CONCURRENCY, block, |_| Ok(reader(Connection::to(&static_address)?, &theirs)))?;
    }
    let [ours, theirs] = seconds.map(|seconds| (block * BLOCKS) as f64 / seconds);
    Ok((ours, theirs))
}

/// Sends this request on a kept connection. The response must contain the whole file.
fn reader(mut connection: Connection, request: &[u8]) -> impl FnMut() -> Result<(), Error> {
    move || {
        let body = connection.fetch(request)?;
        if body.len() < READ_BYTES {
            return Err(Error::ExecEnded(String::from_utf8_lossy(&body).into_owned()));
        }
        Ok(())
    }
}

/// axum serving only the file, on two threads of this process.
fn serve_statically(file: &Path) -> Result<String, Error> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(Error::Speaking)?;
    listener.set_nonblocking(true).map_err(Error::Speaking)?;
    let address = listener.local_addr().map_err(Error::Speaking)?.to_string();
    let app = Router::new().route_service("/file.txt", ServeFile::new(file));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(Error::Speaking)?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            // Without TCP_NODELAY, head and body of an answer wait for an acknowledgement.
            let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|stream| {
                let _ = stream.set_nodelay(true);
            });
            axum::serve(listener, app).await
        })
    });
    Ok(address)
}

fn list_files(server: &Server, rounds: usize) -> Result<Pair, Error> {
    let script = format!(
        "import os\nfor d in range({}):\n os.mkdir(f'files/many/{{d}}')\n for f in range(1000):\n  \
         open(f'files/many/{{d}}/{{f}}', 'w').close()",
        LISTED_FILES / 1000
    );
    let mut connection = server.connect()?;
    let command = json!({ "command": format!("mkdir files/many && python3 -c \"{script}\"") });
    let made = connection.exchange(&server.request("POST", &format!("/v1/{AGENT}/execute"), &command))?;
    if succeed(&made)?["exit_code"] != 0 {
        return Err(Error::ExecEnded(made.to_string()));
    }
    let request = server.request_without_body("GET", &format!("/v1/{AGENT}/files?path=files/many"));
    let directory = server.workspace(AGENT).join("files/many");
    take_turns("list 100,000 files", "find -type f", rounds, |turn| match turn {
        Turn::Server => {
            let began = Instant::now();
            let body = connection.fetch(&request)?;
            let total = began.elapsed();
            let answer: Value = serde_json::from_slice(&body).map_err(|error| Error::Speaking(error.into()))?;
            match succeed(&answer)?.as_array().map(Vec::len) {
                Some(LISTED_FILES) => Ok(total),
                found => Err(Error::ExecEnded(format!("{found:?} files were listed"))),
            }
        }
        Turn::Tool => time(Command::new("find").arg(&directory).args(["-type", "f"]).stdout(Stdio::null())),
    })
}

/// Each round unpacks a new skill, and `unzip` the same archive into a new directory.
fn unpack(server: &Server, scratch: &Path, rounds: usize) -> Result<Pair, Error> {
    let content = "0123456789abcdef".repeat(64);
    let mut connection = server.connect()?;
    let archive = |round: usize| -> Result<PathBuf, Error> {
        let (archive, name) = (scratch.join(format!("{round}.zip")), format!("large-{round}"));
        let files = (1..ZIPPED_FILES).map(|number| format!("{name}/{}/{number}.txt", number % 50));
        let entries = files.map(|file| (file, content.clone())).chain([(format!("{name}/SKILL.md"), skill(&name))]);
        write_zip(&archive, entries).map(|()| archive)
    };
    let mut round = 0;
    take_turns("unpack a zip of 5,000 files", "unzip", rounds, |turn| match turn {
        Turn::Server => {
            round += 1;
            let request = upload(server, &archive(round)?)?;
            let began = Instant::now();
            succeed(&connection.exchange(&request)?)?;
            Ok(began.elapsed())
        }
        Turn::Tool => {
            let (archive, target) = (scratch.join(format!("{round}.zip")), scratch.join(format!("unzipped-{round}")));
            time(Command::new("unzip").arg("-q").arg(&archive).arg("-d").arg(&target))
        }
    })
}

fn list_skills(server: &Server, scratch: &Path, rounds: usize) -> Result<Pair, Error> {
    let archive = scratch.join("skills.zip");
    let names = (0..LISTED_SKILLS).map(|number| format!("skill-{number}"));
    write_zip(&archive, names.map(|name| (format!("{name}/SKILL.md"), skill(&name))))?;
    let mut connection = server.connect()?;
    succeed(&connection.exchange(&upload(server, &archive)?)?)?;
    let request = server.request_without_body("GET", &format!("/v1/skills/{AGENT}/list"));
    let directory = server.workspace(AGENT).join("skills");
    let script = "for file in */SKILL.md; do while read -r line; do :; done < \"$file\"; done";
    take_turns("list 1,000 skills", "shell loop that reads the files", rounds, |turn| match turn {
        Turn::Server => {
            let began = Instant::now();
            let answer = connection.exchange(&request)?;
            let total = began.elapsed();
            match succeed(&answer)?.as_array().map(Vec::len) {
                Some(listed) if listed >= LISTED_SKILLS => Ok(total),
                found => Err(Error::ExecEnded(format!("{found:?} skills were listed"))),
            }
        }
        Turn::Tool => time(Command::new("bash").args(["--norc", "-c", script]).current_dir(&directory)),
    })
}

enum Turn {
    Server,
    Tool,
}

/// The first round is a warm-up, so that all files are in memory.
fn take_turns(
    name: &'static str,
    tool: &'static str,
    rounds: usize,
    mut run: impl FnMut(Turn) -> Result<Duration, Error>,
) -> Result<Pair, Error> {
    let mut pair = Pair { name, tool, server_samples: Samples::new(), tool_samples: Samples::new() };
    for round in 0..=rounds {
        let (ours, theirs) = (run(Turn::Server)?, run(Turn::Tool)?);
        if round > 0 {
            pair.server_samples.push(ours);
            pair.tool_samples.push(theirs);
        }
    }
    Ok(pair)
}

fn skill(name: &str) -> String {
    format!("---\nname: {name}\ndescription: A skill that is measured.\n---\n\n# {name}\n\nIt does nothing.\n")
}

fn write_zip(path: &Path, entries: impl Iterator<Item = (String, String)>) -> Result<(), Error> {
    let mut zip = ZipWriter::new(std::fs::File::create(path).map_err(Error::Scratch)?);
    let failed = |error: zip::result::ZipError| Error::Scratch(error.into());
    for (name, content) in entries {
        zip.start_file(name, SimpleFileOptions::default()).map_err(failed)?;
        zip.write_all(content.as_bytes()).map_err(Error::Scratch)?;
    }
    zip.finish().map(drop).map_err(failed)
}

fn upload(server: &Server, archive: &Path) -> Result<Vec<u8>, Error> {
    let content = std::fs::read(archive).map_err(Error::Scratch)?;
    let boundary = "ringwall-bench-boundary";
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"skill.zip\"\r\n\
         Content-Type: application/zip\r\n\r\n"
    );
    let body = [head.as_bytes(), &content, format!("\r\n--{boundary}--\r\n").as_bytes()].concat();
    let kind = format!("multipart/form-data; boundary={boundary}");
    Ok(server.request_of("POST", &format!("/v1/skills/{AGENT}/upload"), &kind, &body))
}

/// The data of an envelope that says success.
fn succeed(answer: &Value) -> Result<&Value, Error> {
    if answer["status"] == "success" { Ok(&answer["data"]) } else { Err(Error::ExecEnded(answer.to_string())) }
}
