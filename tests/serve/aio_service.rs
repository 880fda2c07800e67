//! Code of one workspace on an external AIO service: recorded, limited and cancelled like every exec, not
//! available to other workspaces, and without a fallback to another backend. The service is a stand-in
//! that runs code in boxes.

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::aio_stand_in::{AioStandIn, KEY};

use crate::server::{Server, command};

fn server(stand_in: &AioStandIn) -> Server {
    server_under(stand_in, &[])
}

fn server_under(stand_in: &AioStandIn, more: &[(&str, &str)]) -> Server {
    let environment = stand_in.environment("default", "default");
    let environment = environment.iter().map(|(name, value)| (*name, value.as_str()));
    let environment: Vec<(&str, &str)> = environment.chain(more.iter().copied()).collect();
    Server::start_under(TempDir::with_prefix("rw-serve-").unwrap(), &[], &environment)
}

fn code(language: &str, code: &str) -> Value {
    json!({ "session_id": "s1", "backend": "aio", "language": language, "code": code })
}

fn run(server: &Server, body: &Value) -> Value {
    server.ask("POST", "/api/run", Some(body)).expect(200)
}

/// The requests that the service received on this route.
fn requests_to(stand_in: &AioStandIn, path: &str) -> Vec<Value> {
    let mut requests = stand_in.requests();
    requests.retain(|request| request["path"] == path);
    requests
}

#[test]
fn code_runs_on_the_service_and_is_recorded() {
    let stand_in = AioStandIn::start();
    let server = server(&stand_in);
    let mut body = code("python", "print(open('data/in.txt').read(), end='')\nopen('new.txt', 'w').write('x')");
    body["files"] = json!([{ "path": "./data//in.txt", "content": "it's ü\n" }]);
    let result = run(&server, &body);
    assert_eq!(
        (&result["success"], &result["stdout"], &result["exit_code"]),
        (&json!(true), &json!("it's ü\n"), &json!(0)),
        "{result}"
    );
    assert_eq!((&result["sandbox_type"], &result["files_created"]), (&json!("aio"), &json!(["new.txt"])));
    assert_eq!(std::fs::read(stand_in.directory().join("ringwall/s1/new.txt")).unwrap(), b"x");
    let exec = server.exec(result["exec_id"].as_str().unwrap());
    assert_eq!((&exec["status"], &exec["backend"]), (&json!("SUCCEEDED"), &json!("aio")), "{exec}");
    let protections = exec["protections"].as_array().unwrap();
    assert!(protections.iter().all(|one| one["state"] == "not_available"), "{exec}");
    assert!(protections[0]["why"].as_str().unwrap().contains("AIO service"), "{exec}");

    // The exit code is passed on, files stay in the session, and code may be longer than one argument.
    let failed = run(&server, &code("shell", "cat new.txt; echo bad >&2; exit 3"));
    assert_eq!((&failed["success"], &failed["exit_code"], &failed["stdout"]), (&json!(false), &json!(3), &json!("x")));
    assert_eq!(failed["stderr"], "bad\n");
    let long = format!("text = '{}'\nprint(len(text))", "'x".repeat(100_000).replace('\'', "\\'"));
    assert_eq!(run(&server, &code("python", &long))["stdout"], "200000\n");
    let timed_out = {
        let mut timed_out = code("python", "while True: pass");
        timed_out["timeout"] = json!(1);
        run(&server, &timed_out)
    };
    assert_eq!((&timed_out["success"], &timed_out["exit_code"]), (&json!(false), &json!(-1)), "{timed_out}");
    assert_eq!(server.exec(timed_out["exec_id"].as_str().unwrap())["status"], "TIMEOUT");

    let health = server.ask("GET", "/sandbox/health", None).expect(200);
    assert_eq!(health["aio_service"], json!({ "available": true, "why": null }));
    let settings = server.ask("GET", "/settings", None);
    for text in [String::from_utf8_lossy(&settings.bytes).into_owned(), server.log(), exec.to_string()] {
        assert!(!text.contains(KEY), "{text}");
    }
    let refused = server.ask("PUT", "/settings", Some(&json!({ "aio": { "url": "http://127.0.0.1:1" } })));
    assert_eq!(refused.status, 409);
}

