//! Disk quotas of workspaces: an exec that exceeds its quota is killed and reported, and runs again
//! once there is space.

use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringwall_service::{
    Address, AgentPath, Edit, ExecRequest, ExecView, Freed, GcMode, Lines, SkillLayer, Status, Stream,
};
use serde_json::json;

use crate::fixture::{Fixture, in_fixture, reason, shell, shell_of};

const MIB: usize = 1024 * 1024;
const HOUR: Duration = Duration::from_secs(60 * 60);

/// Writes until it is killed.
const FILLER: &str = "while :; do head -c 1000000 /dev/zero >> filler; done";

fn assert_stopped(view: &ExecView, setting: &str) {
    assert_eq!((view.summary.status, view.summary.exit_code), (Status::Failed, Some(137)), "{view:?}");
    assert_eq!(reason(view), "DISK_QUOTA");
    let message = &view.error_reason.as_ref().unwrap().message;
    assert!(message.starts_with("the box was ended") && message.contains(setting), "{message}");
    assert!(view.failure().is_none(), "it did run");
}

fn assert_not_started(view: &ExecView) {
    assert_eq!((view.summary.status, view.summary.exit_code), (Status::Failed, None), "{view:?}");
    let failure = view.failure().unwrap();
    assert_eq!(failure.code(), "DISK_QUOTA");
    assert!(failure.to_string().starts_with("The workspace is full"), "{failure}");
    assert_eq!(view.summary.duration_ms, None);
}

async fn limit(fixture: &Fixture, quota_mb: u32, quota_files: u32) {
    fixture.set(json!({"workspace": {"quota_mb": quota_mb, "quota_files": quota_files}})).await;
}

pub fn exec_over_disk_quota_is_stopped_with_reason() {
    in_fixture(async |fixture| {
        limit(fixture, 8, 1000).await;
        let view = fixture.run_shell(&format!("echo begun; {FILLER}")).await;
        assert_stopped(&view, "workspace.quota_mb");
        assert_eq!(fixture.text(&view, Stream::Stdout).await, "begun\n");
        // Other users are not affected.
        assert_eq!(fixture.run(shell_of("other", "echo hi > hi")).await.summary.status, Status::Succeeded);
        // A full workspace takes no inputs and no further data, but an exec may delete files.
        let inputs = vec![("data".to_owned(), vec![b'x'; 10])];
        assert_not_started(&fixture.run(ExecRequest { inputs, ..shell("true") }).await);
        assert_stopped(&fixture.run_shell(&FILLER.replace("filler", "more")).await, "workspace.quota_mb");
        std::fs::remove_file(fixture.project("default", "work").join("more")).unwrap();
        assert_eq!(fixture.run_shell("rm filler && echo ran > ran").await.summary.status, Status::Succeeded);
        assert_eq!(fixture.run_shell("cat ran").await.summary.status, Status::Succeeded);
        let inputs = vec![("data".to_owned(), vec![b'x'; 10])];
        assert_eq!(fixture.run(ExecRequest { inputs, ..shell("true") }).await.summary.status, Status::Succeeded);
    });
}

pub fn exec_over_file_quota_is_stopped() {
    in_fixture(async |fixture| {
        limit(fixture, 1000, 300).await;
        let view = fixture.run_shell("i=0; while :; do : > f$i; mkdir d$i; i=$((i+1)); done").await;
        assert_stopped(&view, "workspace.quota_files");
        assert_eq!(fixture.run_shell("rm -r *").await.summary.status, Status::Succeeded);
        assert_eq!(std::fs::read_dir(fixture.project("default", "work")).unwrap().count(), 0);
    });
}

pub fn staged_artifacts_count_against_quota() {
    in_fixture(async |fixture| {
        limit(fixture, 8, 1000).await;
        let view = fixture.run_shell(&format!("cd /workspace/artifacts; {FILLER}")).await;
        assert_stopped(&view, "workspace.quota_mb");
        // The staged artifacts were never part of the workspace and were deleted with the box.
        assert_eq!(fixture.run_shell("true").await.summary.status, Status::Succeeded);
    });
}

