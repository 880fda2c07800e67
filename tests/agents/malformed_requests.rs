//! Malformed requests get an error in the envelope: unknown paths and methods, malformed bodies,
//! missing parameters, too large and incomplete bodies.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tests::support::server::Server;
use tests::support::wait::wait_until;

use crate::client::{Body, Client};
use crate::fixture::{Fixture, set, workspace_on};
use crate::workspace::{Workspace, snapshot};

pub(crate) fn unknown_paths_and_methods_are_rejected(fixture: &Fixture) {
    let server = fixture.server();
    let owner = Client::of(&server, &server.token);
    for path in
        ["/v1", "/v1/", "/v1/x", "/v1/x/y", "/v1/x/y/z", "/v1/skills/u/a/s/none", "/v1/a/b/c/d/e/f", "/v1//files"]
    {
        let response = owner.get(path);
        assert!(matches!(response.status, 400 | 404), "{path}: {response:?}");
    }
    for (method, path) in [
        ("POST", "/v1/a/files"),
        ("GET", "/v1/a/write"),
        ("PUT", "/v1/a/execute"),
        ("GET", "/v1/skills/a/upload"),
        ("PATCH", "/v1/a/content"),
        ("DELETE", "/v1/sandbox/u/a/files"),
    ] {
        let response = owner.ask(method, path, Body::None);
        assert_eq!(response.status, 405, "{method} {path}: {response:?}");
    }
}

pub(crate) fn malformed_bodies_are_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    let routes = ["write", "edit", "execute"].map(|verb| format!("/v1/{}/{verb}", agent.agent));
    for route in &routes {
        for text in ["", "{", "[]", "null", "\"x\"", "{}", "{\"file_path\":1}", "nonsense", "{\"command\":[]}", "\u{1}"]
        {
            let body = Body::Other { kind: "application/json", bytes: text.as_bytes() };
            agent.client.ask("POST", route, body).expect_error(400);
        }
        let bytes = b"{\"file_path\":\"files/\xff\",\"content\":\"\"}";
        agent.client.ask("POST", route, Body::Other { kind: "application/json", bytes }).expect_error(400);
    }
    let [write, edit, execute] = &routes;
    for (route, body) in [
        (write, json!({ "file_path": "files/x" })),
        (write, json!({ "content": "x" })),
        (write, json!({ "file_path": "files/x", "content": 1 })),
        (write, json!({ "file_path": "files/x", "content": null })),
        (edit, json!({ "file_path": "files/x", "old_string": "x" })),
        (edit, json!({ "file_path": "files/x", "new_string": "x" })),
        (edit, json!({ "old_string": "x", "new_string": "x" })),
        (edit, json!({ "file_path": "files/x", "old_string": "x", "new_string": "y", "expected_replacements": "1" })),
        (edit, json!({ "file_path": "files/x", "old_string": "x", "new_string": "y", "expected_replacements": -1 })),
        (edit, json!({ "file_path": "files/x", "old_string": "x", "new_string": "y", "expected_replacements": 1.5 })),
        (execute, json!({ "command": 1 })),
        (execute, json!({ "command": null })),
    ] {
        agent.client.post(route, &body).expect_error(400);
    }
    for path in ["content", "download", "files"] {
        let message = agent.client.get(&format!("/v1/{}/{path}", agent.agent)).expect_error(400);
        assert_eq!(message, "the query is malformed: missing field `path`");
    }
    agent.client.delete(&format!("/v1/{}/delete", agent.agent)).expect_error(400);
    agent.client.delete(&format!("/v1/skills/{}/delete", agent.agent)).expect_error(400);
    agent.client.get(&agent.sandbox_route("content")).expect_error(400);
    agent.client.put(&agent.sandbox_route("edit"), "x").expect_error(400);
    agent.client.ask("POST", &agent.sandbox_route("execute"), Body::None).expect_error(400);
    for arguments in [json!({}), json!("x"), json!([1]), json!([null]), json!([["x"]])] {
        agent.client.post(&agent.sandbox_route("execute?command=echo"), &arguments).expect_error(400);
    }
    let body = Body::Other { kind: "text/plain", bytes: b"\xff\xfe" };
    agent.client.ask("PUT", &agent.sandbox_route("edit?path=odd"), body).expect_error(400);
    assert_eq!(agent.listed("files"), [""; 0]);
}

