//! One running browser: a process in its box, controlled over a socket whose other end only the
//! server holds.

use parking_lot::Mutex;
use ringwall_browser::{Browser, FieldNames, Files};
use ringwall_executor::session_box::{
    Enabled, ProcessInput, ProcessOptions, ProcessStreams, SessionProcess, StartedProcess,
};
use ringwall_executor::{BoxControl as _, RunningBox};
use ringwall_ids::random_digits;
use ringwall_policy::BrowserKind;
use ringwall_risk::{PASSWORD_FIELDS, PAYMENT_FIELDS};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::task::JoinHandle;

use super::browser_box::BrowserBox;
use super::fault::Fault;
use super::slots::Stop;

pub(crate) const MISSING: &str =
    "no Chromium was found on this machine; install it, e.g. with: apt-get install chromium";
const CHANNEL_BUFFER: usize = 256 << 10;
/// Timeout for Chromium to open its first page.
const START_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);

/// The browser's directory in its box: private, in memory, and removed with the browser.
#[derive(Debug)]
pub(crate) struct Folder(String);

impl Folder {
    fn profile(&self) -> String {
        format!("{}/profile", self.0)
    }

    fn downloads(&self) -> String {
        format!("{}/downloads", self.0)
    }

    pub(crate) fn uploads(&self) -> String {
        format!("{}/uploads", self.0)
    }
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) kind: BrowserKind,
    pub(crate) browser_box: BrowserBox,
    pub(crate) browser: Browser,
    pub(crate) folder: Folder,
    /// Distinguishes this browser from the next one of its slot.
    pub(crate) number: u64,
    process: SessionProcess,
    /// In a mutex because a `RunningBox` is not `Sync`. Never locked.
    running: Mutex<RunningBox>,
    feeding: JoinHandle<()>,
}

impl Instance {
    /// If the start fails or is cancelled, removes what it has created.
    pub(crate) async fn open(
        kind: BrowserKind,
        browser_box: BrowserBox,
        number: u64,
        stop: &mut Stop,
    ) -> Result<Self, Fault> {
        let folder = Folder(format!("/tmp/browser-{}", random_digits::<8>().map_err(crate::error::Error::from)?));
        let started = stop.unless(Self::start(&browser_box, &folder)).await;
        match started {
            Ok((process, running, browser, feeding)) => {
                Ok(Self { kind, browser_box, browser, folder, number, process, running: Mutex::new(running), feeding })
            }
            Err(fault) => {
                if let Err(left) = browser_box.end(&folder.0).await {
                    tracing::warn!(why = left.message, "could not remove the files of a browser that did not start");
                }
                Err(fault)
            }
        }
    }

    async fn start(
        browser_box: &BrowserBox,
        folder: &Folder,
    ) -> Result<(SessionProcess, RunningBox, Browser, JoinHandle<()>), Fault> {
        let executable = ringwall_browser::find_executable().ok_or_else(|| Fault::failed(MISSING))?;
        let (profile, downloads) = (folder.profile(), folder.downloads());
        browser_box
            .run(&["mkdir", "-m", "700", "--", &folder.0, &profile, &downloads, &folder.uploads()], None, 0)
            .await?;
        let words = ringwall_browser::arguments(executable, &profile, browser_box.proxy_socket.clone());
        let options = ProcessOptions { channel: Enabled::Yes, ..ProcessOptions::default() };
        let StartedProcess { process, running, streams: ProcessStreams { channel: Some((to, from)), .. } } =
            browser_box.start(&words, options).await?
        else {
            return Err(Fault::failed("the browser has no control channel"));
        };
        let (ours, theirs) = tokio::io::duplex(CHANNEL_BUFFER);
        let feeding = tokio::spawn(feed(theirs, to));
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let names = FieldNames { passwords: list(&PASSWORD_FIELDS), payments: list(&PAYMENT_FIELDS) };
        let connecting = Browser::connect(from, ours, Files { downloads }, &names);
        match tokio::time::timeout(START_TIMEOUT, connecting).await {
            Ok(Ok(browser)) => Ok((process, running, browser, feeding)),
            Ok(Err(error)) => Err(Fault::failed(format!("Chromium did not start: {error}"))),
            Err(_) => Err(Fault::failed("Chromium did not start in time")),
        }
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.browser.is_alive()
    }

    /// The process, to wait for its end.
    pub(crate) fn process(&self) -> SessionProcess {
        self.process.clone()
    }

    /// True while its box is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.browser_box.is_paused()
    }

    /// Ends the browser. When this returns, none of its processes is left; a paused box is resumed
    /// for the kill, and ended if that fails. An error means that files of the browser are left.
    pub(crate) async fn close(self) -> Result<(), Fault> {
        let Self { browser_box, browser, folder, process, running, feeding, .. } = self;
        browser.close().await;
        let running = running.into_inner();
        // Kills what is left of the browser. `stop` resumes a paused box for that.
        let _ = tokio::join!(running.wait(), process.stop(Signal::KILL));
        feeding.abort();
        browser_box.end(&folder.0).await
    }
}

/// Copies the server's messages into the box, and its end.
async fn feed(mut from: DuplexStream, mut to: ProcessInput) {
    let mut chunk = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        if to.write(&chunk[..count]).await.is_err() {
            return;
        }
    }
}
