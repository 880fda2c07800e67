//! What an exec leaves behind, and what a browser may make of it.

use serde_json::json;

use crate::server::Server;

#[test]
fn files_are_listed_with_their_hashes_and_read_as_they_are() {
    let server = Server::start();
    let done = server.shell("mkdir /workspace/artifacts/d; printf 'a\\0b' > /workspace/artifacts/d/f; echo hi; ln -s /etc/passwd /workspace/artifacts/l");
    assert_eq!(done["status"], "SUCCEEDED", "{done}");
    let base = format!("/sandbox/execs/{}/artifacts", done["exec_id"].as_str().unwrap());
    let listed = server.ask("GET", &base, None).expect(200);
    assert_eq!(listed["artifacts_dir"], done["artifacts_dir"]);
    let files = listed["files"].as_array().unwrap();
    let file = |path: &str| files.iter().find(|file| file["path"] == path);
    assert_eq!(file("d/f").unwrap()["size"], 3, "{listed}");
    assert_eq!(file("d/f").unwrap()["hash"].as_str().unwrap().trim_start_matches("sha256:").len(), 64);
    assert!(["stdout.txt", "stderr.txt", "meta.json"].iter().all(|path| file(path).is_some()), "{listed}");
    assert!(file("l").is_none(), "{listed}");
    let read = server.ask("GET", &format!("{base}/d/f"), None);
    assert_eq!((read.status, read.bytes.as_slice()), (200, b"a\0b".as_slice()));
    for (header, value) in [
        ("content-disposition", "attachment"),
        ("x-content-type-options", "nosniff"),
        ("content-type", "application/octet-stream"),
    ] {
        assert_eq!(read.headers.get(header).unwrap(), value);
    }
    for missing in ["none", "l", "d", "..%2f..%2fmeta.json", "%2e%2e/x", "d/../../x"] {
        let status = server.ask("GET", &format!("{base}/{missing}"), None).status;
        assert!(matches!(status, 400 | 404), "{missing}: {status}");
    }
}

#[test]
fn output_is_read_by_bytes() {
    let server = Server::start();
    let id = server.shell("printf 0123456789; printf oops >&2")["exec_id"].as_str().unwrap().to_owned();
    let read = |query: &str| server.ask("GET", &format!("/sandbox/execs/{id}/{query}"), None).expect(200);
    let whole = read("stdout");
    assert_eq!(
        (&whole["content"], &whole["bytes"], &whole["truncated"]),
        (&json!("0123456789"), &json!(10), &json!(false))
    );
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
}