#[test]
fn service_is_used_by_its_workspace_only_and_has_no_fallback() {
    let stand_in = AioStandIn::start();
    let server = server(&stand_in);
    for (name, value) in [("agent_id", "other"), ("user_id", "other")] {
        let mut body = code("python", "print(1)");
        body[name] = json!(value);
        server.ask("POST", "/api/run", Some(&body));
    }
    let native = run(&server, &json!({ "session_id": "s1", "language": "python", "code": "print(2)" }));
    assert_eq!(native["sandbox_type"], "native");
    assert_eq!(stand_in.requests().len(), 0, "code of another workspace reached the service");

    for (path, kind) in [
        ("/v1/sandbox", "401"),
        ("/v1/sandbox", "redirect"),
        ("/v1/bash/sessions/create", "reset"),
        ("/v1/bash/exec", "500"),
        ("/v1/file/list", "not_json"),
    ] {
        stand_in.spoil(&json!({ "path": path, "kind": kind }));
        let answer = server.ask("POST", "/api/run", Some(&code("python", "print(3)")));
        assert_eq!(answer.status, 503, "{kind}: {answer:?}");
        assert!(String::from_utf8_lossy(&answer.bytes).contains("AIO service"), "{answer:?}");
    }
    assert!(
        requests_to(&stand_in, "/v1/bash/exec").iter().all(|exec| !exec["body"].as_str().unwrap().contains("print"))
    );
}

#[test]
fn service_does_not_satisfy_strict_backends() {
    let stand_in = AioStandIn::start();
    let server = server_under(&stand_in, &[("RINGWALL_STRICT_BACKENDS", "gvisor,docker")]);
    let answer = server.ask("POST", "/api/run", Some(&code("python", "import os")));
    // 403 if gVisor or docker is available, because aio is weaker; otherwise 503.
    assert!([403, 503].contains(&answer.status), "{answer:?}");
    assert_eq!(stand_in.requests().len(), 0, "risky code reached the service");
    assert_eq!(run(&server, &code("python", "print(1)"))["sandbox_type"], "aio", "safe code needs no strict backend");
}

#[test]
fn cancelling_kills_the_command_on_the_service() {
    let stand_in = AioStandIn::start();
    let server = server(&stand_in);
    let mut body = code("shell", "echo ready; sleep 600");
    body["wait"] = json!(false);
    let begun = server.ask("POST", "/api/run", Some(&body)).expect(202);
    let id = begun["exec_id"].as_str().unwrap();
    server.wait_for_output(id);
    server.ask("DELETE", &format!("/sandbox/execs/{id}"), None);
    let authorization = format!("Bearer {}", server.token);
    let mut events =
        server.send("GET", &format!("/sandbox/execs/{id}/events"), &[("authorization", &authorization)], None);
    // The stream of events ends with the exec.
    events.body_mut().read_to_string().unwrap();
    assert_eq!(server.exec(id)["status"], "CANCELLED");
    assert_eq!(requests_to(&stand_in, "/v1/bash/kill").len(), 1);
    assert_eq!(requests_to(&stand_in, &format!("/v1/bash/sessions/ringwall-{id}/close")).len(), 1);
}

#[test]
fn endless_output_is_stopped() {
    let stand_in = AioStandIn::start();
    let server = server(&stand_in);
    stand_in.spoil(&json!({ "path": "/v1/bash/output", "kind": "huge", "after": 1 }));
    let result = run(&server, &code("shell", "echo first; sleep 600"));
    assert_eq!((&result["success"], &result["stdout"]), (&json!(false), &json!("first\n")), "{result}");
    assert!(result["error"].as_str().unwrap().contains("more than 16 MiB"), "{result}");
    assert_eq!(requests_to(&stand_in, "/v1/bash/kill").len(), 1);
}

#[test]
fn incomplete_service_is_refused_and_doctor_checks_the_service() {
    let stand_in = AioStandIn::start();
    let data = TempDir::with_prefix("rw-serve-").unwrap();
    let serve = |environment: &[(&str, &str)]| {
        let mut command = command(data.path());
        let output =
            command.args(["serve", "--listen", "127.0.0.1:0"]).envs(environment.iter().copied()).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let half = serve(&[("RINGWALL_AIO_URL", &stand_in.url), ("RINGWALL_AIO_KEY", KEY)]);
    assert!(half.contains("missing: aio.user, aio.agent") && !half.contains(KEY), "{half}");
    assert!(serve(&[("RINGWALL_AIO_URL", "ftp://127.0.0.1")]).contains("http:// or https://"));

    let doctor = |key: &str| {
        let text = format!("[aio]\nurl = '{}'\nkey = '{key}'\nuser = 'u'\nagent = 'a'\n", stand_in.url);
        std::fs::write(data.path().join("ringwall.toml"), text).unwrap();
        let output = command(data.path()).args(["doctor", "--json"]).output().unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mut rows = report.as_object().unwrap().values().filter_map(Value::as_array).flatten();
        rows.find(|row| row["name"] == "aio_service").cloned().unwrap_or(report)
    };
    assert_eq!(doctor(KEY)["state"], "ok");
    let refused = doctor("guessed");
    assert_eq!(refused["state"], "missing");
    assert!(refused["detail"].as_str().unwrap().contains("does not accept our key"), "{refused}");
}
