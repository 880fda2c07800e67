//! Removes our containers when this server is killed: a shell that waits for the end of a pipe that
//! only we hold open.
//!
//! A container belongs to the daemon and survives its client. However we end, the kernel closes the
//! pipe; the shell then removes the containers with our label, and tries for about 5 minutes if the
//! daemon is away. The sweep at the next start removes what the shell cannot. If no container is
//! left when the server ends, it tells the shell to exit.

use std::io::{PipeWriter, Write};
use std::path::Path;
use std::process::Stdio;

use parking_lot::Mutex;
use tokio::process::Child;

use super::client::{Client, command};

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

/// The shell is started with the first container.
#[derive(Debug, Default)]
pub(crate) struct Watcher {
    shell: Mutex<Option<Shell>>,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    alive: PipeWriter,
}

impl Watcher {
    /// Starts the shell if none runs.
    pub(crate) fn watch(&self, client: &Client, owner_label: &str) -> std::io::Result<()> {
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

    /// Tells the shell to exit: no container is left.
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
    async fn containers_go_when_the_pipe_ends() {
        let directory = tempfile::tempdir().unwrap();
        let client = pretended(directory.path());
        let watcher = Watcher::default();
        watcher.watch(&client, "ringwall.maker=1-2-3").unwrap();
        watcher.watch(&client, "ringwall.maker=1-2-3").unwrap();
        let mut shell = watcher.shell.lock().take().unwrap();
        assert!(matches!(shell.child.try_wait(), Ok(None)), "the shell waits while the pipe is open");
        drop(shell.alive);
        assert!(shell.child.wait().await.unwrap().success());
        let log = std::fs::read_to_string(directory.path().join("docker.log")).unwrap();
        let ask = "--context there ps --all --quiet --no-trunc --filter label=ringwall.maker=1-2-3\n";
        assert_eq!(log, format!("{ask}--context there rm --force --volumes one-id\n{ask}{ask}"));
    }

    #[tokio::test]
    async fn a_dismissed_watcher_asks_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let mut watcher = Watcher::default();
        watcher.watch(&pretended(directory.path()), "ringwall.maker=1-2-3").unwrap();
        watcher.dismiss();
        let mut shell = watcher.shell.lock().take().unwrap();
        assert!(shell.child.wait().await.unwrap().success());
        assert!(!directory.path().join("docker.log").exists());
    }
}
