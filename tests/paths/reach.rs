//! The host paths in a session's box while path control is on.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::fs::{AtFlags, CWD, Gid, Uid};
use serde_json::json;
use tests::support::actor::Mode;
use tests::support::scratch::give;

use crate::fixture::{Fixture, TestServer, encode, link, open_to_all, scratch};

pub(crate) fn box_contains_allowed_paths_only(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let (mine, other) = (fixture.directory("mine"), fixture.directory("other"));
    fixture.directory("mine/below");
    fixture.file("mine/below/a", "within");
    fixture.file("other/b", "without");
    open_to_all(&mine);
    fixture.allow(&mine);
    let mine = mine.display();
    assert_eq!(fixture.output(&format!("cat {mine}/below/a")), "within");
    assert_eq!(fixture.output(&format!("cd {mine} && cat below/a > copy && cat copy")), "within");
    assert_eq!(fs::read_to_string(fixture.host.join("mine/copy")).unwrap(), "within", "the host's file was written");
    // Of the parent directories only the path to the allowed one exists.
    let around = fixture.output(&format!("cd {mine}; cd $(echo ..); echo *; cd $(echo ..); echo *"));
    let host = fixture.host.path().file_name().unwrap().to_str().unwrap();
    assert_eq!(around, format!("mine\n{host}\n"));
    let (_, question) = fixture.ask(&format!("cat {}/b", other.display()));
    assert_eq!(question["blocked_paths"], json!([format!("{}/b", other.display())]));
    // The record and the exec's report list what the box could access.
    let told = fixture.run(&format!("cat {mine}/below/a"));
    let exec = fixture.server.exec(told["exec_id"].as_str().unwrap());
    let paths = json!([{ "path": mine.to_string(), "acts_as": "owner", "by": "list" }]);
    assert_eq!((&exec["policy_snapshot"]["path_control"], &exec["policy_snapshot"]["paths"]), (&json!("on"), &paths));
    assert!(
        mounts(&fixture, &exec)
            .contains(&json!({ "source": mine.to_string(), "target": mine.to_string(), "mode": "rw" }))
    );
}

/// The mounts in an exec's `meta.json`.
pub(crate) fn mounts(fixture: &Fixture, exec: &serde_json::Value) -> Vec<serde_json::Value> {
    let place = fixture.server.data().join("workspaces/default/default").join(exec["artifacts_path"].as_str().unwrap());
    let meta: serde_json::Value = serde_json::from_slice(&fs::read(place.join("meta.json")).unwrap()).unwrap();
    meta["docker_mounts"].as_array().unwrap().clone()
}