pub fn inputs_over_quota_are_rejected() {
    in_fixture(async |fixture| {
        limit(fixture, 8, 1000).await;
        let inputs = |size| vec![("data".to_owned(), vec![b'x'; size]), ("more".to_owned(), vec![b'x'; 10])];
        let view = fixture.run(ExecRequest { inputs: inputs(9 * MIB), ..shell("true") }).await;
        assert_not_started(&view);
        assert_eq!(std::fs::read_dir(fixture.project("default", "inputs")).unwrap().count(), 0);
        let view = fixture.run(ExecRequest { inputs: inputs(5 * MIB), ..shell("true") }).await;
        assert_eq!(view.summary.status, Status::Succeeded);
        // New inputs need space before the old ones are deleted.
        assert_not_started(&fixture.run(ExecRequest { inputs: inputs(5 * MIB), ..shell("true") }).await);
    });
}

/// Execs that are too short to be measured while they run are measured afterwards.
pub fn workspace_is_measured_after_execs() {
    in_fixture(async |fixture| {
        limit(fixture, 8, 1000).await;
        assert_eq!(fixture.run_shell("true").await.summary.status, Status::Succeeded);
        // The service is not told about this file.
        std::fs::write(fixture.project("default", "work").join("large"), vec![1; 20 * MIB]).unwrap();
        let refused = async {
            loop {
                let inputs = vec![("data".to_owned(), vec![b'x'; 10])];
                let view = fixture.run(ExecRequest { inputs, ..shell("true") }).await;
                if view.summary.status != Status::Succeeded {
                    return view;
                }
            }
        };
        assert_not_started(&tokio::time::timeout(Duration::from_secs(60), refused).await.unwrap());
    });
}

fn address() -> Address {
    Address { user: None, agent: "a".to_owned() }
}

fn path(text: &str) -> AgentPath {
    AgentPath::parse(text).unwrap()
}

pub fn agent_files_over_quota_are_rejected() {
    in_fixture(async |fixture| {
        limit(fixture, 4, 1000).await;
        let (service, owner, here) = (&fixture.service, &fixture.owner, &address());
        let (text, large) = ("x".repeat(3 * MIB), "x".repeat(2 * MIB));
        let write = async |name: &str, text: &str| service.replace_lines(owner, here, &path(name), None, text).await;
        write("files/a", &text).await.unwrap();
        let refused = write("files/b", &large).await.unwrap_err();
        assert_eq!(refused.code(), "DISK_QUOTA");
        assert!(refused.to_string().contains("it takes 3.0 MiB of the 4.0 MiB"), "{refused}");
        let replaced = service.replace_lines(owner, here, &path("files/c"), None, &large).await;
        assert_eq!(replaced.unwrap_err().code(), "DISK_QUOTA");
        let grow = Edit { old: "x".to_owned(), new: "yy".to_owned(), expected: 3 * MIB as u64 };
        let grown = service.edit_file(owner, here, &path("files/a"), &grow).await;
        assert_eq!(grown.unwrap_err().code(), "DISK_QUOTA");

        let mut upload = service.begin_upload(owner, here).await.unwrap();
        let sent = upload.write_all(large.as_bytes()).unwrap_err();
        assert_eq!(sent.kind(), std::io::ErrorKind::QuotaExceeded);
        assert!(sent.to_string().starts_with("The workspace is full"), "{sent}");
        drop(upload);
        // There is space for one of two concurrent uploads, whether of files or of a skill.
        let part = vec![1; 700 * 1024];
        let mut first = service.begin_upload(owner, here).await.unwrap();
        first.write_all(&part).unwrap();
        let mut second = service.begin_upload(owner, here).await.unwrap();
        assert_eq!(second.write_all(&part).unwrap_err().kind(), std::io::ErrorKind::QuotaExceeded);
        let mut skill = service.begin_skill_upload(owner, here, SkillLayer::Overlay).await.unwrap();
        assert_eq!(skill.write_all(&part).unwrap_err().kind(), std::io::ErrorKind::QuotaExceeded);
        drop((second, skill));
        let mut shared = service.begin_skill_upload(owner, here, SkillLayer::Baseline).await.unwrap();
        shared.write_all(&part).unwrap();
        service.finish_upload(first, "uploaded").await.unwrap();
        let listed = service.list_files(owner, here, path("files")).await.unwrap().relative();
        assert_eq!(listed, ["a", "uploaded"]);
        service.delete_path(owner, here, &path("files/a")).await.unwrap();
        write("files/b", &large).await.unwrap();
        // An edit that shrinks a file is accepted although the workspace is over its quota.
        fixture.set(json!({"workspace": {"quota_mb": 1}})).await;
        let shrink = Edit { old: "x".repeat(2 * MIB), new: "y".to_owned(), expected: 1 };
        assert_eq!(write("files/d", "d").await.unwrap_err().code(), "DISK_QUOTA");
        service.edit_file(owner, here, &path("files/b"), &shrink).await.unwrap();
        write("files/d", "d").await.unwrap();
    });
}

