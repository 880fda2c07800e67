//! Range and HEAD requests for artifacts.

use crate::server::{Answer, Server};

fn get(server: &Server, method: &str, path: &str, headers: &[(&str, &str)]) -> Answer {
    let authorization = format!("Bearer {}", server.token);
    server.ask_with(method, path, &[&[("authorization", authorization.as_str())], headers].concat(), None)
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[test]
fn ranges_join_to_the_whole_artifact() {
    let server = Server::start();
    // More than the server reads at once, and the same bytes occur at no other position.
    let exec = server.shell("seq 1 200000 > /workspace/artifacts/numbers");
    let path = format!("/sandbox/execs/{}/artifacts/numbers", exec["exec_id"].as_str().unwrap());
    let whole = get(&server, "GET", &path, &[]);
    assert_eq!((whole.status, header(&whole, "accept-ranges")), (200, "bytes"));
    let (size, tag) = (whole.bytes.len(), header(&whole, "etag").to_owned());
    let part = |range: &str| get(&server, "GET", &path, &[("range", range)]);
    let mut joined = Vec::new();
    for range in ["bytes=0-99", "bytes=100-599999", "bytes=600000-"] {
        let answer = part(range);
        assert_eq!(answer.status, 206, "{range}");
        let end = joined.len() + answer.bytes.len() - 1;
        assert_eq!(header(&answer, "content-range"), format!("bytes {}-{end}/{size}", joined.len()));
        joined.extend(answer.bytes);
    }
    assert!(joined == whole.bytes);
    assert_eq!(part("bytes=-7").bytes, b"200000\n");
    let beyond = part(&format!("bytes={size}-"));
    assert_eq!(header(&beyond, "content-range"), format!("bytes */{size}"));
    assert_eq!(beyond.refused(416), "RANGE_NOT_SATISFIABLE");
    assert_eq!(part("bytes=0-1,5-6").status, 200);

    let resumed = |tag: &str| get(&server, "GET", &path, &[("range", "bytes=5-6"), ("if-range", tag)]).status;
    assert_eq!((resumed(&tag), resumed("\"another\"")), (206, 200));
    let head = get(&server, "HEAD", &path, &[("range", "bytes=5-6")]);
    assert_eq!((head.status, head.bytes.len()), (200, 0));
    assert_eq!((header(&head, "content-length"), header(&head, "etag")), (size.to_string().as_str(), tag.as_str()));
}

/// A box can create a symbolic link among its artifacts. The server does not follow it.
#[test]
fn range_of_a_linked_artifact_is_not_found() {
    let server = Server::start();
    let exec = server.shell("ln -s /etc/passwd /workspace/artifacts/link; echo real > /workspace/artifacts/real");
    let id = exec["exec_id"].as_str().unwrap();
    let ask = |method: &str, name: &str| {
        get(&server, method, &format!("/sandbox/execs/{id}/artifacts/{name}"), &[("range", "bytes=0-3")]).status
    };
    assert_eq!((ask("GET", "real"), ask("GET", "link"), ask("HEAD", "link")), (206, 404, 404));
}
