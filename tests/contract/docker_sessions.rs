//! Containers of sessions: each session has one, a killed one is replaced, and none is left after a
//! stop or a kill of the server.

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::docker_daemon::{Daemon, wait_until};
use tests::support::pool_watch::{PoolWatch, pool};
use tests::support::server::Server;

use crate::fixture::Fixture;

fn exec(server: &Server, session: &str, command: &str) -> Value {
    let ran = server.ask("POST", &format!("/api/sessions/{session}/exec"), Some(&json!({ "command": command })));
    let ran = ran.expect(200);
    assert_eq!(ran["success"], true, "{ran}");
    ran
}

/// The names of all containers of this server.
fn containers(daemon: &Daemon, server: &Server) -> Vec<String> {
    let id = std::fs::read_to_string(server.data().join("instance-id")).unwrap();
    let filter = format!("--filter=label=ringwall={}", id.trim());
    daemon.ask(&["ps", "--all", "--format={{.Names}}", &filter]).lines().map(str::to_owned).collect()
}

pub(crate) fn session_containers_end_with_server(fixture: &Fixture) {
    let daemon = fixture.daemon.as_ref().unwrap();
    let mut server = fixture.start();
    let settings = json!({
        "sessions": { "confirmation": "auto-approve" },
        "strict": { "backends": ["docker"] },
        "pool": { "min_instances": 0 },
    });
    server.ask("PUT", "/settings", Some(&settings)).expect(200);
    let watch = PoolWatch::begin(&server);
    assert_eq!(containers(daemon, &server), Vec::<String>::new(), "no container before the first command");

    exec(&server, "one", "echo one > output/one");
    let first = containers(daemon, &server);
    assert!(first.len() == 1 && first[0].starts_with("ringwall-box-"), "{first:?}");
    exec(&server, "one", "true");
    assert_eq!(containers(daemon, &server), first, "the session keeps its container");
    exec(&server, "two", "echo two > output/two");
    assert_eq!(containers(daemon, &server).len(), 2);

    daemon.ask(&["kill", &first[0]]);
    wait_until("the killed container leaves the pool", || pool(&server)["total"] == 1);
    assert_eq!(exec(&server, "one", "cat output/one")["stdout"], "one\n", "in a new container");
    assert_eq!(exec(&server, "two", "cat output/two")["stdout"], "two\n", "the other session's container still runs");
    assert_eq!(containers(daemon, &server).len(), 2);
    watch.end();

    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    assert_eq!(containers(daemon, &server), Vec::<String>::new(), "containers left after the stop");

    let mut server = fixture.start_in(server.leave());
    exec(&server, "three", "echo three > output/three");
    server.signal(Signal::KILL);
    server.ended();
    let server = fixture.start_in(server.leave());
    wait_until("the container of the killed server is removed", || containers(daemon, &server).is_empty());
}