/// Sends a request over a connection of its own.
fn send_raw(server: &Server, method: &str, path: &str, headers: &str, rest: &[u8]) -> (String, Value) {
    let mut stream = server.connect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nConnection: close\r\n{headers}\r\n",
        server.token
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The server may reject the request and close the connection early.
    let _ = stream.write_all(rest);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{method} {path}: {text:?}"));
    let object = body.find('{').and_then(|start| serde_json::from_str(&body[start..=body.rfind('}')?]).ok());
    (head.to_owned(), object.unwrap_or(Value::Null))
}

pub(crate) fn too_large_bodies_are_rejected(fixture: &Fixture) {
    let server = fixture.start();
    set(&server, &json!({ "files": { "upload_max_mb": 1 } }));
    let agent = workspace_on(&server);
    let large = "x".repeat(2 << 20);
    agent.write("files/x", &large).expect_error(413);
    agent.upload("x", large.as_bytes()).expect_error(413);
    agent.client.put(&agent.sandbox_route("edit?path=x"), &large).expect_error(413);
    agent
        .push(&crate::zips::zip(&[
            crate::zips::Entry::file("s/SKILL.md", b"name: s"),
            crate::zips::Entry::file("s/big", large.as_bytes()),
        ]))
        .expect_error(413);
    // With a length that exceeds the limit, and in chunks without a length.
    let kind = "Content-Type: multipart/form-data; boundary=b\r\n";
    for (path, kind) in [
        ("/v1/a/write", ""),
        ("/v1/files/a/upload", kind),
        ("/v1/skills/a/upload", kind),
        ("/v1/skills/default/a/upload", kind),
    ] {
        let (head, body) = send_raw(&server, "POST", path, &format!("{kind}Content-Length: 99999999999\r\n"), b"");
        assert!(head.starts_with("HTTP/1.1 413"), "{path}: {head}");
        assert_eq!(body["status"], "error", "{path}: {head} {body}");
        let opening = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n";
        let text = format!("{opening}{large}");
        let chunk = format!("{:x}\r\n{text}\r\n0\r\n\r\n", text.len());
        let (head, body) =
            send_raw(&server, "POST", path, &format!("{kind}Transfer-Encoding: chunked\r\n"), chunk.as_bytes());
        assert!(head.starts_with("HTTP/1.1 413"), "{path}: {head}");
        assert_eq!(body["status"], "error", "{path}: {head} {body}");
    }
    assert_eq!(agent.listed("files"), [""; 0]);
    agent.put("files/x", "small");
    agent.upload("y", b"small").success();
}

/// Files in the workspace that the server process has open, with or without a name.
fn held_open(server: &Server, workspace: &Path) -> Vec<PathBuf> {
    let handles = fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap();
    let files = handles.filter_map(|handle| fs::read_link(handle.unwrap().path()).ok());
    // Directory handles are kept as long as the agent is cached.
    files.filter(|file| file.starts_with(workspace.join(".staging")) && !file.is_dir()).collect()
}

/// An interrupted upload leaves nothing, and the old file stays.
pub(crate) fn interrupted_upload_changes_nothing(fixture: &Fixture) {
    let server = fixture.start();
    let owner = Client::of(&server, &server.token);
    let agent = Workspace::new(owner.clone(), "default", "a");
    agent.upload("x", b"old").success();
    agent.push(&crate::zips::skill("s", "old")).success();
    let before = snapshot(&agent.on_disk(""));
    let kind = "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 100000\r\n";
    for path in ["/v1/files/a/upload", "/v1/skills/a/upload", "/v1/skills/default/a/upload"] {
        let mut stream = server.connect();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n{kind}\r\n--b\r\n\
             Content-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\nhalf",
            server.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        wait_until("an upload that has begun", || !held_open(&server, &agent.on_disk("")).is_empty());
        drop(stream);
        wait_until("the end of an upload that broke off", || held_open(&server, &agent.on_disk("")).is_empty());
        assert_eq!(snapshot(&agent.on_disk("")), before, "{path}");
        // A body that ends before its last boundary.
        let (kind, mut bytes) = crate::client::form(&[&crate::client::file_part(b"x", b"half")]);
        bytes.truncate(bytes.len() - 10);
        owner.ask("POST", path, Body::Other { kind: &kind, bytes: &bytes }).expect_error(400);
        assert_eq!(snapshot(&agent.on_disk("")), before, "{path}");
        assert_eq!(held_open(&server, &agent.on_disk("")), [""; 0].map(PathBuf::from), "{path}");
    }
    assert_eq!(agent.text("files/x"), "old");
    assert_eq!(agent.text("skills/s/main.py"), "old");
    assert_eq!(agent.listed("files"), ["files/x"]);
}
