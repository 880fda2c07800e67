//! Inputs, artifacts and output of execs: links planted by a box are not followed, and its files do
//! not replace the server's.

use serde_json::{Value, json};
use tests::support::server::Server;

use crate::fixture::{Backend, Fixture};

/// The listed files of an exec.
fn listed(server: &Server, done: &Value) -> Vec<Value> {
    let path = format!("/sandbox/execs/{}/artifacts", done["exec_id"].as_str().unwrap());
    let listed = server.ask("GET", &path, None).expect(200);
    assert_eq!((&listed["exec_id"], &listed["artifacts_dir"]), (&done["exec_id"], &done["artifacts_dir"]));
    listed["files"].as_array().unwrap().clone()
}

fn names(files: &[Value]) -> Vec<&str> {
    files.iter().map(|file| file["path"].as_str().unwrap()).collect()
}

pub(crate) fn invalid_input_path_writes_no_input(fixture: &Fixture) {
    let server = fixture.start();
    let mut body =
        server.request("cat ../inputs/a/b.txt; touch ../inputs/x ../inputs/a/b.txt 2>/dev/null || echo read-only");
    body["inputs"] = json!([{ "path": "a/b.txt", "content": "in\n" }, { "path": "a..b", "content": "a name" }]);
    body["task_ref"] = json!({ "conversation_id": "talk" });
    body.as_object_mut().unwrap().remove("project_id");
    let done = server.run(&body);
    assert_eq!(done["artifacts_dir"], format!("projects/talk/artifacts/{}", done["exec_id"].as_str().unwrap()));
    assert_eq!(server.stdout(&done), "in\nread-only\n");
    for wrong in ["a/../../up", "/abs", "", ".."] {
        let mut bad = server.request("true");
        bad["project_id"] = "fresh".into();
        bad["inputs"] = json!([{ "path": "good", "content": "" }, { "path": wrong, "content": "" }]);
        let detail = &server.ask("POST", "/sandbox/execs", Some(&bad)).expect(400)["detail"];
        assert_eq!(detail["code"], "INVALID_ARGUMENT", "{detail}");
        assert!(detail["message"].as_str().unwrap().contains(wrong), "{detail}");
    }
    let mut look = server.request("ls -A /workspace/inputs");
    look["project_id"] = "fresh".into();
    assert_eq!(server.stdout(&server.run(&look)), "", "nothing is written if any is bad");
}

pub(crate) fn artifacts_are_listed_with_hashes(fixture: &Fixture) {
    let server = fixture.start();
    let done = server.shell("mkdir ../artifacts/d; printf 'a\\0b' > ../artifacts/d/f; sha256sum < ../artifacts/d/f; chmod 0 ../artifacts/d/f");
    assert_eq!(done["status"], "SUCCEEDED", "{done}");
    let files = listed(&server, &done);
    let file = files.iter().find(|file| file["path"] == "d/f").unwrap();
    assert_eq!(file["size"], 3, "{file}");
    assert_eq!(file["hash"].as_str(), server.stdout(&done).split(' ').next(), "{file}");
    assert_eq!(names(&files), ["d/f", "meta.json", "stderr.txt", "stdout.txt"]);
    let base = format!("/sandbox/execs/{}/artifacts", done["exec_id"].as_str().unwrap());
    let read = server.ask("GET", &format!("{base}/d/f"), None);
    assert_eq!((read.status, read.bytes.as_slice()), (200, b"a\0b".as_slice()));
    for (header, value) in [
        ("content-disposition", "attachment"),
        ("x-content-type-options", "nosniff"),
        ("content-type", "application/octet-stream"),
    ] {
        assert_eq!(read.headers.get(header).unwrap(), value);
    }
    for missing in ["none", "d", "..%2f..%2fmeta.json", "%2e%2e/x", "d/../../x", "%2fetc%2fpasswd", "d%00"] {
        let status = server.ask("GET", &format!("{base}/{missing}"), None).status;
        assert!(matches!(status, 400 | 404), "{missing}: {status}");
    }
}

