//! Enforces disk quotas on session boxes between execs: background processes may go on writing when
//! no exec watches the disk.
//!
//! One task checks every box that is not paused once a second. A box that exceeds the quota of its
//! session or workspace is ended.

use std::sync::Arc;
use std::time::Duration;

use crate::boxes::{BoxKey, PooledBox};
use crate::disk::Disk;
use crate::service::Service;

const PERIOD: Duration = Duration::from_secs(1);

impl Service {
    /// The task holds a weak reference between checks, so that it does not keep the service alive.
    pub(crate) fn measure_boxes_on_schedule(&self) {
        let inner = Arc::downgrade(&self.inner);
        let task = tokio::spawn(async move {
            loop {
                tokio::time::sleep(PERIOD).await;
                let Some(inner) = inner.upgrade() else { return };
                Service { inner }.measure_boxes().await;
            }
        });
        *self.inner.measurer.lock() = Some(task);
    }

    async fn measure_boxes(&self) {
        let boxes = &self.inner.boxes;
        for (key, home) in boxes.keys().into_iter().filter_map(|key| Some((key.clone(), boxes.find(&key)?))) {
            if home.session_box.is_paused() {
                continue;
            }
            for disk in self.disks_of(&key, &home) {
                if let Some(words) = disk.glance().await {
                    home.end_as_full(words);
                    break;
                }
            }
        }
    }

    fn disks_of(&self, key: &BoxKey, home: &PooledBox) -> Vec<Disk> {
        let Some(place) = key.place() else { return Vec::new() };
        let workspace = self.disk(&place.name.user_id, &place.name.agent_id, &home.workspace);
        let session = self.session_disk(&workspace, &place.id);
        vec![workspace, session]
    }
}
