//! Removes orphaned containers: our own when this server is killed, those of dead servers with this
//! data directory, and our own that could not be removed while the daemon was away.
//!
//! A sweep considers only containers with this data directory's label, and none whose owner is
//! another living server. A container belongs to the daemon and survives its client, so a shell
//! ([`CrashWatcher`]) waits for the end of a pipe that only this process holds open. However the
//! process ends, the kernel closes the pipe; the shell then removes the containers with our label,
//! and tries for about 5 minutes if the daemon is away. The sweep at the next start removes what the
//! shell could not.

use std::io::{PipeWriter, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::process::Child;

use super::client::{CallFailure, Client, command};
use super::instance::{ContainerName, ContainerOwner, OWNER_LABEL};
use super::launch::Shared;

/// A sweep takes at most 10 s.
const LISTED_WITHIN: Duration = Duration::from_secs(4);
const REMOVED_WITHIN: Duration = Duration::from_secs(5);
const AGAIN_AFTER: Duration = Duration::from_secs(2);
/// A daemon that comes back may still create a container from an earlier request, so a sweep is
/// repeated.
const ROUNDS: u32 = 3;

/// Removes orphans and returns their number.
pub(crate) async fn sweep(shared: &Shared) -> Result<usize, CallFailure> {
    let Shared { client, instance, events, .. } = shared;
    let filter = format!("--filter=label={}", instance.data_label());
    let format = format!("--format={{{{.ID}}}} {{{{.Names}}}} {{{{.Label \"{OWNER_LABEL}\"}}}}");
    let listed = client.call(["ps", "--all", "--no-trunc", &filter, &format], LISTED_WITHIN).await?;
    let orphan = |line: &str| {
        let mut parts = line.splitn(3, ' ');
        let (id, name, owner) = (parts.next()?, parts.next()?, parts.next()?);
        let is_orphan = match instance.owner_of(owner) {
            ContainerOwner::Ourselves => !events.is_followed(name),
            ContainerOwner::Alive => false,
            ContainerOwner::Gone => true,
        };
        is_orphan.then(|| id.to_owned())
    };
    let orphans: Vec<String> = listed.lines().filter_map(orphan).collect();
    if !orphans.is_empty() {
        let words = ["rm", "--force", "--volumes"].into_iter().chain(orphans.iter().map(String::as_str));
        client.call(words, REMOVED_WITHIN).await?;
    }
    Ok(orphans.len())
}

/// Removes a container in the background. If the daemon is away, sweeps until it is back.
pub(crate) fn remove_later(shared: &Arc<Shared>, name: ContainerName) {
    // Without a runtime this process is ending, and the watcher removes the container.
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let shared = shared.clone();
    runtime.spawn(async move {
        match shared.client.call(["rm", "--force", "--volumes", name.as_str()], REMOVED_WITHIN).await {
            Err(CallFailure::Refused(words)) if words.contains("No such container") => {}
            Err(_) => return sweep_until_done(&shared).await,
            Ok(_) => {}
        }
        shared.unremoved.fetch_sub(1, Ordering::AcqRel);
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
            match sweep(shared).await {
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

/// Arguments: the label, then the client's command line. Inherited descriptors (a socket, a lock)
/// are closed, because the shell outlives us. It ends after two empty listings, because a container
/// may just be in creation.
const SCRIPT: &str = r#"
exec 3<&- 4<&- 5<&- 6<&- 7<&- 8<&- 9<&-
if read -r nothing_is_left; then exit 0; fi
label=$1
shift
tries=300
nothing=0
while [ "$tries" -gt 0 ] && [ "$nothing" -lt 2 ] && [ -x "$1" ]; do
    if found=$("$@" ps --all --quiet --no-trunc --filter "label=$label"); then
        if [ -z "$found" ]; then nothing=$((nothing + 1)); else nothing=0; "$@" rm --force --volumes $found; fi
    fi
    tries=$((tries - 1))
    sleep 1
done
"#;

/// The shell that removes our containers after a crash; started with the first container.
#[derive(Debug, Default)]
pub(crate) struct CrashWatcher {
    shell: Mutex<Option<Shell>>,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    alive: PipeWriter,
}

impl CrashWatcher {
    /// Starts the shell if none runs.
    pub(crate) fn start(&self, client: &Client, owner_label: &str) -> std::io::Result<()> {
        let mut shell = self.shell.lock();
        if let Some(shell) = shell.as_mut()
            && matches!(shell.child.try_wait(), Ok(None))
        {
            return Ok(());
        }
        let (theirs, ours) = std::io::pipe()?;
        let mut command = command(Path::new("/bin/sh"));
        command.args(["-c", SCRIPT, "ringwall-watcher", owner_label]).arg(&client.program);
        command.args(client.leading_words()).stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        *shell = Some(Shell { child: command.spawn()?, alive: ours });
        Ok(())
    }

    /// Tells the shell to exit, because no container is left.
    pub(crate) fn dismiss(&mut self) {
        if let Some(shell) = self.shell.get_mut() {
            let _ = shell.alive.write_all(b"\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that lists one container and logs its arguments.
    const PRETENDED: &str = r#"#!/bin/sh
echo "$@" >> "$0.log"
if [ "$3" = ps ]; then [ -e "$0.removed" ] || echo one-id; else touch "$0.removed"; fi
"#;

    fn pretended(directory: &Path) -> Client {
        use std::os::unix::fs::PermissionsExt;
        let program = directory.join("docker");
        std::fs::write(&program, PRETENDED).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        Client { program, context: Some("there".to_owned()) }
    }

    #[tokio::test]
    async fn containers_are_removed_when_pipe_ends() {
        let directory = tempfile::tempdir().unwrap();
        let client = pretended(directory.path());
        let watcher = CrashWatcher::default();
        watcher.start(&client, "ringwall.maker=1-2-3").unwrap();
        watcher.start(&client, "ringwall.maker=1-2-3").unwrap();
        let mut shell = watcher.shell.lock().take().unwrap();
        assert!(matches!(shell.child.try_wait(), Ok(None)), "the shell waits while the pipe is open");
        drop(shell.alive);
        assert!(shell.child.wait().await.unwrap().success());
        let log = std::fs::read_to_string(directory.path().join("docker.log")).unwrap();
        let ask = "--context there ps --all --quiet --no-trunc --filter label=ringwall.maker=1-2-3\n";
        assert_eq!(log, format!("{ask}--context there rm --force --volumes one-id\n{ask}{ask}"));
    }

    #[tokio::test]
    async fn dismissed_shell_calls_no_client() {
        let directory = tempfile::tempdir().unwrap();
        let mut watcher = CrashWatcher::default();
        watcher.start(&pretended(directory.path()), "ringwall.maker=1-2-3").unwrap();
        watcher.dismiss();
        let mut shell = watcher.shell.lock().take().unwrap();
        assert!(shell.child.wait().await.unwrap().success());
        assert!(!directory.path().join("docker.log").exists());
    }
}
