//! Files of a session over HTTP: content, paths and links.

use serde_json::json;

use crate::fixture::{Fixture, code_of};

const FILES: &str = "/api/sessions/s/files";

#[test]
fn session_files_are_written_read_listed_and_deleted() {
    let fixture = Fixture::start();
    let bytes = b"\x00\xffany bytes\r\n";
    let written = fixture.put_bytes(&format!("{FILES}/output/deep/r.bin"), bytes).expect(200);
    assert_eq!(written, json!({ "path": "output/deep/r.bin", "size": bytes.len() }));
    let read = fixture.server.ask("GET", &format!("{FILES}/output/deep/r.bin"), None);
    assert_eq!((read.status, read.bytes.as_slice()), (200, bytes.as_slice()));
    assert_eq!(read.headers["content-disposition"], "attachment");
    let authorization = format!("Bearer {}", fixture.server.token);
    let part = [("authorization", authorization.as_str()), ("range", "bytes=2-4")];
    let part = fixture.server.ask_with("GET", &format!("{FILES}/output/deep/r.bin"), &part, None);
    assert_eq!((part.status, part.bytes.as_slice()), (206, b"any".as_slice()));
    fixture.put_bytes(&format!("{FILES}/output/deep/r.bin"), b"again").expect(200);
    assert_eq!(
        fixture.shell("cat output/deep/r.bin; echo x > output/y; echo z > top")["stdout"],
        "again",
        "the box has another file"
    );
    let list = |words: &str| fixture.server.ask("GET", &format!("{FILES}{words}"), None).expect(200)["files"].clone();
    assert_eq!(list(""), json!(["output/deep/r.bin", "output/y", "top"]));
    assert_eq!(list("?path=output"), json!(["output/deep/r.bin", "output/y"]));
    assert_eq!(list("?path=output/y"), json!(["output/y"]));
    assert_eq!(list("?path=nowhere"), json!([]));
    let zip = fixture.server.ask("GET", &format!("{FILES}/output"), None);
    assert_eq!((zip.status, &zip.bytes[..2]), (200, b"PK".as_slice()));
    fixture.server.ask("DELETE", &format!("{FILES}/output/deep"), None).expect(200);
    assert_eq!(list(""), json!(["output/y", "top"]));
    assert_eq!(code_of(fixture.server.ask("GET", &format!("{FILES}/output/deep/r.bin"), None), 404), "NOT_FOUND");
}

#[test]
fn path_that_leaves_session_is_rejected() {
    let fixture = Fixture::start();
    fixture.python("1");
    for path in ["/%2e%2e/%2e%2e/.used", "//etc/passwd", "/a/%2e%2e/%2e%2e/b", "/a%5c..%5cb", "/%2Fetc%2Fpasswd", "/.."]
    {
        for method in ["GET", "DELETE"] {
            let response = fixture.server.ask(method, &format!("{FILES}{path}"), None);
            assert_eq!(code_of(response, 403), "PathTraversal", "{method} {path}");
        }
        assert_eq!(code_of(fixture.put_bytes(&format!("{FILES}{path}"), b"x"), 403), "PathTraversal", "{path}");
    }
    assert_eq!(code_of(fixture.server.ask("GET", &format!("{FILES}?path=../.."), None), 403), "PathTraversal");
    assert_eq!(code_of(fixture.server.ask("GET", &format!("{FILES}/a%00b"), None), 400), "INVALID_ARGUMENT");
    assert_eq!(
        code_of(fixture.put_bytes(&format!("{FILES}/output/"), b"x"), 400),
        "INVALID_ARGUMENT",
        "a directory's name"
    );
}

#[test]
fn planted_link_is_not_followed_out_of_session() {
    let fixture = Fixture::start();
    let secret = fixture.server.data().join("workspaces/default/default/files");
    std::fs::create_dir_all(&secret).unwrap();
    std::fs::write(secret.join("of-the-agent"), "secret").unwrap();
    let planted = fixture.python(
        "import os\nos.symlink('/etc', 'etc'); os.symlink('/etc/passwd', 'passwd'); os.symlink('../../../files', 'agent')\n\
         os.symlink('..', 'up'); open('data/own', 'w').write('own'); os.symlink('data/own', 'inside')",
    );
    assert_eq!(planted["success"], true, "{planted}");
    let read = |path: &str| fixture.server.ask("GET", &format!("{FILES}/{path}"), None);
    for path in ["etc/passwd", "passwd", "agent/of-the-agent", "up/.used"] {
        assert_eq!(code_of(read(path), 403), "PathTraversal", "{path}");
    }
    assert_eq!(read("inside").bytes, b"own", "a link that stays may be read");
    for path in ["etc/x", "agent/x", "up/x"] {
        assert_eq!(code_of(fixture.put_bytes(&format!("{FILES}/{path}"), b"x"), 403), "PathTraversal", "{path}");
        assert_eq!(
            code_of(fixture.server.ask("DELETE", &format!("{FILES}/{path}"), None), 403),
            "PathTraversal",
            "{path}"
        );
    }
    // A write to the link's own path replaces the link and leaves its target.
    fixture.put_bytes(&format!("{FILES}/agent"), b"mine").expect(200);
    assert_eq!(read("agent").bytes, b"mine");
    assert_eq!(std::fs::read_to_string(secret.join("of-the-agent")).unwrap(), "secret");
}
