//! Whether a name may mean another image than before: one `docker events` of images, begun by whoever asks first.
//!
//! A container that waits was made of what its image's name meant then. Asking the daemon what it means now takes longer
//! than everything else that such a container saves, so its word is waited for instead. Whenever nobody can know (the
//! stream broke, the daemon was away) all names may have changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinHandle;

use super::client::Client;
use super::events::start_tied;

const AGAIN_AFTER: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(crate) struct Images {
    client: Client,
    changes: Arc<AtomicU64>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl Images {
    pub(crate) fn new(client: Client) -> Self {
        Images { client, changes: Arc::default(), reader: Mutex::new(None) }
    }

    /// How often something has changed. As long as this is the same, every name means what it did.
    pub(crate) fn changes(&self) -> u64 {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        if reader.as_ref().is_none_or(JoinHandle::is_finished) {
            self.changes.fetch_add(1, Ordering::AcqRel);
            *reader = Some(tokio::spawn(read(self.client.clone(), self.changes.clone(), now())));
        }
        self.changes.load(Ordering::Acquire)
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.get_mut().unwrap_or_else(PoisonError::into_inner) {
            reader.abort();
        }
    }
}

async fn read(client: Client, changes: Arc<AtomicU64>, mut since: Duration) {
    loop {
        // What happened before the stream was there comes first.
        let since_word = format!("--since={}.{:09}", since.as_secs(), since.subsec_nanos());
        let words = ["events", "--filter=type=image", "--format={{.Action}}", &since_word];
        if let Ok(mut process) = start_tied(&client, words.into_iter())
            // Closed when this process ends, however it does.
            && let Some((_alive, stdout, _)) = process.take_streams()
        {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(_)) = lines.next_line().await {
                changes.fetch_add(1, Ordering::AcqRel);
            }
        }
        since = now();
        changes.fetch_add(1, Ordering::AcqRel);
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