/// An edit needs the disk space of the resulting file, not only of the added text.
pub fn edit_over_quota_is_rejected() {
    in_fixture(async |fixture| {
        limit(fixture, 16, 1000).await;
        let (service, owner, here) = (&fixture.service, &fixture.owner, &address());
        service.replace_lines(owner, here, &path("files/first"), None, "").await.unwrap();
        let files = fixture.directory.path().join("workspaces/default/a/files");
        // A sparse file: 20 MiB long, without disk blocks. A box can create one.
        let sparse = std::fs::File::create(files.join("sparse")).unwrap();
        sparse.write_all_at(b"x\n", 0).unwrap();
        sparse.set_len(20 * MIB as u64).unwrap();
        let blocks = || files.join("sparse").metadata().unwrap().blocks();
        assert!(blocks() < 100);
        let swap = Edit { old: "x".to_owned(), new: "y".to_owned(), expected: 1 };
        let edited = service.edit_file(owner, here, &path("files/sparse"), &swap).await;
        assert_eq!(edited.unwrap_err().code(), "DISK_QUOTA");
        let first_line = Some(Lines::range(Some(1), Some(1)).unwrap());
        let replaced = service.replace_lines(owner, here, &path("files/sparse"), first_line, "y").await;
        assert_eq!(replaced.unwrap_err().code(), "DISK_QUOTA");
        assert!(blocks() < 100, "nothing was written");
        // The number of matches is checked before the required space.
        let wrong = Edit { old: "x".to_owned(), new: "y".repeat(MIB), expected: 1000 };
        let edited = service.edit_file(owner, here, &path("files/sparse"), &wrong).await;
        assert_eq!(edited.unwrap_err().code(), "CONFLICT");
        std::fs::remove_file(files.join("sparse")).unwrap();

        // A file larger than half of the quota is edited in place, and the running exec is not
        // killed for it.
        let held = service.submit(owner, of_agent(shell(crate::fixture::HELD))).await.unwrap().exec_id;
        std::fs::write(files.join("large"), "line\n".repeat(2 * MIB)).unwrap();
        let second_line = Some(Lines::range(Some(2), Some(2)).unwrap());
        for number in 0..20 {
            let path = path("files/large");
            service.replace_lines(owner, here, &path, second_line, &number.to_string()).await.unwrap();
            let swap = Edit { old: format!("\n{number}\n"), new: "\nsecond\n".to_owned(), expected: 1 };
            service.edit_file(owner, here, &path, &swap).await.unwrap();
        }
        let work = fixture.directory.path().join("workspaces/default/a/projects/p/work");
        std::fs::write(work.join("go"), "").unwrap();
        assert_eq!(service.finished(owner, &held).await.unwrap().summary.status, Status::Succeeded);

        // In a full workspace, edits that do not grow the file's disk use are accepted.
        fixture.set(json!({"workspace": {"quota_mb": 4, "quota_files": 1}})).await;
        assert_eq!(
            service.replace_lines(owner, here, &path("files/new"), None, "").await.unwrap_err().code(),
            "DISK_QUOTA"
        );
        service.replace_lines(owner, here, &path("files/large"), second_line, "").await.unwrap();
        let shrink = Edit { old: "line\n".repeat(1000), new: String::new(), expected: 2097 };
        service.edit_file(owner, here, &path("files/large"), &shrink).await.unwrap();
        service.replace_lines(owner, here, &path("files/large"), None, "short").await.unwrap();
        service.replace_lines(owner, here, &path("files/large"), None, "a little longer").await.unwrap();
        let mut upload = service.begin_upload(owner, here).await.unwrap();
        upload.write_all(b"uploaded").unwrap();
        service.finish_upload(upload, "large").await.unwrap();
        assert_eq!(std::fs::read(files.join("large")).unwrap(), b"uploaded");
        let upload = service.begin_upload(owner, here).await.unwrap();
        assert_eq!(service.finish_upload(upload, "new").await.unwrap_err().code(), "DISK_QUOTA");
    });
}

