//! Whether a Docker daemon answers: one `GET /_ping` on its socket, within two seconds in all.
//!
//! Nothing is started, and the answer is only read as far as it says that it comes from Docker. What a socket says
//! reaches the report as digits and dots, never as text.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::facts::{Daemon, Docker};
use super::look;

pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
const QUESTION: &[u8] = b"GET /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n";
/// An answer has a few hundred bytes; more is not read.
const LONGEST_ANSWER: u64 = 16 * 1024;

/// Where to look for a daemon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// The first that exists.
    Local(Vec<PathBuf>),
    /// The scheme of another kind of address.
    Elsewhere(String),
}

pub(crate) fn sockets_of_this_process() -> Sockets {
    let variable = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    sockets(variable("DOCKER_HOST"), variable("XDG_RUNTIME_DIR"))
}

/// What the owner named wins; otherwise the system's daemon, then the user's own.
fn sockets(docker_host: Option<String>, runtime: Option<String>) -> Sockets {
    match docker_host {
        Some(address) => match address.strip_prefix("unix://") {
            Some(path) => Sockets::Local(vec![path.into()]),
            None => Sockets::Elsewhere(address.split_once("://").map_or("strange", |(scheme, _)| scheme).to_owned()),
        },
        None => {
            let system = PathBuf::from("/var/run/docker.sock");
            let own = runtime.map(|directory| Path::new(&directory).join("docker.sock"));
            Sockets::Local(std::iter::once(system).chain(own).collect())
        }
    }
}

pub(crate) async fn ask(sockets: &Sockets) -> Docker {
    let client = look::on_path(&["docker"]);
    let daemon = match sockets {
        Sockets::Elsewhere(scheme) => Daemon::Elsewhere { scheme: scheme.clone() },
        Sockets::Local(paths) => match paths.iter().find(|path| rustix::fs::stat(path.as_path()).is_ok()) {
            None => Daemon::Absent,
            Some(path) => match tokio::time::timeout(PATIENCE, converse(path)).await {
                Ok(daemon) => daemon,
                Err(_) => Daemon::Silent { socket: path.clone() },
            },
        },
    };
    Docker { client, daemon }
}

async fn converse(path: &Path) -> Daemon {
    let socket = path.to_owned();
    let answer = async {
        let mut stream = UnixStream::connect(path).await?;
        stream.write_all(QUESTION).await?;
        let mut answer = Vec::new();
        // Not to the end of the stream: a daemon that keeps the connection open has answered all the same.
        while !is_complete(&answer) && (answer.len() as u64) < LONGEST_ANSWER {
            if stream.read_buf(&mut answer).await? == 0 {
                break;
            }
        }
        Ok::<_, std::io::Error>(answer)
    };
    match answer.await {
        Ok(answer) => read(socket, &answer),
        Err(error) => match error.kind() {
            ErrorKind::ConnectionRefused => Daemon::Refuses { socket },
            ErrorKind::PermissionDenied => Daemon::Forbidden { socket },
            // So many wait to be let in that the kernel lets nobody else queue.
            ErrorKind::WouldBlock => Daemon::Silent { socket },
            _ => Daemon::Strange { socket, what: error.to_string() },
        },
    }
}

/// Whether the head of the answer is there; the body says nothing more.
fn is_complete(answer: &[u8]) -> bool {
    answer.windows(4).any(|window| window == b"\r\n\r\n")
}

fn read(socket: PathBuf, answer: &[u8]) -> Daemon {
    let text = String::from_utf8_lossy(answer);
    let mut lines = text.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    match code {
        Some("200") => {
            let api = lines.find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("api-version").then(|| value.trim())
            });
            let is_version = |api: &&str| {
                !api.is_empty() && api.len() < 16 && api.chars().all(|character| matches!(character, '0'..='9' | '.'))
            };
            Daemon::Answers { socket, api: api.filter(is_version).map(str::to_owned) }
        }
        Some(code) if code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_digit()) => {
            Daemon::Strange { socket, what: format!("it answered with status {code}") }
        }
        _ if answer.is_empty() => Daemon::Strange { socket, what: "it hung up without an answer".to_owned() },
        _ => Daemon::Strange { socket, what: "it does not speak HTTP".to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_socket_wins() {
        let local = |paths: &[&str]| Sockets::Local(paths.iter().map(PathBuf::from).collect());
        let table = [
            (Some("unix:///run/d.sock"), Some("/run/user/1"), local(&["/run/d.sock"])),
            (Some("tcp://10.0.0.1:2375"), None, Sockets::Elsewhere("tcp".into())),
            (None, Some("/run/user/1"), local(&["/var/run/docker.sock", "/run/user/1/docker.sock"])),
            (None, None, local(&["/var/run/docker.sock"])),
        ];
        for (host, runtime, expected) in table {
            assert_eq!(sockets(host.map(str::to_owned), runtime.map(str::to_owned)), expected);
        }
    }

    #[test]
    fn answers_are_read_as_far_as_they_go() {
        let socket = || PathBuf::from("/s");
        let answers = |api: Option<&str>| Daemon::Answers { socket: socket(), api: api.map(str::to_owned) };
        let strange = |what: &str| Daemon::Strange { socket: socket(), what: what.to_owned() };
        let table: [(&[u8], Daemon); 8] = [
            (b"HTTP/1.1 200 OK\r\nApi-Version: 1.43\r\nServer: Docker/24\r\n\r\nOK", answers(Some("1.43"))),
            (b"HTTP/1.0 200 OK\r\napi-version:1.41\r\n\r\nOK", answers(Some("1.41"))),
            (b"HTTP/1.1 200 OK\r\n\r\nOK", answers(None)),
            (b"HTTP/1.1 200 OK\r\nApi-Version: \x1b[31mred\r\n\r\nOK", answers(None)),
            (b"HTTP/1.1 500 Internal Server Error\r\n\r\n", strange("it answered with status 500")),
            (b"HTTP/1.1 \x1b[31m", strange("it does not speak HTTP")),
            (b"SSH-2.0-OpenSSH\r\n", strange("it does not speak HTTP")),
            (b"", strange("it hung up without an answer")),
        ];
        for (bytes, expected) in table {
            assert_eq!(read(socket(), bytes), expected, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
