//! Warm containers: the first exec of a session gets one, with the files of that session only. None
//! is left after a stop or a kill of the server.

use std::os::unix::fs::MetadataExt;

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

fn run_native(server: &Server, session: &str, code: &str) -> Value {
    let body = json!({ "session_id": session, "code": code, "language": "shell", "backend": "native" });
    server.ask("POST", "/api/run", Some(&body)).expect(200)["stdout"].clone()
}

/// The server's containers whose names have this prefix.
fn containers(daemon: &Daemon, server: &Server, begin: &str) -> Vec<String> {
    let id = std::fs::read_to_string(server.data().join("instance-id")).unwrap();
    let filter = format!("--filter=label=ringwall={}", id.trim());
    let names = daemon.ask(&["ps", "--all", "--format={{.Names}}", &filter]);
    names.lines().filter(|name| name.starts_with(begin)).map(str::to_owned).collect()
}

/// Waits until no container is being prepared and `count` warm ones exist.
fn wait_for(daemon: &Daemon, server: &Server, count: usize) {
    wait_until("the warm containers exist", || {
        pool(server)["warming"] == 0 && containers(daemon, server, "ringwall-ahead-").len() == count
    });
}

fn demand_docker(server: &Server) {
    let settings = json!({
        "sessions": { "confirmation": "auto-approve" },
        "strict": { "backends": ["docker"] },
        "pool": { "min_instances": 1 },
    });
    server.ask("PUT", "/settings", Some(&settings)).expect(200);
}

pub(crate) fn session_gets_warm_container(fixture: &Fixture) {
    let daemon = fixture.daemon.as_ref().unwrap();
    let mut server = fixture.start();
    demand_docker(&server);
    let watch = PoolWatch::begin(&server);
    assert_eq!(containers(daemon, &server, "ringwall-"), Vec::<String>::new(), "none before the first session");
    let first = exec(&server, "one", "echo one > output/one");
    // The minimum of one, and one more because the first session found none.
    wait_for(daemon, &server, 2);
    let made = containers(daemon, &server, "ringwall-box-");
    assert_eq!(made.len(), 1);

    let token = format!("Bearer {}", server.token);
    let given = json!({ "session_id": "two", "code": "true", "language": "shell", "backend": "native",
        "files": [{ "path": "data/given", "content": "given\n" }] });
    server.ask("POST", "/api/run", Some(&given)).expect(200);
    let hits = pool(&server)["hits"].as_u64().unwrap();
    let second = exec(&server, "two", "cat data/given; ls -A data output; echo two > output/two; echo x > gone");
    assert_eq!(second["stdout"], "given\ndata:\ngiven\n\noutput:\n", "{second}");
    assert_eq!(pool(&server)["hits"], hits + 1);
    assert_eq!(containers(daemon, &server, "ringwall-box-"), made, "no container was created for the second session");
    assert_eq!(second["sandbox_type"], first["sandbox_type"]);
    let protections = |ran: &Value| server.exec(ran["exec_id"].as_str().unwrap())["protections"].clone();
    assert_eq!(protections(&second), protections(&first));
    assert_eq!(exec(&server, "two", "cat output/two")["stdout"], "two\n", "the session keeps its box");

    let path = "/api/sessions/two/files";
    let read = server.ask_with("GET", &format!("{path}/output/two"), &[("authorization", &token)], None);
    assert_eq!((read.status, read.bytes.as_slice()), (200, b"two\n".as_slice()));
    server.ask("DELETE", &format!("{path}/gone"), None).expect(200);
    assert_eq!(run_native(&server, "two", "cat output/two; stat -c %U output/two; ls gone || true"), "two\nsandbox\n");
    let files = server.data().join("workspaces/default/default/sessions/two/work");
    let owner = |name: &str| std::fs::metadata(files.join(name)).map(|file| (file.uid(), file.gid())).unwrap();
    assert_eq!(owner("output/two"), owner("data/given"), "owner on the host");

    // A warm container that was killed from outside is discarded; the next session still gets a
    // box.
    wait_for(daemon, &server, 3);
    for name in containers(daemon, &server, "ringwall-ahead-") {
        let pid = daemon.ask(&["inspect", "--format={{.State.Pid}}", &name]);
        let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", pid.trim())).unwrap();
        let files = mounts.lines().find(|line| line.contains(" /workspace ")).unwrap();
        if files.contains(" - tmpfs ") {
            daemon.ask(&["kill", &name]);
        }
    }
    assert_eq!(exec(&server, "three", "echo three > output/three; cat output/three")["stdout"], "three\n");
    assert_eq!(containers(daemon, &server, "ringwall-box-").len(), 2, "a cold container");
    assert_eq!(
        exec(&server, "two", "cat output/two; echo on > output/two")["stdout"],
        "two\n",
        "the other session's box still runs"
    );
    watch.end();

    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0), "{}", server.log());
    assert_eq!(containers(daemon, &server, ""), Vec::<String>::new(), "containers left after the stop");

    let mut server = fixture.start_in(server.leave());
    exec(&server, "four", "echo four > output/four");
    wait_for(daemon, &server, 2);
    server.signal(Signal::KILL);
    server.ended();
    let server = fixture.start_in(server.leave());
    wait_until("the containers of the killed server are removed", || containers(daemon, &server, "").is_empty());
}
