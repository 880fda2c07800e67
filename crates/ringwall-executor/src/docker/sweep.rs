//! The removal of containers that nobody waits for: of makers of this data directory that are gone, and our own that we
//! had to leave behind when the daemon was away.
//!
//! Only containers with this data directory's label are ever looked at, and of those none whose maker lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::client::{CallFailure, Client};
use super::events::Events;
use super::instance::{Instance, MAKER_LABEL, Maker};
use super::launch::Shared;
use super::name::ContainerName;

/// A sweep is over within 10 s.
const LISTED_WITHIN: Duration = Duration::from_secs(4);
const REMOVED_WITHIN: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// A daemon that was away may still be making a container that it was asked for before.
const ROUNDS: u32 = 3;

/// Removes orphans and says how many there were.
pub(crate) async fn sweep(client: &Client, instance: &Instance, events: &Events) -> Result<usize, CallFailure> {
    let filter = format!("--filter=label={}", instance.data_label());
    let format = format!("--format={{{{.ID}}}} {{{{.Names}}}} {{{{.Label \"{MAKER_LABEL}\"}}}}");
    let listed = client.call(["ps", "--all", "--no-trunc", &filter, &format], LISTED_WITHIN).await?;
    let is_orphan = |name: &str, maker: &str| match instance.maker(maker) {
        Maker::Ourselves => !events.is_followed(name),
        Maker::Alive => false,
        Maker::Gone => true,
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

/// Removes one container, now; one that is not there is as good.
pub(crate) async fn remove(client: &Client, name: &ContainerName) -> Result<(), CallFailure> {
    match client.call(["rm", "--force", "--volumes", name.as_str()], REMOVED_WITHIN).await {
        Err(CallFailure::Refused(words)) if words.contains("No such container") => Ok(()),
        other => other.map(drop),
    }
}

/// Removes a container in the background, and if the daemon is away, as soon as it is back.
pub(crate) fn remove_later(shared: &Arc<Shared>, name: ContainerName) {
    // Without a runtime this process is ending, and the watcher takes over.
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

/// One at a time; whatever is left behind meanwhile is seen by the rounds after it.
async fn sweep_until_done(shared: &Shared) {
    if shared.sweeps.fetch_add(1, Ordering::AcqRel) > 0 {
        return;
    }
    // Everybody who asked has left one container behind.
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
