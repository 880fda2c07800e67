//! Checks out the agent's baselines, the skills that all its users share, into a workspace before
//! it is used.
//!
//! While boxes run there, its skills stay unchanged, for at most [`MAX_WAIT`]. A request that
//! changes or runs something waits for the checkout. A reader waits at most [`READER_TIMEOUT`] and
//! then reads what is there, so it is never refused because another request is slow.

use std::sync::Arc;
use std::time::Duration;

use ringwall_workspace::{Baselines, SyncState};

use crate::blocking::{self, detached};
use crate::disk::Disk;
use crate::error::Error;
use crate::service::Service;
use crate::workspace_locks::Locks;

use super::open::Agent;

/// How long back-to-back boxes may delay a new version of a skill: twice the time limit of one
/// command.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// How long a reader waits for a new version. Most other readers finish in that time. Without any
/// wait, back-to-back readers would delay the version forever.
const READER_TIMEOUT: Duration = Duration::from_millis(250);

/// The purpose of opening a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Reading,
    Changing,
}

impl Service {
    pub(super) async fn sync_agent(&self, agent: &Agent, purpose: Purpose) -> Result<(), Error> {
        let checkout = Checkout {
            baselines: &self.inner.baselines,
            locks: &self.inner.agent_locks,
            boxes: &self.inner.agent_boxes,
            max_wait: MAX_WAIT,
        };
        checkout.sync(agent, purpose, || self.disk_of(agent)).await
    }
}

struct Checkout<'a> {
    baselines: &'a Arc<Baselines>,
    locks: &'a Locks,
    /// Read-locked while boxes run in a workspace.
    boxes: &'a Locks,
    max_wait: Duration,
}