fn of_agent(request: ExecRequest) -> ExecRequest {
    ExecRequest { agent_id: Some("a".to_owned()), ..request }
}

/// Sets a file's or directory's modification time back by `hours`.
fn age(path: &Path, hours: u32) {
    let then = SystemTime::now() - HOUR * hours;
    let file = std::fs::File::open(path).unwrap();
    file.set_modified(then).unwrap();
}

fn session(fixture: &Fixture, id: &str, hours: u32) -> PathBuf {
    let directory = fixture.directory.path().join("workspaces/default/default/sessions").join(id);
    std::fs::create_dir_all(directory.join("work")).unwrap();
    std::fs::write(directory.join("work/file"), vec![1; 10_000]).unwrap();
    std::fs::write(directory.join(".used"), "").unwrap();
    age(&directory.join(".used"), hours);
    age(&directory, hours);
    directory
}

pub fn gc_removes_idle_sessions_and_leftovers() {
    in_fixture(async |fixture| {
        fixture.run_shell("true").await;
        let (old, fresh) = (session(fixture, "old", 25), session(fixture, "fresh", 23));
        // The directory is old, but the session was used 1 hour ago.
        let used = session(fixture, "used", 25);
        age(&used.join(".used"), 1);
        let staging = fixture.directory.path().join("workspaces/default/default/.staging");
        let exec_id = "e_0123456789abcdef0123456789abcdef";
        for stray in [exec_id, "removed-0123", "arriving-0123", "somebody's"] {
            std::fs::write(staging.join(stray), "x").unwrap();
        }
        let held = fixture.service.submit(&fixture.owner, shell(crate::fixture::HELD)).await.unwrap().exec_id;
        // An exec creates its directories when it starts.
        fixture.printed(&held, "held\n").await;
        let looked = fixture.service.collect_garbage(&fixture.owner, GcMode::DryRun).await.unwrap();
        assert_eq!((looked.dry_run, looked.sessions, looked.strays, looked.failed), (true, 1, 0, 0), "{looked:?}");
        assert!(looked.files == 4 && looked.bytes >= 10_000, "{looked:?}");
        assert!(old.exists());
        let removed = fixture.service.collect_garbage(&fixture.owner, GcMode::Remove).await.unwrap();
        assert_eq!(removed, Freed { dry_run: false, ..looked });
        assert!(!old.exists() && fresh.exists() && used.exists());

        // Two days later, staging entries of ended execs and uploads are removed too. Those of the
        // running exec and unknown names stay.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap() + HOUR * 48;
        let later = ringwall_service::Timestamp::from_milliseconds(i64::try_from(now.as_millis()).unwrap());
        fixture.service.prune(later).await.unwrap();
        assert!(!fresh.exists() && !used.exists());
        let mut left: Vec<_> = std::fs::read_dir(&staging).unwrap().map(|name| name.unwrap().file_name()).collect();
        left.retain(|name| name != "spare");
        left.sort();
        assert_eq!(left, [held.as_str(), "somebody's"]);
        fixture.release("default");
        assert_eq!(fixture.service.finished(&fixture.owner, &held).await.unwrap().summary.status, Status::Succeeded);
    });
}
