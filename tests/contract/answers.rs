//! Requests and answers of execs.

use serde_json::{Value, json};
use tests::support::server::Server;

use crate::fixture::{Backend, Fixture};

pub(crate) fn exec_answers_with_its_outcome(fixture: &Fixture) {
    let server = fixture.start();
    let done = server.shell("echo out; echo err >&2");
    let id = done["exec_id"].as_str().unwrap();
    assert!(id.starts_with("e_") && id.len() >= 18, "{id}");
    let expected = json!({
        "exec_id": id, "status": "SUCCEEDED", "exit_code": 0, "artifacts_dir": format!("projects/p/artifacts/{id}"),
        "stdout_path": "stdout.txt", "stderr_path": "stderr.txt", "stdout_truncated": false, "stderr_truncated": false,
        "error_reason": null,
    });
    assert_eq!(done, expected);
    for (script, code) in [("exit 7", 7), ("kill -9 $$", 137), ("no-such-program", 127)] {
        let failed = server.shell(script);
        assert_eq!(
            (&failed["status"], &failed["exit_code"], &failed["error_reason"]),
            (&json!("FAILED"), &json!(code), &Value::Null),
            "{script}"
        );
    }
}

/// A request of kind `python` with these arguments.
fn python(server: &Server, args: &[&str]) -> Value {
    let mut body = server.request("");
    body["exec"] = json!({ "kind": "python", "command": "python", "args": args });
    body
}

pub(crate) fn python_runs_code_and_scripts(fixture: &Fixture) {
    let server = fixture.start();
    let done = server.run(&python(&server, &["-c", "import sys; print(6 * 7); sys.exit(3)"]));
    assert_eq!((&done["status"], &done["exit_code"]), (&json!("FAILED"), &json!(3)), "{done}");
    assert_eq!(server.stdout(&done), "42\n");
    let mut body = python(&server, &["-u", "/workspace/inputs/a/s.py"]);
    body["inputs"] = json!([{ "path": "a/s.py", "content": "print('from a file')\n" }]);
    let done = server.run(&body);
    assert_eq!((server.stdout(&done).as_str(), &done["status"]), ("from a file\n", &json!("SUCCEEDED")));
}

pub(crate) fn exec_view_shows_request_policy_and_protections(fixture: &Fixture) {
    let server = fixture.start();
    let mut body = server.request("test \"$SECRET\" = \"$(cat ../inputs/expected)\"");
    body["exec"]["env"] = json!({ "SECRET": "hunter2" });
    body["inputs"] = json!([{ "path": "expected", "content": "hunter2" }]);
    body["task_ref"] = json!({ "task_id": "t1", "conversation_id": "c1" });
    body["policy_overrides"] = json!({ "timeout_ms": 50_000 });
    let done = server.run(&body);
    assert_eq!(done["status"], "SUCCEEDED", "{done}");
    let view = server.exec(done["exec_id"].as_str().unwrap());
    let expected = json!({
        "env_keys": ["SECRET"], "task_id": "t1", "conversation_id": "c1", "cmd": "bash", "args": body["exec"]["args"],
        "project_id": "p", "skill_id": null, "backend": fixture.backend.name(), "status": "SUCCEEDED", "exit_code": 0,
        "stdout_truncated": false, "stderr_truncated": false, "error_reason": null,
        "artifacts_path": done["artifacts_dir"],
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&view[key], value, "{key}: {view}");
    }
    assert_eq!(view["policy_snapshot"]["limits"]["timeout_ms"], 50_000, "{view}");
    assert_eq!(view["policy_snapshot"]["layers"]["timeout_ms"], "request");
    assert_eq!(view["policy_snapshot"]["layers"]["memory_mb"], "system");
    assert_eq!(view["policy_snapshot"]["net"]["mode"], "none");
    for key in ["cwd", "usage", "duration_ms", "started_at", "ended_at"] {
        assert!(view.get(key).is_some(), "{key}: {view}");
    }
    let protections = view["protections"].as_array().unwrap();
    assert!(protections.len() > 3, "{view}");
    // Only containers have an image.
    match fixture.backend {
        Backend::Native | Backend::Gvisor => assert_eq!(view["image"], Value::Null),
        Backend::Docker => assert_eq!(view["image"], "ringwall/sandbox:latest"),
    }
    assert!(!view.to_string().contains("hunter2"), "{view}");
    assert!(!server.log().contains("hunter2") && !server.log().contains(&server.token), "a secret is in the log");
}

