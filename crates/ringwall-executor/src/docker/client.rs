//! Starts the `docker` client, and makes all calls to it that expect a short answer.
//!
//! The client gets only a few environment variables: others could change its behaviour or leak into
//! a container. It leads its own process group, so that it is killed together with its children
//! (ssh, a plugin). A parent-death signal would need `unsafe`; if this server is killed, `cleanup`
//! removes the containers.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use crate::process::find_in_path;

/// The variables that the client needs to find its settings and its daemon. Proxies are left out;
/// see `argv`.
const PASSED_ON: [&str; 7] = ["HOME", "PATH", "USER", "LOGNAME", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"];
const PASSED_ON_PREFIX: &str = "DOCKER_";
const MAX_ANSWER: u64 = 4 * 1024 * 1024;
const MAX_STDERR_LEN: u64 = 16 * 1024;

/// The client's path, and the context that selects the daemon.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    pub(crate) program: PathBuf,
    pub(crate) context: Option<String>,
}

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum CallFailure {
    NotStarted(std::io::Error),
    TooLate(Duration),
    /// The exit code was not 0. Contains the client's stderr in one line.
    Refused(String),
}

impl CallFailure {
    pub(crate) fn why(&self) -> String {
        match self {
            CallFailure::NotStarted(error) => format!("the docker client could not be started: {error}"),
            CallFailure::TooLate(timeout) => format!("no answer within {} s", timeout.as_secs()),
            CallFailure::Refused(words) if words.is_empty() => {
                "the docker client failed without an error message".to_owned()
            }
            CallFailure::Refused(words) => words.clone(),
        }
    }
}

impl Client {
    /// `asked`, or the first `docker` in PATH.
    pub(crate) fn find(asked: Option<PathBuf>, context: Option<String>) -> Option<Self> {
        let program = asked.or_else(|| find_in_path("docker"))?;
        Some(Client { program, context })
    }

    /// Arguments before the subcommand.
    pub(crate) fn leading_words(&self) -> Vec<OsString> {
        self.context.iter().flat_map(|context| ["--context".into(), context.into()]).collect()
    }

    /// Starts the client with piped streams.
    pub(crate) fn start<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
        stdin: Stdio,
    ) -> std::io::Result<Process> {
        let mut command = command(&self.program);
        command.args(self.leading_words()).args(words);
        Process::start(command, stdin)
    }

    /// Runs the client and returns its stdout.
    pub(crate) async fn call<S: AsRef<OsStr>>(
        &self,
        words: impl IntoIterator<Item = S>,
        timeout: Duration,
    ) -> Result<String, CallFailure> {
        let mut process = self.start(words, Stdio::null()).map_err(CallFailure::NotStarted)?;
        match tokio::time::timeout(timeout, process.answer()).await {
            Ok(answer) => answer,
            Err(_) => Err(CallFailure::TooLate(timeout)),
        }
    }
}

/// A command with the few environment variables above, in its own process group.
#[expect(clippy::disallowed_methods, reason = "starts the docker client, and the programs that build its image")]
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().process_group(0);
    command.envs(std::env::vars_os().filter(|(key, _)| {
        key.to_str().is_some_and(|key| PASSED_ON.contains(&key) || key.starts_with(PASSED_ON_PREFIX))
    }));
    command
}

/// A started program. Dropping it kills its process group.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts the program with piped output.
    pub(crate) fn start(mut command: Command, stdin: Stdio) -> std::io::Result<Self> {
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        Ok(Process { child: command.spawn()? })
    }

    pub(crate) fn take_streams(&mut self) -> Option<(Option<ChildStdin>, ChildStdout, ChildStderr)> {
        Some((self.child.stdin.take(), self.child.stdout.take()?, self.child.stderr.take()?))
    }

    pub(crate) async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Returns stdout, up to [`MAX_ANSWER`].
    async fn answer(&mut self) -> Result<String, CallFailure> {
        let (mut answer, mut complaint) = (Vec::new(), Vec::new());
        if let Some((_, stdout, stderr)) = self.take_streams() {
            // Each pipe is closed at its limit, so that a client with more output ends by SIGPIPE
            // instead of blocking.
            async fn read(pipe: impl AsyncRead + Unpin, longest: u64, into: &mut Vec<u8>) -> std::io::Result<usize> {
                pipe.take(longest).read_to_end(into).await
            }
            let read =
                tokio::try_join!(read(stdout, MAX_ANSWER, &mut answer), read(stderr, MAX_STDERR_LEN, &mut complaint));
            read.map_err(CallFailure::NotStarted)?;
        }
        let status = self.wait().await.map_err(CallFailure::NotStarted)?;
        match status.success() {
            true => Ok(String::from_utf8_lossy(&answer).into_owned()),
            false => Err(CallFailure::Refused(in_short(&String::from_utf8_lossy(&complaint)))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // `id` is `None` once the process was reaped, so a reused PID is never signalled.
        let id = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        if let Some(id) = id {
            let _ = kill_process_group(id, Signal::KILL);
        }
    }
}

/// Joins the client's error text into one line, without its hint where to read more.
pub(crate) fn in_short(words: &str) -> String {
    let lines = words
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("Run 'docker") && !line.starts_with("See 'docker"));
    let text = lines.collect::<Vec<_>>().join(" ");
    text.strip_prefix("docker: ").map(str::to_owned).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(program: &str) -> Client {
        Client { program: program.into(), context: None }
    }

    #[tokio::test]
    async fn call_returns_stdout_or_error_text() {
        assert_eq!(client("/bin/echo").call(["hello"], Duration::from_secs(10)).await.unwrap(), "hello\n");
        let refused = client("/bin/sh").call(["-c", "echo 'docker: no' >&2; exit 1"], Duration::from_secs(10)).await;
        assert!(matches!(refused, Err(CallFailure::Refused(words)) if words == "no"));
        let missing = client("/nonexistent/docker").call(["version"], Duration::from_secs(10)).await;
        assert!(matches!(missing, Err(CallFailure::NotStarted(_))));
    }

    #[tokio::test]
    async fn client_with_too_much_output_is_killed() {
        let endless = client("/usr/bin/yes").call::<&str>([], Duration::from_secs(60)).await;
        assert!(matches!(endless, Err(CallFailure::Refused(words)) if words.is_empty()));
    }

    #[tokio::test]
    async fn dropped_process_kills_its_group() {
        let mut command = command(Path::new("/bin/sh"));
        command.args(["-c", "sleep 1000 & wait"]);
        let mut process = Process::start(command, Stdio::null()).unwrap();
        let (_, mut stdout, _) = process.take_streams().unwrap();
        drop(process);
        // The read returns 0 when the grandchild, the last writer, is dead.
        assert_eq!(stdout.read(&mut [0]).await.unwrap(), 0);
        let late = client("/bin/sh").call(["-c", "sleep 1000 & wait"], Duration::from_millis(1)).await;
        assert!(matches!(late, Err(CallFailure::TooLate(_))));
    }

    #[tokio::test]
    async fn client_gets_listed_variables_only() {
        let printed = client("/usr/bin/env").call::<&str>([], Duration::from_secs(10)).await.unwrap();
        for line in printed.lines() {
            let key = line.split('=').next().unwrap();
            assert!(PASSED_ON.contains(&key) || key.starts_with(PASSED_ON_PREFIX), "{key}");
        }
    }

    #[test]
    fn error_text_is_joined_to_one_line() {
        let words = "docker: Error response from daemon: No such image: x\n\nRun 'docker run --help' for more\n";
        assert_eq!(in_short(words), "Error response from daemon: No such image: x");
        assert_eq!(in_short(""), "");
    }
}
