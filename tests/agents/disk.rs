//! Disk quotas of workspaces: requests and boxes that exceed them fail with a message that names
//! usage, limit and remedy, and succeed after files were deleted. Also the removal of unused files.

use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tests::support::scratch::give;
use tests::support::server::Server;

use crate::client::Client;
use crate::fixture::{Fixture, set, workspace_on};
use crate::workspace::{CommandResult, Workspace};
use crate::zips::{Entry, skill, zip};

const MIB: usize = 1024 * 1024;
/// Writes 3 GB, far above each quota, and then ends by itself, so that a missing limit does not
/// fill the host's disk.
const FILLER: &str = "for i in {1..3000}; do head -c 1000000 /dev/zero >> filler; done";

fn limited(fixture: &Fixture, quota_mb: u64, quota_files: u64) -> Server {
    let server = fixture.start();
    limit(&server, quota_mb, quota_files);
    server
}

fn limit(server: &Server, quota_mb: u64, quota_files: u64) {
    set(server, &json!({ "workspace": { "quota_mb": quota_mb, "quota_files": quota_files } }));
}

/// Checks that the message contains usage, limit and remedy.
fn assert_full(message: &str, setting: &str) {
    assert!(message.contains("The workspace is full: it "), "{message}");
    assert!(message.contains(" of the ") && message.contains("Delete ") && message.contains(setting), "{message}");
}

pub(crate) fn writes_beyond_quota_are_rejected(fixture: &Fixture) {
    let server = limited(fixture, 4, 200);
    let workspace = workspace_on(&server);
    workspace.put("files/a", &"x".repeat(3 * MIB));
    let large = "x".repeat(2 * MIB);
    let answers = [
        workspace.write("files/b", &large),
        workspace.upload("c", large.as_bytes()),
        workspace.edit("files/a", "x", "yy", Some(3 * MIB as u64)),
        workspace.client.put(&workspace.sandbox_route("edit?path=d"), &large),
        workspace
            .push(&zip(&[Entry::file("s/SKILL.md", b"---\nname: s\n---\n"), Entry::file("s/data", large.as_bytes())])),
    ];
    for answer in answers {
        assert_full(&answer.expect_error(413), "workspace.quota_mb");
    }
    assert_eq!(workspace.listed("files"), ["files/a"]);
    assert_eq!(workspace.skill_names(), Vec::<String>::new());
    assert_eq!(fs::read_dir(workspace.on_disk(".staging")).unwrap().count(), 0, "a rejected request left files");
    // Other workspaces have a quota of their own. Reading and deleting are not limited.
    workspace_on(&server).put("files/b", &large);
    assert_eq!(workspace.text("files/a").len(), 3 * MIB);
    workspace.delete("files/a").success();
    workspace.put("files/b", &large);
}

pub(crate) fn names_beyond_quota_are_rejected(fixture: &Fixture) {
    let server = limited(fixture, 1000, 40);
    let workspace = workspace_on(&server);
    let written = (0..200).take_while(|number| workspace.write(&format!("files/{number}"), "").status == 200).count();
    assert!((30..=40).contains(&written), "{written}");
    assert_full(&workspace.write("files/one-more", "").expect_error(413), "workspace.quota_files");
    let many: Vec<(String, Vec<u8>)> = (0..60).map(|number| (format!("s/{number}"), b"x".to_vec())).collect();
    workspace.delete("files/0").success();
    let mut entries = vec![Entry::file("s/SKILL.md", b"---\nname: s\n---\n")];
    entries.extend(many.iter().map(|(name, bytes)| Entry::file(name, bytes)));
    assert_full(&workspace.push(&zip(&entries)).expect_error(413), "workspace.quota_files");
    workspace.put("files/one-more", "");
}

fn exec(server: &Server, workspace: &Workspace, script: &str, inputs: &Value) -> (u16, Value) {
    let body = json!({ "project_id": "p", "user_id": workspace.user, "agent_id": workspace.agent, "inputs": inputs,
        "exec": { "kind": "shell", "command": "bash", "args": ["-lc", script] } });
    let answer = server.ask("POST", "/sandbox/execs", Some(&body));
    (answer.status, answer.json())
}

