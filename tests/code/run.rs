//! `POST /api/run`: results, limits and errors.

use std::io::Write as _;

use serde_json::{Value, json};
use tests::support::wait::{wait_for, wait_until};

use crate::fixture::{Fixture, code_of};

#[test]
fn each_language_shares_the_files_of_the_session() {
    let fixture = Fixture::start();
    let made = fixture.python("open('output/a.txt', 'w').write('A'); print('hello')");
    assert_eq!((&made["success"], &made["exit_code"], &made["error"]), (&json!(true), &json!(0), &Value::Null));
    assert_eq!((made["stdout"].as_str(), made["stderr"].as_str()), (Some("hello\n"), Some("")));
    assert_eq!((&made["sandbox_type"], &made["files_created"]), (&json!("native"), &json!(["output/a.txt"])));
    assert_eq!((&made["risk"]["level"], &made["risk"]["detected_patterns"][0]["line"]), (&json!("medium"), &json!(1)));
    let seen = fixture.shell("ls -A; cat output/a.txt; echo more >> output/a.txt");
    assert_eq!(seen["stdout"], ".memory\nartifacts\ncode\ndata\noutput\ntemp\nA");
    assert_eq!(seen["files_created"], json!([]), "a changed file is not a created one");
    assert_eq!((&made["files_created_complete"], &seen["files_created_complete"]), (&json!(true), &json!(true)));
    let some = fixture.shell("mkdir data/many && cd data/many && seq 2000 | xargs touch");
    let one = fixture.shell("touch data/many/another");
    let response =
        |ran: &Value| (ran["files_created"].as_array().unwrap().len(), ran["files_created_complete"].clone());
    assert_eq!((response(&some), response(&one)), ((2000, json!(true)), (1, json!(true))));
    let many = fixture.shell("cd data/many && seq 20001 | xargs touch");
    assert_eq!((&many["files_created"], &many["files_created_complete"]), (&json!([]), &json!(false)), "{many}");
    assert_eq!(fixture.shell("ls output")["files_created_complete"], false, "the earlier files are not known either");
    let body = json!({ "session_id": "s", "code": "console.log(6 * 7)", "language": "javascript" });
    assert_eq!(fixture.run(&body).expect(200)["stdout"], "42\n");
    // The run is recorded as an exec.
    let exec = fixture.server.exec(made["exec_id"].as_str().unwrap());
    assert_eq!((&exec["status"], &exec["conversation_id"]), (&json!("SUCCEEDED"), &json!("s")));
    assert_eq!(exec["policy_snapshot"]["code"]["level"], "medium");
    assert!(exec["args"][1].as_str().unwrap().contains("open("), "the record shows the code");
}

/// In a single-use box and in a context.
#[test]
fn code_runs_to_its_end_after_caller_disconnects() {
    let fixture = Fixture::start();
    let files = fixture.server.data().join("workspaces/default/default/sessions/s/work/output");
    for (name, context) in [("alone", Value::Null), ("kept", json!("c"))] {
        let code = format!(
            "import os, time\nopen('output/{name}', 'w').close()\n\
             while not os.path.exists('output/{name}-go'): time.sleep(0.01)\nprint('came through')"
        );
        let body = json!({ "session_id": "s", "context_id": context, "code": code }).to_string();
        let mut caller = fixture.server.connect();
        let head = format!("POST /api/run HTTP/1.1\r\nhost: {}\r\n", fixture.server.address);
        let rest =
            format!("authorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}", fixture.server.token, body.len());
        write!(caller, "{head}{rest}").unwrap();
        wait_until("the code to run", || files.join(name).exists());
        let port = caller.local_addr().unwrap().port();
        drop(caller);
        wait_until("the server to hang up too", || !has_connection_from(port));
        std::fs::write(files.join(format!("{name}-go")), "").unwrap();
        let ended = wait_for("its end", || {
            let newest = &fixture.server.ask("GET", "/sandbox/execs?limit=1", None).expect(200)[0];
            (newest["status"] != "RUNNING").then(|| newest.clone())
        });
        assert_eq!(ended["status"], "SUCCEEDED", "{name}: {ended}");
        assert_eq!(fixture.server.stdout(&ended), "came through\n", "{name}");
    }
}

/// True while the server holds a connection from this local port.
fn has_connection_from(port: u16) -> bool {
    let of_port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // ESTABLISHED or CLOSE_WAIT.
    let is_held = |words: &[&str]| words[2].ends_with(&of_port) && ["01", "08"].contains(&words[3]);
    table.lines().skip(1).any(|line| is_held(&line.split_whitespace().collect::<Vec<_>>()))
}

