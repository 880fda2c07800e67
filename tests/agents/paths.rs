//! Rules for paths, on every route that takes one, with the texts of their errors.

use std::fs;

use serde_json::json;

use crate::client::{ApiResponse, encode, encode_bytes};
use crate::fixture::Fixture;
use crate::workspace::{Workspace, snapshot};

const RESERVED: &str = "Security Error: 'SKILL.md' is a system reserved file. You can only create/edit it at the root \
                        of a skill (e.g., skills/my_skill/SKILL.md).";

/// The responses of every route that takes a path.
fn everywhere(agent: &Workspace, path: &str) -> Vec<(&'static str, ApiResponse)> {
    let route = format!("/v1/{}/download?path={}", agent.agent, encode(path));
    let mut response = everywhere_but_downloads(agent, path);
    response.push(("download", agent.client.get(&route)));
    response
}

/// Like [`everywhere`], without the route whose response is not JSON.
fn everywhere_but_downloads(agent: &Workspace, path: &str) -> Vec<(&'static str, ApiResponse)> {
    vec![
        ("files", agent.list(path)),
        ("content", agent.content(path)),
        ("page", agent.page(path, "&offset=1&limit=1")),
        ("write", agent.write(path, "hostile")),
        ("edit", agent.edit(path, "a", "b", None)),
        ("delete", agent.delete(path)),
    ]
}

/// The responses of the routes whose paths are relative to a skill or to the sandbox.
fn everywhere_relative(agent: &Workspace, path: &str) -> Vec<(String, ApiResponse)> {
    let mut response = Vec::new();
    for base in [agent.skill_route("s"), agent.sandbox()] {
        let query = format!("path={}", encode(path));
        response.push((format!("{base} content"), agent.client.get(&format!("{base}/content?{query}"))));
        response.push((format!("{base} range"), agent.client.get(&format!("{base}/content?{query}&start=1&end=2"))));
        response.push((format!("{base} edit"), agent.client.put(&format!("{base}/edit?{query}"), "hostile")));
        response.push((format!("{base} lines"), agent.client.put(&format!("{base}/edit?{query}&start=1"), "hostile")));
    }
    response
}

/// A workspace with files that must stay unchanged.
fn workspace_with_files(fixture: &Fixture) -> Workspace {
    let agent = fixture.workspace();
    agent.put("files/a", "a");
    agent.put("skills/s/SKILL.md", "name: s\n");
    agent.put("skills/s/a", "a");
    agent
}

pub(crate) fn path_outside_sections_is_rejected(fixture: &Fixture) {
    let agent = workspace_with_files(fixture);
    let before = snapshot(&agent.on_disk(""));
    for path in ["other/x", "x", "filesx/y", "Files/x", "skill/x", "workspace/files/x", "projects/p/work/x"] {
        for (route, response) in everywhere(&agent, path) {
            let expected = format!("Security Error: Path must start with 'skills/' or 'files/'. Current path: {path}");
            assert_eq!(response.expect_error(403), expected, "{route} {path}");
        }
    }
    assert_eq!(snapshot(&agent.on_disk("")), before);
}

pub(crate) fn path_that_leads_out_is_rejected(fixture: &Fixture) {
    let agent = workspace_with_files(fixture);
    let before = snapshot(&agent.on_disk(""));
    for path in [
        "files/../x",
        "files/..",
        "skills/..",
        "skills/../files/a",
        "files/a/../../x",
        "files/./../x",
        "files/x/../../../../../../etc/passwd",
        "skills/s/../../../x",
    ] {
        for (route, response) in everywhere(&agent, path) {
            let expected = format!("Security Error: Access out of scope. Path: {path}");
            assert_eq!(response.expect_error(403), expected, "{route} {path}");
        }
    }
    // The path breaks several rules; the message may name any of them.
    for path in
        ["/etc/passwd", "//etc/passwd", "../x", "/files/a", "..", "/", ".", "", "./.", "C:\\x", "\\\\host\\share"]
    {
        for (route, response) in everywhere(&agent, path) {
            let message = response.expect_error(403);
            assert!(message.starts_with("Security Error: ") && message.ends_with(path), "{route} {path}: {message}");
        }
    }
    for path in ["files\\..\\x", "files/a\\..\\..\\b", "files//etc/passwd", "files/./.", "files/C:\\x"] {
        for (route, response) in everywhere_but_downloads(&agent, path) {
            let is_literal = path != "files\\..\\x" && (response.status == 404 || response.status == 200);
            assert!(is_literal || (400..500).contains(&response.status), "{route} {path}: {response:?}");
        }
        // The path may exist now as a literal name.
        agent.delete(path);
    }
    agent.delete("files/etc");
    assert_eq!(snapshot(&agent.on_disk("")), before);
}