pub(crate) fn exec_that_exceeds_quota_is_killed(fixture: &Fixture) {
    let server = limited(fixture, 8, 400);
    for (script, setting) in
        [(FILLER, "workspace.quota_mb"), ("i=0; while :; do mkdir d$i; i=$((i+1)); done", "workspace.quota_files")]
    {
        let workspace = workspace_on(&server);
        let (status, ended) = exec(&server, &workspace, script, &json!([]));
        assert_eq!((status, &ended["status"], &ended["exit_code"]), (200, &json!("FAILED"), &json!(137)), "{ended}");
        assert_eq!(ended["error_reason"]["code"], "DISK_QUOTA");
        assert_full(ended["error_reason"]["message"].as_str().unwrap(), setting);
        // Further input is rejected, and the exec is recorded.
        let input = json!([{ "path": "small", "content": "x" }]);
        let (status, rejected) = exec(&server, &workspace, "true", &input);
        assert_eq!((status, &rejected["detail"]["code"]), (413, &json!("DISK_QUOTA")), "{rejected}");
        assert_full(rejected["detail"]["message"].as_str().unwrap(), setting);
        let listed = server.ask("GET", "/sandbox/execs?project_id=p", None).expect(200);
        assert_eq!((&listed[0]["status"], &listed[0]["exit_code"]), (&json!("FAILED"), &Value::Null), "{listed}");
        // A command in the full workspace can delete files.
        assert_eq!(exec(&server, &workspace, "rm -r *", &json!([])).1["status"], "SUCCEEDED");
        assert_eq!(exec(&server, &workspace, "true", &input).1["status"], "SUCCEEDED");
    }
}

/// The response itself reports the quota. Control: the same command, which stops by itself.
pub(crate) fn command_that_exceeds_quota_reports_it(fixture: &Fixture) {
    let server = limited(fixture, 8, 400);
    let workspace = workspace_on(&server);
    let result = workspace.run("cat /dev/zero | head -c 1000000 >> files/filler");
    assert_eq!((result.code, result.stderr.as_str()), (0, ""));
    let result = workspace.run("while cat /dev/zero | head -c 1000000 >> files/filler; do :; done");
    assert_eq!(result.code, 137);
    assert_full(&result.stderr, "workspace.quota_mb");
    // A command can delete files.
    assert_full(&workspace.write("files/new", "x").expect_error(413), "workspace.quota_mb");
    assert_eq!(workspace.run("rm files/filler && ls files").code, 0);
    workspace.put("files/new", "x");
    // Programs in the sandbox and in a skill behave in the same way.
    workspace.push(&skill("s", "")).success();
    for route in [workspace.sandbox(), workspace.skill_route("s")] {
        let run_bash = |script: &str| CommandResult::read(&workspace.argv(&route, "bash", &["-c", script]).success());
        let result = run_bash("head -c 1000000 /dev/zero >> filler");
        assert_eq!((result.code, result.stderr.as_str()), (0, ""), "{route}");
        let result = run_bash(FILLER);
        assert_eq!(result.code, 137, "{route}");
        assert_full(&result.stderr, "workspace.quota_mb");
        assert_eq!(run_bash("rm filler").code, 0, "{route}");
    }
}

pub(crate) fn inputs_beyond_quota_are_rejected(fixture: &Fixture) {
    let server = limited(fixture, 2, 400);
    let workspace = workspace_on(&server);
    let inputs = json!([{ "path": "small", "content": "x" }, { "path": "large", "content": "x".repeat(3 * MIB) }]);
    let (status, rejected) = exec(&server, &workspace, "true", &inputs);
    assert_eq!((status, &rejected["detail"]["code"]), (413, &json!("DISK_QUOTA")), "{rejected}");
    assert_full(rejected["detail"]["message"].as_str().unwrap(), "workspace.quota_mb");
    let (_, result) = exec(&server, &workspace, "test -z \"$(ls /workspace/inputs)\"", &json!([]));
    assert_eq!(result["status"], "SUCCEEDED", "{result}");
}