#[test]
fn failed_run_is_a_result() {
    let fixture = Fixture::start();
    let failed = fixture.python("import sys; print('x', file=sys.stderr); sys.exit(3)");
    assert_eq!((&failed["success"], &failed["exit_code"]), (&json!(false), &json!(3)));
    assert_eq!((&failed["stderr"], &failed["error"]), (&json!("x\n"), &json!("It exited with code 3.")));
    let slow = json!({ "session_id": "s", "code": "while True: pass", "language": "python", "timeout": 1 });
    let slow = fixture.run(&slow).expect(200);
    assert_eq!((&slow["success"], &slow["exit_code"]), (&json!(false), &json!(-1)));
    assert!(slow["error"].as_str().unwrap().contains("1000 ms"), "{slow}");
    let large = json!({ "session_id": "s", "code": "print('é' * 100)", "language": "python", "max_output_bytes": 11 });
    assert_eq!(fixture.run(&large).expect(200)["stdout"], "ééééé", "the output is cut within a character");
    // The memory limit of a session box applies to the whole box, so a run cannot set it.
    for kept in [json!({ "backend": "aio" }), json!({ "context_id": "c" })] {
        let mut body = json!({ "session_id": "s", "code": "1", "max_memory_mb": 64 });
        body.as_object_mut().unwrap().extend(kept.as_object().unwrap().clone());
        assert!(fixture.run(&body).expect(400)["error"]["message"].as_str().unwrap().contains("max_memory_mb"));
    }
    let hungry =
        json!({ "session_id": "s", "code": "x = bytearray(400 << 20)", "language": "python", "max_memory_mb": 64 });
    let hungry = fixture.run(&hungry).expect(200);
    assert!(hungry["success"] == false && hungry["exit_code"] != 0, "{hungry}");
}

#[test]
fn code_longer_than_one_argument_runs() {
    let fixture = Fixture::start();
    fixture.change_settings(&json!({ "sessions": { "confirmation": "auto-approve" } }));
    let filling = |line: &str| line.repeat(130 * 1024 / line.len());
    for (language, code, expected) in [
        (
            "python",
            filling("x = 0\n") + "import sys; print(sys.argv, repr(sys.stdin.read()), __name__)",
            "['-c'] '' __main__\n",
        ),
        ("shell", filling(": x y\n") + "cat; echo $0", "bash\n"),
        ("javascript", filling("var x;\n") + "console.log(x)", "undefined\n"),
    ] {
        let ran = fixture.run(&json!({ "session_id": "s", "code": code, "language": language })).expect(200);
        assert_eq!((&ran["stdout"], &ran["success"]), (&json!(expected), &json!(true)), "{language}: {}", ran["error"]);
        assert_eq!(ran["files_created"], json!([]), "the code was stored in the session");
        let exec = fixture.server.exec(ran["exec_id"].as_str().unwrap());
        assert_eq!(exec["policy_snapshot"]["code"]["bytes"], code.len());
    }
    let too_long = json!({ "session_id": "s", "code": "#".repeat((1 << 20) + 1), "language": "python" });
    assert_eq!(code_of(fixture.run(&too_long), 413), "TOO_LARGE");
}

#[test]
fn request_files_are_written_within_the_session() {
    let fixture = Fixture::start();
    let run = |path: &str| {
        let files = json!([{ "path": path, "content": "given" }]);
        fixture.run(&json!({ "session_id": "s", "code": "cat in/*", "language": "shell", "files": files }))
    };
    let ran = run("in/a").expect(200);
    assert_eq!((&ran["stdout"], &ran["files_created"]), (&json!("given"), &json!([])));
    for path in ["../a", "/etc/a", "in/../../a", "in\\a"] {
        assert_eq!(code_of(run(path), 403), "PathTraversal", "{path}");
    }
    // A link is not followed.
    fixture.python("import os; os.symlink('/tmp', 'link')");
    let response = run("link/a").expect(200);
    assert!(response["success"] == false && response["error"].as_str().unwrap().contains("out of scope"), "{response}");
}

#[test]
fn code_sees_no_files_of_the_host() {
    let fixture = Fixture::start();
    // With path control off a session's commands see the host's files; its code does not.
    let seen = fixture.shell("ls /etc/hostname /root /home /srv 2>&1; ls /home");
    assert!(!seen["stdout"].as_str().unwrap().contains("/etc/hostname\n"), "{seen}");
    let data = fixture.server.data().display().to_string();
    let response =
        fixture.python(&format!("import os; print(os.path.exists({data:?}), os.getuid(), os.listdir('/home'))"));
    assert_eq!(response["stdout"], "False 1000 ['sandbox']\n");
}