impl Checkout<'_> {
    async fn sync(&self, agent: &Agent, purpose: Purpose, disk: impl FnOnce() -> Disk) -> Result<(), Error> {
        let id = &agent.agent;
        let sync_state = || Ok(self.baselines.sync_state(id, agent.tree.workspace())?);
        let alone = || self.boxes.try_write(&agent.user, &agent.agent);
        let is_due = match blocking::in_place(sync_state).await? {
            SyncState::UpToDate => return Ok(()),
            SyncState::Pending { since } if since.elapsed() < self.max_wait => {
                if alone().is_none() {
                    return Ok(());
                }
                false
            }
            SyncState::Pending { .. } => true,
            SyncState::Outdated => false,
        };
        let writing = match purpose {
            Purpose::Changing => self.locks.write(&agent.user, &agent.agent).await?,
            Purpose::Reading => match self.locks.write_within(READER_TIMEOUT, &agent.user, &agent.agent).await {
                Some(writing) => writing,
                None => return Ok(()),
            },
        };
        // Another request may have done the checkout while this one waited for the lock.
        if blocking::in_place(sync_state).await? == SyncState::UpToDate {
            return Ok(());
        }
        // Held until the checkout is done, so a new box waits.
        let alone = alone();
        let (baselines, tree, disk) = (Arc::clone(self.baselines), agent.tree.clone(), disk());
        let id = id.clone();
        detached(move || {
            let _writing = writing;
            let more = baselines.growth(&id, tree.workspace())?;
            let synced = if alone.is_some() || is_due {
                disk.adding(more, || Ok(baselines.sync(&id, &tree)?))
            } else {
                let synced = disk.reserve(more).and_then(|_room| Ok(baselines.sync_new(&id, &tree)?));
                disk.measure_later();
                synced
            };
            drop(alone);
            match synced {
                // Reading and deleting must still work when the quota is exceeded, or no user could
                // make room.
                Err(Error::DiskQuota { message }) => {
                    tracing::warn!(agent = %id, message, "baselines wait for room in a workspace");
                    Ok(())
                }
                outcome => outcome,
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use ringwall_ids::{AgentId, UserId};
    use ringwall_workspace::{ArchiveLimits, Owner, Usage, Workspaces};
    use tempfile::TempDir;
    use zip::write::SimpleFileOptions;

    use super::*;
    use crate::disk::Quotas;

    struct Fixture {
        directory: TempDir,
        baselines: Arc<Baselines>,
        locks: Locks,
        boxes: Locks,
        agent: Agent,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let workspaces = Workspaces::open(&directory.path().join("w")).unwrap();
            let baselines = Arc::new(Baselines::open(&directory.path().join("b")).unwrap());
            let workspace = workspaces.workspace(&"u".parse().unwrap(), &"a".parse().unwrap(), Owner::server());
            let (user, agent): (UserId, AgentId) = ("u".parse().unwrap(), "a".parse().unwrap());
            let agent = Agent { user, agent, tree: workspace.unwrap().tree().unwrap() };
            Self { directory, baselines, locks: Locks::default(), boxes: Locks::default(), agent }
        }

        /// Publishes a baseline skill with this text.
        fn publish(&self, text: &str) {
            let mut zip = zip::ZipWriter::new(self.baselines.upload_file().unwrap());
            zip.start_file("s/SKILL.md", SimpleFileOptions::default()).unwrap();
            zip.write_all(text.as_bytes()).unwrap();
            let mut archive = zip.finish().unwrap();
            archive.rewind().unwrap();
            let limits = ArchiveLimits { bytes: 1000, entries: 10 };
            self.baselines.upload(&"a".parse().unwrap(), archive, limits).unwrap();
        }

        async fn sync(&self, purpose: Purpose, max_wait: Duration) -> Result<(), Error> {
            let Self { baselines, locks, boxes, agent, .. } = self;
            let most = Usage { bytes: 1 << 30, files: 1000 };
            let disk =
                || Disk::of_workspace(&Quotas::default(), &agent.user, &agent.agent, agent.tree.workspace(), most);
            Checkout { baselines, locks, boxes, max_wait }.sync(agent, purpose, disk).await
        }

        fn text(&self) -> Option<String> {
            std::fs::read_to_string(self.directory.path().join("w/u/a/skills/s/SKILL.md")).ok()
        }
    }

    const LONG: Duration = Duration::from_secs(1000);

    #[tokio::test(flavor = "multi_thread")]
    async fn new_version_waits_for_boxes_up_to_the_limit() {
        let fixture = Fixture::new();
        fixture.publish("1");
        fixture.sync(Purpose::Reading, LONG).await.unwrap();
        let running = fixture.boxes.stay(&fixture.agent.user, &fixture.agent.agent).await;
        fixture.publish("2");
        for purpose in [Purpose::Reading, Purpose::Changing, Purpose::Changing] {
            fixture.sync(purpose, LONG).await.unwrap();
            assert_eq!(fixture.text().as_deref(), Some("1"), "a box uses it");
        }
        fixture.sync(Purpose::Reading, Duration::ZERO).await.unwrap();
        assert_eq!(fixture.text().as_deref(), Some("2"), "the maximum wait is over");
        fixture.publish("3");
        fixture.sync(Purpose::Reading, LONG).await.unwrap();
        assert_eq!(fixture.text().as_deref(), Some("2"));
        drop(running);
        fixture.sync(Purpose::Reading, LONG).await.unwrap();
        assert_eq!(fixture.text().as_deref(), Some("3"), "no box is running");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn reader_with_busy_lock_gets_old_version() {
        let fixture = Fixture::new();
        fixture.publish("1");
        let (user, agent) = (&fixture.agent.user, &fixture.agent.agent);
        // Behind a slow reader or a writer, a reader gets the old version.
        let slow = fixture.locks.read(user, agent).await.unwrap();
        fixture.sync(Purpose::Reading, LONG).await.unwrap();
        drop(slow);
        let slow = fixture.locks.write(user, agent).await.unwrap();
        fixture.sync(Purpose::Reading, LONG).await.unwrap();
        assert_eq!(fixture.text(), None);
        let (synced, ()) = tokio::join!(fixture.sync(Purpose::Changing, LONG), async {
            tokio::task::yield_now().await;
            drop(slow);
        });
        synced.unwrap();
        assert_eq!(fixture.text().as_deref(), Some("1"), "a change waits for the checkout");
        // Without concurrent requests a reader gets the version that was published before.
        fixture.publish("2");
        fixture.sync(Purpose::Reading, LONG).await.unwrap();
        assert_eq!(fixture.text().as_deref(), Some("2"));
    }
}
