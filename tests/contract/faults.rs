//! Docker is missing, hangs or ends: 503 within 10 s, and no silent change to another backend.

use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::docker_daemon::{Daemon, wait_until};
use tests::support::docker_image::{LITTLE, launch};
use tests::support::pool_watch::{PoolWatch, pool};
use tests::support::server::{Answer, Server, command};
use tests::support::wait::wait_for;

use crate::fixture::start_on;

/// The time limit from the contract.
const BOUND: Duration = Duration::from_secs(10);

/// Checks that the answer came in time and that it and the exec say BACKEND_UNAVAILABLE.
fn unavailable(server: &Server, answer: Answer, since: Instant) {
    let took = since.elapsed();
    assert!(took < BOUND, "{took:?}");
    let detail = answer.expect(503)["detail"].clone();
    assert_eq!(detail["code"], "BACKEND_UNAVAILABLE", "{detail}");
    let view = server.exec(detail["exec_id"].as_str().unwrap());
    assert_eq!(
        (&view["status"], &view["backend"], &view["error_reason"]["code"]),
        (&json!("FAILED"), &json!("docker"), &json!("BACKEND_UNAVAILABLE")),
        "{view}"
    );
}

fn submit(server: &Server, script: &str) -> Answer {
    server.ask("POST", "/sandbox/execs", Some(&server.request(script)))
}

/// Checks that the native backend still works.
fn works_natively(server: &Server) {
    let mut body = server.request("echo native");
    body["backend"] = "native".into();
    assert_eq!(server.stdout(&server.run(&body)), "native\n");
}

fn health(server: &Server) -> Value {
    let began = Instant::now();
    let health = server.ask("GET", "/sandbox/health?probe=1", None).expect(200);
    // It probes all backends, each up to the limit.
    assert!(began.elapsed() < 2 * BOUND, "{:?}", began.elapsed());
    health
}

pub(crate) fn missing_client_is_reported() {
    let server = Server::start_with(&["--docker-cli-path", "/nonexistent/docker"]).on(Some("docker"));
    let began = Instant::now();
    unavailable(&server, submit(&server, "true"), began);
    let mut body = server.request("true");
    body["backend"] = "moon".into();
    assert_eq!(server.ask("POST", "/sandbox/execs", Some(&body)).refused(400), "INVALID_ARGUMENT");
    let health = health(&server);
    assert_eq!(health["backends"]["docker"]["available"], false, "{health}");
    assert!(health["backends"]["docker"]["why"].as_str().is_some_and(|why| !why.is_empty()), "{health}");
    works_natively(&server);
}