pub(crate) fn planted_links_are_not_followed(fixture: &Fixture) {
    let server = fixture.start();
    let script =
        "cd ../artifacts; echo said; ln -s /etc/passwd link; ln -s /workspace/inputs directory-link; ln -s ../../.. up
        mkfifo fifo; mkdir d; ln -s / d/root; mkfifo d/fifo; echo kept > d/kept; ln d/kept twice
        for ours in meta.json manifest.json stdout.txt stderr.txt; do echo forged > $ours; done";
    let done = server.shell(script);
    assert_eq!(done["status"], "SUCCEEDED", "{done}");
    let files = listed(&server, &done);
    let base = format!("/sandbox/execs/{}/artifacts", done["exec_id"].as_str().unwrap());
    assert!(names(&files).contains(&"d/kept"), "{files:?}");
    for planted in ["link", "directory-link", "up", "fifo", "d/root", "d/fifo"] {
        assert!(!names(&files).contains(&planted), "{files:?}");
        let status = server.ask("GET", &format!("{base}/{planted}"), None).status;
        assert_eq!(status, 404, "{planted}");
    }
    assert_eq!(server.ask("GET", &format!("{base}/d/root/etc/passwd"), None).status, 404);
    assert_eq!(server.stdout(&done), "said\n", "its output, not the planted file");
    assert_eq!(server.ask("GET", &format!("{base}/stdout.txt"), None).bytes, b"said\n");
    let meta = server.ask("GET", &format!("{base}/meta.json"), None).expect(200);
    assert_eq!(meta["exec_id"], done["exec_id"], "{meta}");
    assert!(meta["skipped_total"].as_u64().unwrap() >= 6, "{meta}");
    for file in &files {
        let path = file["path"].as_str().unwrap();
        let read = server.ask("GET", &format!("{base}/{path}"), None);
        assert_eq!((read.status, read.bytes.len() as u64), (200, file["size"].as_u64().unwrap()), "{path}");
        let is_ours = ["meta.json", "manifest.json", "stdout.txt", "stderr.txt"].contains(&path);
        assert!(!is_ours || read.bytes != b"forged\n", "{path} was replaced by the box");
    }
}

pub(crate) fn meta_and_manifest_describe_exec(fixture: &Fixture) {
    let server = fixture.start();
    let mut body = server.request("echo x > ../artifacts/f; exit 3");
    body["exec"]["env"] = json!({ "SECRET": "hunter2" });
    let done = server.run(&body);
    let view = server.exec(done["exec_id"].as_str().unwrap());
    let directory = server.data().join("workspaces/default/default").join(done["artifacts_dir"].as_str().unwrap());
    let read = |name: &str| -> Value { serde_json::from_slice(&std::fs::read(directory.join(name)).unwrap()).unwrap() };
    let meta = read("meta.json");
    let expected = json!({
        "exec_id": done["exec_id"], "project_id": "p", "status": "FAILED", "exit_code": 3, "error_reason": null,
        "backend": fixture.backend.name(), "env_keys": ["SECRET"], "policy_snapshot": view["policy_snapshot"],
        "stdout_truncated": false, "stderr_truncated": false, "skipped_total": 0,
        // The same on every backend.
        "docker_mounts": [
            { "source": "projects/p/inputs", "target": "/workspace/inputs", "mode": "ro" },
            { "source": "projects/p/work", "target": "/workspace/work", "mode": "rw" },
            { "source": done["artifacts_dir"], "target": "/workspace/artifacts", "mode": "rw" },
        ],
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&meta[key], value, "{key}: {meta}");
    }
    match fixture.backend {
        Backend::Native | Backend::Gvisor => assert_eq!(meta["image"], Value::Null),
        Backend::Docker => assert_eq!(meta["image"], "ringwall/sandbox:latest"),
    }
    assert!(!meta.to_string().contains("hunter2"), "{meta}");
    assert_eq!(read("manifest.json")["files"], json!(listed(&server, &done)));
}

pub(crate) fn output_is_read_by_byte_range(fixture: &Fixture) {
    let server = fixture.start();
    let done = server.shell("printf 0123456789; printf oops >&2; echo x > ../artifacts/f");
    let id = done["exec_id"].as_str().unwrap();
    let read = |query: &str| server.ask("GET", &format!("/sandbox/execs/{id}/{query}"), None).expect(200);
    let whole = read("stdout");
    let expected = json!({ "exec_id": id, "content": "0123456789", "bytes": 10, "truncated": false });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&whole[key], value, "{whole}");
    }
    let part = read("stdout?offset=3&limit=4");
    assert_eq!((&part["content"], &part["next_offset"]), (&json!("3456"), &json!(7)));
    assert_eq!(read("stdout?offset=99")["content"], "");
    assert_eq!(read("stderr")["content"], "oops");
    let seen = read("observation");
    assert_eq!(
        (&seen["exit_code"], &seen["stdout"], &seen["stderr"]),
        (&json!(0), &json!("0123456789"), &json!("oops")),
        "{seen}"
    );
    assert!(seen["artifacts"].to_string().contains("\"f\""), "{seen}");
}
