//! Removes orphaned containers: those of dead servers with this data directory, and our own that
//! could not be removed while the daemon was away.
//!
//! Only containers with this data directory's label are considered, and none whose maker is another
//! living server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::client::{CallFailure, Client};
use super::events::Events;
use super::instance::{ContainerOwner, Instance, OWNER_LABEL};
use super::launch::Shared;
use super::name::ContainerName;

/// A sweep takes at most 10 s.
const LISTED_WITHIN: Duration = Duration::from_secs(4);
const REMOVED_WITHIN: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// A daemon that comes back may still create a container from an earlier request, so a sweep is
/// repeated.
const ROUNDS: u32 = 3;

/// Removes orphans and returns their number.
pub(crate) async fn sweep(client: &Client, instance: &Instance, events: &Events) -> Result<usize, CallFailure> {
    let filter = format!("--filter=label={}", instance.data_label());
    let format = format!("--format={{{{.ID}}}} {{{{.Names}}}} {{{{.Label \"{OWNER_LABEL}\"}}}}");
    let listed = client.call(["ps", "--all", "--no-trunc", &filter, &format], LISTED_WITHIN).await?;
    let is_orphan = |name: &str, maker: &str| match instance.maker(maker) {
        ContainerOwner::Ourselves => !events.is_followed(name),
        ContainerOwner::Alive => false,
        ContainerOwner::Gone => true,
    };
    let orphans: Vec<&str> = listed
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ' ');
            let (id, name, maker) = (parts.next()?, parts.next()?, parts.next()?);
            is_orphan(name, maker).then_some(id)
        })
        .collect();
    if !orphans.is_empty() {
        let words = ["rm", "--force", "--volumes"].into_iter().chain(orphans.iter().copied());
        client.call(words, REMOVED_WITHIN).await?;
    }
    Ok(orphans.len())
}

/// Removes one container. It is no error if the container does not exist.
pub(crate) async fn remove(client: &Client, name: &ContainerName) -> Result<(), CallFailure> {
    match client.call(["rm", "--force", "--volumes", name.as_str()], REMOVED_WITHIN).await {
        Err(CallFailure::Refused(words)) if words.contains("No such container") => Ok(()),
        other => other.map(drop),
    }
}

/// Removes a container in the background. If the daemon is away, sweeps until it is back.
pub(crate) fn remove_later(shared: &Arc<Shared>, name: ContainerName) {
    // Without a runtime this process is ending, and the watcher removes the container.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let shared = shared.clone();
    runtime.spawn(async move {
        match remove(&shared.client, &name).await {
            Ok(()) => {
                shared.unremoved.fetch_sub(1, Ordering::AcqRel);
            }
            Err(_) => sweep_until_done(&shared).await,
        }
    });
}

/// Runs one loop at a time. Containers left behind meanwhile are covered by further rounds.
async fn sweep_until_done(shared: &Shared) {
    if shared.sweeps.fetch_add(1, Ordering::AcqRel) > 0 {
        return;
    }
    // Each request stands for one container that was left behind.
    loop {
        let asked = shared.sweeps.load(Ordering::Acquire);
        let mut round = 0;
        while round < ROUNDS {
            tokio::time::sleep(AGAIN_AFTER).await;
            match sweep(&shared.client, &shared.instance, &shared.events).await {
                Ok(_) => round += 1,
                Err(_) => round = 0,
            }
        }
        if shared.sweeps.compare_exchange(asked, 0, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            shared.unremoved.fetch_sub(asked, Ordering::AcqRel);
            return;
        }
    }
}