/// `ringwall image build-docker` runs the docker client that a server with the same start-up
/// configuration runs.
pub(crate) fn configured_client_builds_image() {
    let data = TempDir::with_prefix("rw-serve-").unwrap();
    let client = |name: &str| {
        let path = data.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\necho 'asked {name}' >&2\nexit 1\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (filed, set, flagged) = (client("filed"), client("set"), client("flagged"));
    let build = |flags: &[&str], environment: &[(&str, &str)]| {
        let mut build = command(data.path());
        build.args(["image", "build-docker"]).args(flags).envs(environment.iter().copied());
        let built = build.output().unwrap();
        assert!(!built.status.success());
        String::from_utf8(built.stderr).unwrap()
    };
    std::fs::write(data.path().join("ringwall.toml"), format!("[docker]\ncli_path = '{filed}'\n")).unwrap();
    assert!(build(&[], &[]).contains("asked filed"));
    let environment = [("RINGWALL_SANDBOX_DOCKER_CLI_PATH", set.as_str())];
    assert!(build(&[], &environment).contains("asked set"));
    assert!(build(&["--docker-cli-path", &flagged], &environment).contains("asked flagged"));
    assert!(!data.path().join("db.sqlite").exists(), "the verb needs no record");
}

pub(crate) fn missing_daemon_is_reported() {
    let data = TempDir::with_prefix("rw-serve-").unwrap();
    let client = data.path().join("docker");
    std::fs::write(&client, "#!/bin/sh\nexec docker --host unix:///nonexistent/docker.sock \"$@\"\n").unwrap();
    std::fs::set_permissions(&client, std::fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_in(data, &["--docker-cli-path", client.to_str().unwrap()]).on(Some("docker"));
    let began = Instant::now();
    unavailable(&server, submit(&server, "true"), began);
    let health = health(&server);
    assert_eq!(health["backends"]["docker"]["available"], false, "{health}");
    assert!(health["docker_cli_path"].is_string() && health["docker_version"].is_null(), "{health}");
    works_natively(&server);
}

pub(crate) fn hanging_daemon_is_reported() {
    let daemon = launch(&[], LITTLE);
    let server = start_on(&daemon, TempDir::with_prefix("rw-serve-").unwrap(), "docker");
    while_exec_runs(&server, || {
        daemon.signal(Signal::STOP);
        let hung = Instant::now();
        thread::scope(|scope| {
            let starting = scope.spawn(|| unavailable(&server, submit(&server, "true"), hung));
            works_natively(&server);
            starting.join().unwrap();
        });
        hung
    });
    assert_eq!(health(&server)["backends"]["docker"]["available"], false);
    daemon.signal(Signal::CONT);
    works_again(&daemon, &server);
}

pub(crate) fn stopped_daemon_is_reported() {
    let daemon = launch(&[], LITTLE);
    let server = start_on(&daemon, TempDir::with_prefix("rw-serve-").unwrap(), "docker");
    while_exec_runs(&server, || {
        daemon.signal(Signal::TERM);
        Instant::now()
    });
    let began = Instant::now();
    unavailable(&server, submit(&server, "true"), began);
    daemon.replace();
    works_again(&daemon, &server);
}

/// A session box ends with the daemon. Without the daemon every new exec of a session fails, and
/// native boxes still work.
pub(crate) fn killed_daemon_fails_session_execs() {
    let daemon = launch(&[], LITTLE);
    let server = start_on(&daemon, TempDir::with_prefix("rw-serve-").unwrap(), "docker");
    // Without warm boxes, which would be counted too.
    let settings = json!({ "strict": { "backends": ["docker"] }, "sessions": { "confirmation": "auto-approve" },
        "pool": { "min_instances": 0 } });
    server.ask("PUT", "/settings", Some(&settings)).expect(200);
    let exec = |session: &str, command: &str| {
        let path = format!("/api/sessions/{session}/exec");
        server.ask("POST", &path, Some(&json!({ "command": command })))
    };
    let watch = PoolWatch::begin(&server);
    assert_eq!(exec("s", "echo up").expect(200)["stdout"], "up\n");
    wait_until("its box is idle", || pool(&server)["idle"] == 1);
    assert_eq!(daemon.containers().len(), 1);
    let killed = thread::scope(|scope| {
        let running = scope.spawn(|| exec("s", "echo begun; sleep 600"));
        wait_until("it runs", || pool(&server)["busy"] == 1);
        daemon.signal(Signal::KILL);
        let killed = Instant::now();
        let answer = running.join().unwrap();
        assert!(killed.elapsed() < BOUND, "{:?}", killed.elapsed());
        assert_docker_error(answer);
        killed
    });
    for attempt in 0..3 {
        assert_docker_error(exec(&format!("other-{attempt}"), "echo never"));
    }
    assert!(killed.elapsed() < 4 * BOUND);
    wait_until("the pool is empty", || pool(&server)["total"] == 0);
    let mut body = server.request("echo native");
    body["backend"] = "native".into();
    assert_eq!(server.stdout(&server.run(&body)), "native\n");
    daemon.replace();
    wait_until("a session has a box again", || exec("s", "true").status == 200);
    assert_eq!(exec("s", "echo again").expect(200)["stdout"], "again\n");
    watch.end();
    server.ask("DELETE", "/api/sessions/s", None).expect(200);
    for name in daemon.containers() {
        daemon.wait_until_gone(&name);
    }
}

/// Checks that the answer is a failure with an error that mentions Docker or the box.
fn assert_docker_error(answer: Answer) {
    let body = answer.json();
    let reason = match answer.status {
        200 => {
            assert_eq!(body["success"], false, "{body}");
            body["error"].as_str()
        }
        503 => body["error"]["message"].as_str(),
        other => panic!("{other}: {body}"),
    };
    assert!(reason.is_some_and(|reason| reason.contains("docker") || reason.contains("box")), "{body}");
}

/// Runs `act` while a client waits for an exec, and checks the client's answer. `act` returns the
/// time of the fault.
fn while_exec_runs(server: &Server, act: impl FnOnce() -> Instant) {
    thread::scope(|scope| {
        let waiting = scope.spawn(|| (submit(server, "echo begun; sleep 600"), Instant::now()));
        let id = wait_for("an exec that runs", || {
            let running = server.ask("GET", "/sandbox/execs?status=RUNNING", None).expect(200);
            running[0]["exec_id"].as_str().map(str::to_owned)
        });
        server.wait_for_output(&id);
        let acted = act();
        let (answer, answered) = waiting.join().unwrap();
        unavailable(server, answer, Instant::now() - answered.saturating_duration_since(acted));
    });
}

fn works_again(daemon: &Daemon, server: &Server) {
    let again = server.shell("echo again");
    assert_eq!(server.stdout(&again), "again\n");
    for name in daemon.containers() {
        daemon.wait_until_gone(&name);
    }
}
