//! Checks every few seconds that the daemon answers, only while containers run.
//!
//! A client whose daemon hangs waits forever, so a separate question is needed. All containers
//! share one check. Interval and timeout add up to 8 s; a failure must be known within 10 s.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::{CallFailure, Client};

const INTERVAL: Duration = Duration::from_secs(3);
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Pulse {
    client: Client,
    beat: Mutex<Weak<Beat>>,
}

impl Pulse {
    pub(crate) fn new(client: Client) -> Self {
        Pulse { client, beat: Mutex::new(Weak::new()) }
    }

    /// Starts the check, or joins the running one. It ends when its last user is dropped.
    pub(crate) fn listen(&self) -> Arc<Beat> {
        let mut current = self.beat.lock();
        if let Some(beat) = current.upgrade().filter(|beat| beat.failure.borrow().is_none()) {
            return beat;
        }
        let (sender, failure) = watch::channel(None);
        let client = self.client.clone();
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                if let Err(failure) = ask(&client).await {
                    let _ = sender.send(Some(failure.why()));
                    return;
                }
            }
        });
        let beat = Arc::new(Beat { failure, task });
        *current = Arc::downgrade(&beat);
        beat
    }
}

/// Asks for the version. The daemon asks containerd for its version too, so a hanging containerd is
/// noticed.
pub(crate) async fn ask(client: &Client) -> Result<(), CallFailure> {
    client.call(["version", "--format={{.Server.Version}}"], TIMEOUT).await.map(drop)
}

#[derive(Debug)]
pub(crate) struct Beat {
    failure: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl Beat {
    /// Resolves only when the check fails, with the reason.
    pub(crate) async fn failed(&self) -> String {
        let mut failure = self.failure.clone();
        let why = failure.wait_for(Option::is_some).await.ok().and_then(|why| why.clone());
        match why {
            Some(why) => why,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.task.abort();
    }
}
