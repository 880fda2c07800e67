//! A Chromium, the web server that it visits, and a directory for its files.

use std::os::fd::OwnedFd;
use std::time::Duration;

use ringwall_browser::{
    Action, Answer, Browser, Egress, Error, FieldKind, FieldNames, Files, Format, Target, arguments, find_executable,
};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};

use crate::server::Server;

pub struct Fixture {
    pub browser: Browser,
    pub server: Server,
    pub directory: TempDir,
    _chromium: Child,
}

pub fn css(selector: &str) -> Target {
    Target::Css(selector.to_owned())
}

/// Starts a Chromium as a box would: with a socket as descriptor 3. Returns the other end. The
/// process is killed when its handle is dropped.
#[expect(clippy::disallowed_methods, reason = "what is tested drives a program")]
pub fn start(directory: &TempDir) -> (Child, UnixStream) {
    let Some(executable) = find_executable() else { panic!("there is no Chromium: run `scripts/setup test`") };
    let profile = directory.path().join("profile");
    let words = arguments(executable, profile.to_str().unwrap(), Egress::None);
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs = theirs.into_std().unwrap();
    theirs.set_nonblocking(false).unwrap();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", r#"exec "$@" 3<&0"#, "sh"]).args(words).env_clear();
    command.env("HOME", directory.path()).env("PATH", "/usr/bin:/bin").stdin(OwnedFd::from(theirs)).kill_on_drop(true);
    (command.spawn().unwrap(), ours)
}

pub async fn connect(control: UnixStream, directory: &TempDir) -> Result<Browser, Error> {
    let downloads = directory.path().join("downloads");
    std::fs::create_dir_all(&downloads).unwrap();
    let files = Files { downloads: downloads.to_str().unwrap().to_owned() };
    let (from, to) = control.into_split();
    Browser::connect(from, to, files, &names()).await
}

/// One name of each form: part of a word, whole word, consecutive words, and non-ASCII.
pub fn names() -> FieldNames {
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    FieldNames {
        passwords: list(&["password", "otp", "密码"]),
        payments: list(&["card num", "cvv", "cvc", "security code"]),
    }
}

impl Fixture {
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (chromium, control) = start(&directory);
        let browser = connect(control, &directory).await.unwrap();
        Self { browser, server: Server::start().await, directory, _chromium: chromium }
    }

    pub async fn open(&self, path: &str) -> Answer {
        self.act(Action::Navigate { url: self.server.url(path), timeout: Duration::from_secs(60) }).await
    }

    /// Serves a page with this body and opens it.
    pub async fn show(&self, body: &str) -> Answer {
        let path = self.server.serve(body);
        self.open(&path).await
    }

    pub async fn act(&self, action: Action) -> Answer {
        let words = format!("{action:?}");
        match self.browser.perform(action).await {
            Ok(answer) => answer,
            Err(error) => panic!("{words}: {error}"),
        }
    }

    pub async fn fail(&self, action: Action) -> Error {
        let words = format!("{action:?}");
        match self.browser.perform(action).await {
            Ok(answer) => panic!("{words}: {answer:?}"),
            Err(error) => error,
        }
    }

    pub async fn click(&self, selector: &str) -> Answer {
        self.act(Action::Click { target: css(selector) }).await
    }

    pub async fn fill(&self, selector: &str, text: &str) -> Answer {
        let (target, text) = (css(selector), text.to_owned());
        self.act(Action::Fill { target, text, expected: FieldKind::Ordinary }).await
    }

    pub async fn value(&self, script: &str) -> serde_json::Value {
        let answer = self.act(Action::Evaluate { script: script.to_owned() }).await;
        answer.data["value"].clone()
    }

    pub async fn content(&self, format: Format) -> String {
        let answer = self.act(Action::Content { format }).await;
        answer.data["content"].as_str().unwrap().to_owned()
    }

    /// Waits until the current page has this path.
    pub async fn wait_for_url(&self, path: &str) {
        let url = self.server.url(path);
        let seen = async {
            while self.browser.document().await.is_ok_and(|document| document.url != url) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), seen).await.unwrap();
        assert_eq!(self.browser.document().await.unwrap().url, url);
    }

    pub async fn wait_for_text(&self, text: &str) -> Answer {
        let until = ringwall_browser::WaitCondition::Text(text.to_owned());
        self.act(Action::WaitFor { until, timeout: Duration::from_secs(60) }).await
    }
}
