//! Restarting a service that was killed during an exec.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use ringwall_service::{Auth, Service, Status, Stream};

use crate::fixture::{HELD, block_on, config, seen, shell};

/// The environment variable with the child's data directory.
pub const DATA: &str = "SERVICE_TEST_CHILD";

/// Starts an exec that does not end, prints its id and waits to be killed.
pub fn be_the_child(data: PathBuf) -> ExitCode {
    block_on(async {
        let service = Service::open(config(&data, Auth::Disabled)).await.unwrap();
        let owner = service.authenticate(None).await.unwrap();
        let submitted = service.submit(&owner, shell(HELD)).await.unwrap();
        seen("its first line", async || {
            let part = service.output(&owner, &submitted.exec_id, Stream::Stdout, 0, 1).await.unwrap();
            (part.total > 0).then_some(())
        })
        .await;
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "{}", submitted.exec_id).unwrap();
        stdout.flush().unwrap();
        drop(stdout);
        std::future::pending().await
    });
    ExitCode::FAILURE
}

pub fn execs_of_killed_service_are_lost() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(DATA, directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    block_on(async {
        let service = Service::open(config(directory.path(), Auth::Disabled)).await.unwrap();
        let owner = service.authenticate(None).await.unwrap();
        let id = line.trim().parse().unwrap();
        let view = service.finished(&owner, &id).await.unwrap();
        assert_eq!(view.summary.status, Status::Lost);
        // Its output before the crash is still readable.
        let part = service.output(&owner, &id, Stream::Stdout, 0, 100).await.unwrap();
        assert_eq!(part.bytes, b"held\n");
        assert!(service.verify_audit(&owner, None, |_| {}).await.unwrap().is_intact());
        let staging = directory.path().join("workspaces/default/default/.staging");
        assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
    });
}