/// A key agent or daemon may listen in a host directory; connecting would mean acting as its user.
pub(crate) fn socket_below_allowed_path_is_unreachable(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let place = fixture.directory("place");
    let socket = place.join("agent.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    give(&socket, test_server.mode.identity()).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    // Controls: the socket works on the host, and a box without host paths can use its own sockets.
    UnixStream::connect(&socket).unwrap();
    listener.accept().unwrap();
    let among = "a = socket.socket(1); a.bind('/tmp/x'); a.listen(); socket.socket(1).connect('/tmp/x'); print(1)";
    assert_eq!(fixture.output(&format!("python3 -c \"import socket; {among}\"")), "1\n");
    fixture.allow(&place);
    for (directory, name) in [("/", socket.display().to_string()), (place.to_str().unwrap(), "agent.sock".to_owned())] {
        let connect = format!("python3 -c \"import socket; socket.socket(1).connect('{name}')\"");
        let told =
            fixture.run(&format!("ls {}; cd {directory}; {connect}", place.display()).replace("cd /;", "cd /tmp;"));
        assert!(told["stdout"] == "agent.sock\n" && told["status"] != "SUCCEEDED", "{told}");
        assert!(told["stderr"].as_str().unwrap().contains("PermissionError"), "{told}");
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    let own =
        "import socket, asyncio, multiprocessing as m; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))";
    assert_eq!(fixture.output(&format!("python3 -c \"{own}; asyncio.run(asyncio.sleep(0)); m.Pipe()\"")), "b'x'\n");
}

pub(crate) fn disabled_entry_allows_nothing(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let docs = fixture.directory("docs");
    fixture.file("docs/a", "x");
    fixture.allow(&docs);
    let path = format!("/api/sandbox/paths/{}", encode(docs.to_str().unwrap()));
    fixture.output(&format!("cat {}/a", docs.display()));
    fixture.server.ask("PATCH", &path, Some(&json!({ "enabled": false }))).expect(200);
    fixture.ask(&format!("cat {}/a", docs.display()));
    let hidden = fixture.run(&format!("p={}; eval \"c\"\"at\" \"$(printf %s/a $p)\"", docs.display()));
    assert_ne!(hidden["status"], "SUCCEEDED", "{hidden}");
    fixture.server.ask("PATCH", &path, Some(&json!({ "enabled": true }))).expect(200);
    fixture.output(&format!("cat {}/a", docs.display()));
}

pub(crate) fn single_file_can_be_allowed(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let file = fixture.file("one", "first\n");
    fixture.file("two", "second");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    fixture.allow(&file);
    assert_eq!(fixture.output(&format!("cat {0}; echo more >> {0}", file.display())), "first\n");
    assert_eq!(fs::read_to_string(&file).unwrap(), "first\nmore\n");
    assert_eq!(
        fixture.output(&format!("cd {}; echo *", fixture.host.path().display()).replace("cd /", "cd $(echo /)")),
        "one\n"
    );
}

pub(crate) fn session_files_persist_and_are_private_to_agent(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let run = |session: &str, agent: &str, command: &str| {
        let body = json!({ "session_id": session, "agent_id": agent, "command": command });
        let told = fixture.execute(&fixture.server.token, &body).expect(200);
        assert_eq!(told["status"], "SUCCEEDED", "{told}");
        told["stdout"].as_str().unwrap().to_owned()
    };
    run("one", "a", "echo kept > note; mkdir deep; pwd");
    assert_eq!(run("one", "a", "cat note; cd deep; pwd"), "kept\n/workspace/deep\n");
    assert_eq!(run("two", "a", "ls"), "");
    assert_eq!(run("one", "b", "ls"), "", "sessions of two agents with one name are separate");
    let work = fixture.server.data().join("workspaces/default/a/sessions/one");
    assert!(work.join(".used").exists() && work.join("work/note").exists());
    assert_eq!(run("one", "a", "ls -a"), ".\n..\ndeep\nnote\n", "the marker `.used` is not in the box");
}

pub(crate) fn working_directory_must_be_allowed(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let docs = fixture.directory("docs");
    fixture.allow(&docs);
    let run = |cwd: &str| {
        let body = json!({ "session_id": "s", "command": "pwd", "cwd": cwd, "wait": false });
        let begun = fixture.execute(&fixture.server.token, &body).expect(202);
        match begun["status"] == "AWAITING_APPROVAL" {
            true => "asks".to_owned(),
            false => fixture.ended(begun["exec_id"].as_str().unwrap())["stdout"].as_str().unwrap().to_owned(),
        }
    };
    fixture.output("mkdir sub");
    assert_eq!(run("sub"), "/workspace/sub\n");
    assert_eq!(run("/tmp"), "/tmp\n");
    assert_eq!(run(docs.to_str().unwrap()), format!("{}\n", docs.display()));
    assert_eq!(run(fixture.host.path().to_str().unwrap()), "asks");
    assert_eq!(run("../etc"), "asks");
    let missing = json!({ "session_id": "s", "command": "pwd", "cwd": "nowhere" });
    let told = fixture.execute(&fixture.server.token, &missing).expect(200);
    assert_eq!((&told["status"], &told["error_reason"]["code"]), (&json!("FAILED"), &json!("INVALID_ARGUMENT")));
}

pub(crate) fn allowed_path_in_tmp_is_the_hosts(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let scratch = tests::support::scratch::Scratch::new(test_server.mode.identity()).unwrap();
    let file = scratch.file("a", b"of the host", 0o644).unwrap();
    let command = format!("cat {}", file.display());
    assert_ne!(fixture.run(&command)["status"], "SUCCEEDED", "a box has its own /tmp");
    fixture.allow(scratch.path());
    assert_eq!(fixture.output(&command), "of the host");
    assert_eq!(fixture.output("echo x > /tmp/own; cat /tmp/own"), "x\n", "the rest of /tmp is the box's");
}

pub(crate) fn system_directory_can_be_allowed(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    fixture.allow("/usr/local/share");
    fixture.allow("/etc");
    assert_eq!(fixture.output("cat /etc/hostname"), fs::read_to_string("/etc/hostname").unwrap(), "the host's own");
    fixture.output("test -d /usr/local/share && ls /usr/bin/env");
    let written = fixture.run("echo x > /etc/ringwall-test");
    if test_server.mode == Mode::Root {
        assert_ne!(written["status"], "SUCCEEDED", "the box must not write files of root");
    }
    assert!(!std::path::Path::new("/etc/ringwall-test").exists());
}

pub(crate) fn allowed_proc_sys_dev_and_run_stay_the_boxs_own(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    for path in ["/proc", "/sys", "/dev", "/run", "/"] {
        assert!(!fixture.allow(path)["warnings"].as_array().unwrap().is_empty(), "{path}");
    }
    let seen = fixture
        .output("echo $$; ls /proc | grep -c '^[0-9]'; test -e /sys/kernel || echo none; ls /dev; ls /run; true");
    let count: u32 = seen.lines().nth(1).unwrap().parse().unwrap();
    assert!(count < 10, "the host's processes: {seen}");
    assert!(seen.contains("none") && !seen.contains("sda") && !seen.contains("kmsg"), "{seen}");
}

pub(crate) fn allowed_parent_of_data_directory_hides_data(test_server: &TestServer) {
    let host = scratch(test_server);
    let data = tempfile::Builder::new().prefix("data-").tempdir_in(host.path()).unwrap();
    let fixture = Fixture::start_in(test_server, data, host);
    fixture.switch(true);
    let data = fixture.server.data().to_owned();
    fixture.file("beside", "seen");
    fixture.allow(fixture.host.path());
    let name = fixture.host.join("name");
    link(fixture.host.path(), &name);
    fixture.allow(&name);
    for top in [fixture.host.path(), &name] {
        assert_eq!(fixture.output(&format!("cat {}/beside", top.display())), "seen");
        let inside = top.join(data.file_name().unwrap());
        // The parser cannot see this path, so only the box protects it.
        let look = format!(
            "d=$(echo {}); ls -A $d/$(echo {}) 2>/dev/null | wc -l",
            top.display(),
            inside.file_name().unwrap().to_str().unwrap()
        );
        assert_eq!(fixture.output(&look).trim(), "0", "{}", inside.display());
    }
    let refused = fixture
        .execute(&fixture.server.token, &json!({ "session_id": "s", "command": format!("ls {}", data.display()) }));
    assert!(refused.expect(403)["error"].as_str().unwrap().contains("the server's own data"));
}

/// Only root can act as another user, so the test needs root.
pub(crate) fn box_acts_as_file_owner_for_operators_entry_only(test_server: &TestServer) {
    if test_server.mode != Mode::Root {
        return;
    }
    const PERSON: u32 = 1234;
    let fixture = Fixture::new(test_server);
    let home = fixture.directory("home");
    let file = fixture.file("home/private", "personal");
    for (path, mode) in [(&home, 0o700), (&file, 0o600)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let (uid, gid) = (Uid::from_raw(PERSON), Gid::from_raw(PERSON));
        rustix::fs::chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    let command = format!("cat {0}/private; echo new > {0}/made; stat -c %u {0}/private", home.display());
    let user = fixture.server.make_token(&["--role", "user", "--user", "ann"]);
    let (exec, question) = fixture.ask_as(&user, "s", &command);
    fixture.answer(&user, &question, &json!({ "approved": true, "remember": true })).expect(200);
    let own = fixture.ended(&exec);
    assert!(!own["stdout"].as_str().unwrap().contains("personal"), "a user's answer gave another user's rights: {own}");
    fixture.allow(&home);
    let told = fixture.execute(&user, &json!({ "session_id": "s", "command": command })).expect(200);
    assert_eq!(told["stdout"], "personal1000\n", "{told}");
    let made = fs::metadata(home.join("made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (PERSON, PERSON), "new files belong to the owner of the directory");
}

pub(crate) fn execute_applies_limits_and_rejects_malformed_requests(test_server: &TestServer) {
    let fixture = Fixture::new(test_server);
    let ask = |body: serde_json::Value| fixture.execute(&fixture.server.token, &body);
    let slow = ask(json!({ "session_id": "s", "command": "sleep 60", "timeout_ms": 100 })).expect(200);
    assert_eq!((&slow["status"], &slow["exit_code"]), (&json!("TIMEOUT"), &json!(null)));
    let failed = ask(json!({ "session_id": "s", "command": "echo out; echo err >&2; exit 3" })).expect(200);
    assert_eq!((&failed["status"], &failed["exit_code"]), (&json!("FAILED"), &json!(3)));
    assert_eq!((&failed["stdout"], &failed["stderr"]), (&json!("out\n"), &json!("err\n")));
    // Longer than one argument may be. The record and the question contain it completely.
    let padding = "x".repeat(200_000);
    let long =
        ask(json!({ "session_id": "s", "command": format!("echo begun; cat; : {padding}; exit 5") })).expect(200);
    assert_eq!((&long["stdout"], &long["exit_code"]), (&json!("begun\n"), &json!(5)), "{}", long["status"]);
    let recorded = fixture.server.exec(long["exec_id"].as_str().unwrap());
    assert!(recorded["args"][1].as_str().unwrap().ends_with("exit 5"));
    let asking = format!("cat {}/file # {padding}", fixture.host.path().display());
    let (exec, question) = fixture.ask(&asking);
    assert_eq!(question["command"], asking);
    fixture.cancel(&exec);
    assert_eq!(ask(json!({ "session_id": "s", "command": format!(": {}", "x".repeat(300_000)) })).status, 400);
    for (body, status) in [
        (json!({ "session_id": "s" }), 400),
        (json!({ "command": "ls" }), 400),
        (json!({ "session_id": "..", "command": "ls" }), 400),
        (json!({ "session_id": "a/b", "command": "ls" }), 400),
        (json!({ "session_id": "s", "command": " " }), 400),
        (json!({ "session_id": "s", "command": "if" }), 400),
        (json!({ "session_id": "s", "command": "ls", "timeout_ms": 0 }), 400),
        (json!({ "session_id": "s", "command": "ls", "timeout_ms": 999_999_999 }), 403),
        (json!({ "session_id": "s", "command": "ls", "cwd": "C:\\x" }), 400),
        (json!({ "session_id": "s", "command": "ls", "user_id": "../x" }), 400),
    ] {
        let text = body.to_string();
        assert!(ask(body).expect(status)["error"].is_string(), "{text}");
    }
}

/// `/var` is shown entry by entry, because a box has a `/var/tmp` of its own.
pub(crate) fn whole_host_keeps_links_of_var(test_server: &TestServer) {
    let target = fs::read_link("/var/run").unwrap_or_else(|error| panic!("/var/run is not a symbolic link: {error}"));
    let fixture = Fixture::new(test_server);
    // Control: without the entry the box has neither.
    let command = "readlink /var/run; ls -d /var/lib";
    let told = fixture.run("readlink $(echo /var/run)");
    assert_ne!(told["status"], "SUCCEEDED", "{told}");
    fixture.allow("/");
    assert_eq!(fixture.output(command), format!("{}\n/var/lib\n", target.display()));
}