pub(crate) fn environment_is_that_of_the_request(fixture: &Fixture) {
    let server = fixture.start();
    let mut body = server.request("echo \"$WORD|$EMPTY|$QUOTED|$PATH\"; env | wc -l");
    body["exec"]["env"] =
        json!({ "WORD": " two  words ", "EMPTY": "", "QUOTED": "\"'$HOME`", "PATH": "/usr/bin:/bin" });
    let done = server.run(&body);
    let output = server.stdout(&done);
    assert!(output.starts_with(" two  words ||\"'$HOME`|/usr/bin:/bin\n"), "{output}");
    // The environment is not inherited: few variables beside the requested ones.
    assert!(output.lines().nth(1).unwrap().trim().parse::<u32>().unwrap() < 20, "{output}");
    let mut body = server.request("echo \"$LINES_OF_TEXT\"");
    body["exec"]["env"] = json!({ "LINES_OF_TEXT": "one\ntwo" });
    match fixture.backend {
        Backend::Native | Backend::Gvisor => assert_eq!(server.stdout(&server.run(&body)), "one\ntwo\n"),
        // Docker's env files cannot contain a value with a line break, so the request is refused.
        Backend::Docker => {
            let detail = server.ask("POST", "/sandbox/execs", Some(&body)).expect(400)["detail"].clone();
            assert_eq!(detail["code"], "INVALID_ARGUMENT", "{detail}");
            let message = detail["message"].as_str().unwrap();
            assert!(message.contains("LINES_OF_TEXT") && !message.contains("two"), "{message}");
        }
    }
}

pub(crate) fn working_directory_is_that_of_the_request(fixture: &Fixture) {
    let server = fixture.start();
    assert_eq!(
        server.stdout(&server.shell("pwd; mkdir -p a/b; ln -s a/b inner; ln -s / outer; touch file")),
        "/workspace/work\n"
    );
    let ask = |cwd: &str| {
        let mut body = server.request("pwd");
        body["exec"]["cwd"] = cwd.into();
        server.ask("POST", "/sandbox/execs", Some(&body))
    };
    for (cwd, expected) in [("work", ""), ("work/a/b", "/a/b"), ("inputs", "")] {
        let done = ask(cwd).expect(200);
        let expected = format!("/workspace/{}{expected}\n", cwd.split('/').next().unwrap());
        assert_eq!(server.stdout(&done), expected, "{cwd}");
    }
    for cwd in ["work/missing", "work/file"] {
        assert_eq!(ask(cwd).refused(400), "INVALID_ARGUMENT", "{cwd}");
    }
    // Backends may refuse links. In a native box a link is resolved inside of the box, where `/` is
    // the box's.
    let inner = ask("work/inner");
    let outer = ask("work/outer");
    match fixture.backend {
        Backend::Native => {
            assert_eq!(server.stdout(&inner.expect(200)), "/workspace/work/a/b\n");
            assert_eq!(server.stdout(&outer.expect(200)), "/\n");
        }
        // A link as working directory has allowed escapes from container runtimes, so links are
        // refused.
        Backend::Gvisor | Backend::Docker => {
            assert_eq!(inner.refused(400), "INVALID_ARGUMENT");
            assert_eq!(outer.refused(400), "INVALID_ARGUMENT");
        }
    }
}
