//! Counts changes of images with one `docker events`, started by the first caller.
//!
//! A warm container was made from what its image's name meant at that time. Inspecting the image
//! before each use takes longer than all that a warm container saves, so events are followed
//! instead. When changes may have been missed (the stream broke, the daemon was away) the counter
//! is raised too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
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

    /// The number of changes. While it stays the same, every image name has the same meaning.
    pub(crate) fn changes(&self) -> u64 {
        let mut reader = self.reader.lock();
        if reader.as_ref().is_none_or(JoinHandle::is_finished) {
            self.changes.fetch_add(1, Ordering::AcqRel);
            *reader = Some(tokio::spawn(read(self.client.clone(), self.changes.clone(), now())));
        }
        self.changes.load(Ordering::Acquire)
    }
}

impl Drop for Images {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.get_mut() {
            reader.abort();
        }
    }
}

async fn read(client: Client, changes: Arc<AtomicU64>, mut since: Duration) {
    loop {
        // Replays what happened before the stream was open.
        let since_word = format!("--since={}.{:09}", since.as_secs(), since.subsec_nanos());
        let words = ["events", "--filter=type=image", "--format={{.Action}}", &since_word];
        if let Ok(mut process) = start_tied(&client, words.into_iter())
            // The kernel closes it when this process ends, also by SIGKILL.
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