pub(crate) fn baseline_beyond_quota_is_not_added(fixture: &Fixture) {
    let server = limited(fixture, 2, 400);
    let workspace = workspace_on(&server);
    workspace.put("files/a", "a");
    let data = "x".repeat(3 * MIB);
    let entries = [Entry::file("s/SKILL.md", b"---\nname: s\n---\n"), Entry::file("s/data", data.as_bytes())];
    let operator = Client::of(&server, &server.token);
    operator.upload(&workspace.skill_route("upload?scope=baseline"), b"x.zip", &zip(&entries)).success();
    let list = format!("/v1/skills/{}/list", workspace.agent);
    for _ in 0..2 {
        assert_full(&workspace.client.get(&list).expect_error(413), "workspace.quota_mb");
        // Other requests succeed; otherwise the user could not free space.
        assert_eq!(workspace.text("files/a"), "a");
        workspace.put("files/b", "b");
        workspace.delete("files/b").success();
    }
    limit(&server, 8, 400);
    assert_eq!(workspace.skill_names(), ["s"]);
    assert_eq!(fs::read(workspace.on_disk("skills/s/data")).unwrap(), data.as_bytes());
    // A new version of the same size replaces the old one, although both together exceed the quota.
    limit(&server, 5, 400);
    let newer = "y".repeat(3 * MIB);
    let entries = [Entry::file("s/SKILL.md", b"---\nname: s\n---\n"), Entry::file("s/data", newer.as_bytes())];
    operator.upload(&workspace.skill_route("upload?scope=baseline"), b"x.zip", &zip(&entries)).success();
    assert_eq!(workspace.skill_names(), ["s"]);
    assert_eq!(fs::read(workspace.on_disk("skills/s/data")).unwrap(), newer.as_bytes());
}

/// Uses `ringwall gc` as the user who runs the server.
pub(crate) fn gc_removes_idle_sessions(fixture: &Fixture) {
    let server = fixture.start();
    let workspace = workspace_on(&server);
    workspace.put("files/a", "a");
    for (id, hours) in [("old", 30_u32), ("young", 1)] {
        let session = workspace.on_disk("sessions").join(id);
        fs::create_dir_all(session.join("work")).unwrap();
        fs::write(session.join("work/file"), vec![1; MIB]).unwrap();
        fs::write(session.join(".used"), "").unwrap();
        let then = SystemTime::now() - Duration::from_secs(60 * 60) * hours;
        for aged in [session.join(".used"), session.clone()] {
            fs::File::open(aged).unwrap().set_modified(then).unwrap();
        }
        for own in ["work/file", "work", ".used", ""] {
            give(&session.join(own), fixture.mode().identity()).unwrap();
        }
    }
    give(&workspace.on_disk("sessions"), fixture.mode().identity()).unwrap();
    let url = format!("http://{}", server.address);
    let run_gc = |arguments: &[&str]| {
        let output = server.command().args(["gc", "--url", &url]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let expected = "1.0 MiB in 4 files: 1 idle session, 0 leftovers, 0 old baseline versions\n";
    assert_eq!(run_gc(&["--dry-run"]), format!("would free {expected}"));
    assert!(workspace.on_disk("sessions/old").exists());
    let report: Value = serde_json::from_str(&run_gc(&["--dry-run", "--json"])).unwrap();
    assert_eq!(
        (&report["dry_run"], &report["sessions"], &report["failed"]),
        (&json!(true), &json!(1), &json!(0)),
        "{report}"
    );
    assert_eq!(run_gc(&[]), format!("freed {expected}"));
    assert!(!workspace.on_disk("sessions/old").exists() && workspace.on_disk("sessions/young").exists());
    assert!(run_gc(&["--json"]).contains("\"files\":0"));
    assert_eq!(workspace.text("files/a"), "a");
    // Only operators may do this.
    let token = server.make_token(&["--role", "user", "--user", &workspace.user]);
    let (status, ..) = Client::of(&server, &token).raw("POST", "/api/gc");
    assert_eq!(status, 403);
}