#[test]
fn malformed_request_names_the_wrong_field() {
    let fixture = Fixture::start();
    let expect_success = json!({ "session_id": "s", "code": "1", "language": "python" });
    for (key, value, word) in [
        ("session_id", json!("../x"), "session id"),
        ("session_id", json!(""), "session id"),
        ("code", json!("a\u{0}b"), "NUL"),
        ("code", Value::Null, "code"),
        ("language", json!("ruby"), "javascript"),
        ("language", json!("browser"), "javascript"),
        ("timeout", json!(0), "1 to 300"),
        ("timeout", json!(301), "1 to 300"),
        ("timeout", json!(1.5), "timeout"),
        ("backend", json!("vm"), "native, docker, gvisor or aio"),
        ("max_memory_mb", json!(0), "memory_mb"),
        ("max_output_bytes", json!(0), "bytes"),
        ("agent_id", json!("skills"), "agent id"),
        ("unknown", json!(1), "unknown"),
    ] {
        let mut body = expect_success.clone();
        body[key] = value;
        let response = fixture.run(&body).expect(400);
        assert_eq!(response["error"]["code"], "INVALID_ARGUMENT", "{key}");
        assert!(
            response["error"]["message"]
                .as_str()
                .is_some_and(|text| text.contains(word) || key == "code" || key == "timeout"),
            "{key}: {response}"
        );
    }
    let mut greedy = expect_success.clone();
    greedy["max_memory_mb"] = json!(5000);
    let denied = fixture.run(&greedy).expect(403);
    assert_eq!((&denied["error"]["code"], &denied["error"]["field"]), (&json!("POLICY_DENIED"), &json!("memory_mb")));
    let begun =
        fixture.run(&json!({ "session_id": "s", "code": "1", "language": "python", "wait": false })).expect(202);
    assert!(begun["exec_id"].is_string() && begun["status"].is_string());
    fixture.change_settings(&json!({ "sandbox": { "limits": { "memory_mb": 128 } } }));
    assert_eq!(fixture.run(&expect_success).expect(200)["success"], true, "the default exceeds the settings");
}

#[test]
fn full_session_ends_run_and_rejects_files() {
    let fixture = Fixture::start();
    fixture.change_settings(&json!({ "sessions": { "max_mb": 4 } }));
    let ended =
        fixture.python("import time\nf = open('data/x', 'wb')\nf.write(bytes(8 << 20)); f.flush(); time.sleep(30)");
    assert!(ended["success"] == false && ended["error"].as_str().unwrap().contains("sessions.max_mb"), "{ended}");
    // No further file is accepted; code can still delete files.
    let with_file =
        json!({ "session_id": "s", "code": "1", "language": "python", "files": [{ "path": "a", "content": "a" }] });
    assert_eq!(code_of(fixture.run(&with_file), 413), "DISK_QUOTA");
    assert_eq!(code_of(fixture.put_bytes("/api/sessions/s/files/a", b"a"), 413), "DISK_QUOTA");
    assert_eq!(fixture.python("import os; print(os.path.getsize('data/x'))")["stdout"], "8388608\n");
    let other = json!({ "session_id": "t", "code": "print(1)", "language": "python" });
    assert_eq!(fixture.run(&other).expect(200)["success"], true);
    assert_eq!(fixture.python("open('data/x', 'wb').close()")["success"], true);
    assert_eq!(fixture.run(&with_file).expect(200)["success"], true);
}

#[test]
fn exec_command_of_cli_runs_code() {
    let fixture = Fixture::start();
    let url = format!("http://{}", fixture.server.address);
    let exec = |words: &[&str]| {
        let output = fixture.server.command().args(["exec", "--url", &url]).args(words).output().unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code().unwrap(), stdout, stderr)
    };
    assert_eq!(exec(&["--code", "print(6 * 7)", "--language", "python"]), (0, "42\n".into(), String::new()));
    let file = fixture.server.data().join("x.sh");
    std::fs::write(&file, "echo from a file; exit 5").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(exec(&["--code", file, "--language", "shell"]), (5, "from a file\n".into(), String::new()));
    let (code, _, response) = exec(&["--code", "rm -rf /", "--language", "shell"]);
    assert!(code == 1 && response.contains("Execution refused"), "{response}");
    let (_, json, _) = exec(&["--json", "--code", "print(1)"]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["stdout"], "1\n");
}
