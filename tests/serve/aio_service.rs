//! Code of one workspace on an external AIO service: recorded, limited and cancelled like every exec, for nobody else, and with
//! no other backend standing in. The service is a stand-in that executes in boxes.

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

/// What the service was asked on this route.
fn asked(stand_in: &AioStandIn, path: &str) -> Vec<Value> {
    let mut requests = stand_in.requests();
    requests.retain(|request| request["path"] == path);
    requests
}

#[test]
fn code_runs_there_and_is_on_record_here() {
    let stand_in = AioStandIn::start();
    let server = server(&stand_in);
    let mut body = code("python", "print(open('data/in.txt').read(), end='')\nopen('new.txt', 'w').write('x')");
    body["files"] = json!([{ "path": "./data//in.txt", "content": "it's ü\n" }]);
    let ran = run(&server, &body);
    assert_eq!(
        (&ran["success"], &ran["stdout"], &ran["exit_code"]),
        (&json!(true), &json!("it's ü\n"), &json!(0)),
        "{ran}"
    );
    assert_eq!((&ran["sandbox_type"], &ran["files_created"]), (&json!("aio"), &json!(["new.txt"])));
    assert_eq!(std::fs::read(stand_in.directory().join("ringwall/s1/new.txt")).unwrap(), b"x");
    let exec = server.exec(ran["exec_id"].as_str().unwrap());
    assert_eq!((&exec["status"], &exec["backend"]), (&json!("SUCCEEDED"), &json!("aio")), "{exec}");
    let protections = exec["protections"].as_array().unwrap();
    assert!(protections.iter().all(|one| one["state"] == "not_available"), "{exec}");
    assert!(protections[0]["why"].as_str().unwrap().contains("AIO service"), "{exec}");

    // What failed there failed here, the next one finds the first one's files, and code that is too long for a word runs.
    let failed = run(&server, &code("shell", "cat new.txt; echo bad >&2; exit 3"));
    assert_eq!((&failed["success"], &failed["exit_code"], &failed["stdout"]), (&json!(false), &json!(3), &json!("x")));
    assert_eq!(failed["stderr"], "bad\n");
    let long = format!("text = '{}'\nprint(len(text))", "'x".repeat(100_000).replace('\'', "\\'"));
    assert_eq!(run(&server, &code("python", &long))["stdout"], "200000\n");
    let late = {
        let mut late = code("python", "while True: pass");
        late["timeout"] = json!(1);
        run(&server, &late)
    };
    assert_eq!((&late["success"], &late["exit_code"]), (&json!(false), &json!(-1)), "{late}");
    assert_eq!(server.exec(late["exec_id"].as_str().unwrap())["status"], "TIMEOUT");

    let health = server.ask("GET", "/sandbox/health", None).expect(200);
    assert_eq!(health["aio_service"], json!({ "available": true, "why": null }));
    let settings = server.ask("GET", "/settings", None);
    for told in [String::from_utf8_lossy(&settings.bytes).into_owned(), server.log(), exec.to_string()] {
        assert!(!told.contains(KEY), "{told}");
    }
    let refused = server.ask("PUT", "/settings", Some(&json!({ "aio": { "url": "http://127.0.0.1:1" } })));
    assert_eq!(refused.status, 409);
}

#[test]
fn only_its_own_workspace_gets_there_and_nothing_stands_in() {
    let stand_in = AioStandIn::start();
    let server = server(&stand_in);
    for (name, value) in [("agent_id", "other"), ("user_id", "other")] {
        let mut body = code("python", "print(1)");
        body[name] = json!(value);
        server.ask("POST", "/api/run", Some(&body));
    }
    let native = run(&server, &json!({ "session_id": "s1", "language": "python", "code": "print(2)" }));
    assert_eq!(native["sandbox_type"], "native");
    assert_eq!(stand_in.requests().len(), 0, "somebody else's code got there");

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
    assert!(asked(&stand_in, "/v1/bash/exec").iter().all(|exec| !exec["body"].as_str().unwrap().contains("print")));
}

#[test]
fn a_service_is_nothing_stronger_than_a_box_of_ours() {
    let stand_in = AioStandIn::start();
    let server = server_under(&stand_in, &[("RINGWALL_STRICT_BACKENDS", "gvisor,docker")]);
    let answer = server.ask("POST", "/api/run", Some(&code("python", "import os")));
    // Refused as too weak where gVisor or docker is there, and otherwise because neither is.
    assert!([403, 503].contains(&answer.status), "{answer:?}");
    assert_eq!(stand_in.requests().len(), 0, "what the strict mode demands was not held");
    assert_eq!(run(&server, &code("python", "print(1)"))["sandbox_type"], "aio", "safe code demands nothing");
}

#[test]
fn whoever_cancels_ends_it_there() {
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
    assert_eq!(asked(&stand_in, "/v1/bash/kill").len(), 1);
    assert_eq!(asked(&stand_in, &format!("/v1/bash/sessions/ringwall-{id}/close")).len(), 1);
}

#[test]
fn what_prints_without_end_is_ended() {
    let stand_in = AioStandIn::start();
    let server = server(&stand_in);
    stand_in.spoil(&json!({ "path": "/v1/bash/output", "kind": "huge", "after": 1 }));
    let ran = run(&server, &code("shell", "echo first; sleep 600"));
    assert_eq!((&ran["success"], &ran["stdout"]), (&json!(false), &json!("first\n")), "{ran}");
    assert!(ran["error"].as_str().unwrap().contains("more than 16 MiB"), "{ran}");
    assert_eq!(asked(&stand_in, "/v1/bash/kill").len(), 1);
}

#[test]
fn half_a_service_is_none_and_doctor_says_whether_it_answers() {
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
