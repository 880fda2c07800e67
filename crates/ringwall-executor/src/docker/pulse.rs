//! Whether the daemon still answers, asked every few seconds while containers run and never otherwise.
//!
//! A client whose daemon hangs waits for ever; only somebody who asks something else notices. One pulse serves all
//! containers. Interval and patience together stay well within the 10 s in which a fault must be known.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

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

    /// Asks from now on, until the last listener is gone.
    pub(crate) fn listen(&self) -> Arc<Beat> {
        let mut current = self.beat.lock().unwrap_or_else(PoisonError::into_inner);
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

/// One question, which the daemon passes on to the one below it.
pub(crate) async fn ask(client: &Client) -> Result<(), CallFailure> {
    client.call(["version", "--format={{.Server.Version}}"], TIMEOUT).await.map(drop)
}

#[derive(Debug)]
pub(crate) struct Beat {
    failure: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl Beat {
    /// Comes back only with the reason why the daemon is not there.
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