pub(crate) fn relative_path_stays_in_its_directory(fixture: &Fixture) {
    let agent = workspace_with_files(fixture);
    let before = snapshot(&agent.on_disk(""));
    for path in ["../x", "..", "a/../../x", "/etc/passwd", "../../files/a", "../s/a", "x/../../y"] {
        for (route, response) in everywhere_relative(&agent, path) {
            let message = response.expect_error(403);
            assert!(message.starts_with("Security Error: "), "{route} {path}: {message}");
        }
    }
    for path in ["", ".", "./"] {
        for (route, response) in everywhere_relative(&agent, path) {
            assert!((400..500).contains(&response.status), "{route} {path:?}: {response:?}");
        }
    }
    for skill in ["..", ".", "%2e%2e", "a%2fb", "%2e%2e%2ffiles", "s%00"] {
        for rest in ["files", "content?path=a"] {
            let response = agent.client.get(&agent.skill_route(&format!("{skill}/{rest}")));
            assert!((400..500).contains(&response.status), "{skill} {rest}: {response:?}");
        }
        let response = agent.client.put(&agent.skill_route(&format!("{skill}/edit?path=hostile")), "hostile");
        assert!((400..500).contains(&response.status), "{skill}: {response:?}");
    }
    assert_eq!(snapshot(&agent.on_disk("")), before);
}

pub(crate) fn invalid_bytes_and_lengths_are_rejected(fixture: &Fixture) {
    let agent = workspace_with_files(fixture);
    let before = snapshot(&agent.on_disk(""));
    for path in ["files/a\0", "files/\0", "files/a\0/../../x", "\0"] {
        for (route, response) in everywhere(&agent, path) {
            assert!(response.status == 400, "{route}: {response:?}");
        }
    }
    let name = "n".repeat(256);
    let long = format!("files/{}", "d/".repeat(2100));
    for path in [format!("files/{name}"), format!("files/{name}/x"), long] {
        for (route, response) in everywhere(&agent, &path) {
            assert!(response.status == 400, "{route}: {response:?}");
        }
    }
    // Bytes that are not UTF-8.
    for bytes in [&b"files/\xff"[..], b"\xc0\xaf", b"files/\xed\xa0\x80"] {
        let response = agent.client.get(&format!("/v1/{}/content?path={}", agent.agent, encode_bytes(bytes)));
        assert!(matches!(response.status, 400 | 403 | 404), "{response:?}");
    }
    assert_eq!(snapshot(&agent.on_disk("")), before);
}

pub(crate) fn invalid_agent_id_is_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    let long = "a".repeat(129);
    let bad = ["skills", "files", "sandbox", "..", "a..b", ".a", "-a", "_a", "a%2fb", "a%20b", "%00", "文件", &long];
    for id in bad {
        for path in [format!("/v1/{id}/files?path=files"), format!("/v1/{id}/content?path=files/x")] {
            agent.client.get(&path).expect_error(400);
        }
        agent
            .client
            .post(&format!("/v1/{id}/write"), &json!({ "file_path": "files/x", "content": "" }))
            .expect_error(400);
        agent.client.post(&format!("/v1/{id}/execute"), &json!({ "command": "ls" })).expect_error(400);
        agent.client.get(&format!("/v1/skills/{id}/list")).expect_error(400);
        agent.client.get(&format!("/v1/sandbox/{}/{id}/files", agent.user)).expect_error(400);
    }
    for good in ["A", "0", "a.b-c_d", &"a".repeat(128)] {
        assert_eq!(agent.client.get(&format!("/v1/{good}/files?path=files")).success(), json!([]), "{good}");
    }
}

pub(crate) fn skill_file_is_writable_only_at_skill_root(fixture: &Fixture) {
    let agent = workspace_with_files(fixture);
    let before = snapshot(&agent.on_disk(""));
    for path in
        ["skills/SKILL.md", "skills/s/b/SKILL.md", "skills/s/b/skill.md", "skills/s/b/c/Skill.MD", "skills/skill.md"]
    {
        assert_eq!(agent.write(path, "x").expect_error(403), RESERVED, "{path}");
        assert_eq!(agent.edit(path, "a", "b", None).expect_error(403), RESERVED, "{path}");
    }
    for path in ["b/SKILL.md", "b/c/skill.md"] {
        for words in ["", "&start=1"] {
            let route = agent.skill_route(&format!("s/edit?path={path}{words}"));
            assert_eq!(agent.client.put(&route, "x").expect_error(403), RESERVED, "{path}{words}");
        }
    }
    assert_eq!(snapshot(&agent.on_disk("")), before);
    agent.put("skills/s/SKILL.md", "name: other\n");
    agent.edit("skills/s/SKILL.md", "other", "again", None).success();
    agent.client.put(&agent.skill_route("s/edit?path=SKILL.md&start=1"), "name: third").success();
    assert_eq!(agent.text("skills/s/SKILL.md"), "name: third\n");
    // Elsewhere it is an ordinary file.
    for path in ["files/SKILL.md", "files/a.d/SKILL.md", "skills/s/b/MY_SKILL.md", "skills/s/SKILL.md.txt"] {
        agent.put(path, "x");
    }
    agent.client.put(&agent.sandbox_route("edit?path=x/SKILL.md"), "x").success();
    assert_eq!(fs::read(agent.on_disk("files/x/SKILL.md")).unwrap(), b"x");
}
