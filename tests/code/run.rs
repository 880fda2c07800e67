//! `POST /api/run`: what it answers, within which limits, and what it refuses.

use std::io::Write as _;

use serde_json::{Value, json};
use tests::support::wait::wait_for;

use crate::site::{Site, code_of};

#[test]
fn each_language_runs_on_the_files_of_its_session() {
    let site = Site::start();
    let made = site.python("open('output/a.txt', 'w').write('A'); print('hello')");
    assert_eq!((&made["success"], &made["exit_code"], &made["error"]), (&json!(true), &json!(0), &Value::Null));
    assert_eq!((made["stdout"].as_str(), made["stderr"].as_str()), (Some("hello\n"), Some("")));
    assert_eq!((&made["sandbox_type"], &made["files_created"]), (&json!("native"), &json!(["output/a.txt"])));
    assert_eq!((&made["risk"]["level"], &made["risk"]["detected_patterns"][0]["line"]), (&json!("medium"), &json!(1)));
    let seen = site.shell("ls -A; cat output/a.txt; echo more >> output/a.txt");
    assert_eq!(seen["stdout"], ".memory\nartifacts\ncode\ndata\noutput\ntemp\nA");
    assert_eq!(seen["files_created"], json!([]), "what was there before is not new");
    assert_eq!((&made["files_created_complete"], &seen["files_created_complete"]), (&json!(true), &json!(true)));
    let some = site.shell("mkdir data/many && cd data/many && seq 2000 | xargs touch");
    let one = site.shell("touch data/many/another");
    let told = |ran: &Value| (ran["files_created"].as_array().unwrap().len(), ran["files_created_complete"].clone());
    assert_eq!((told(&some), told(&one)), ((2000, json!(true)), (1, json!(true))));
    let many = site.shell("cd data/many && seq 20001 | xargs touch");
    assert_eq!((&many["files_created"], &many["files_created_complete"]), (&json!([]), &json!(false)), "{many}");
    assert_eq!(site.shell("ls output")["files_created_complete"], false, "nor is it known what there was");
    let body = json!({ "session_id": "s", "code": "console.log(6 * 7)", "language": "javascript" });
    assert_eq!(site.run(&body).expect(200)["stdout"], "42\n");
    // It is an exec like any other.
    let exec = site.server.exec(made["exec_id"].as_str().unwrap());
    assert_eq!((&exec["status"], &exec["conversation_id"]), (&json!("SUCCEEDED"), &json!("s")));
    assert_eq!(exec["policy_snapshot"]["code"]["level"], "medium");
    assert!(exec["args"][1].as_str().unwrap().contains("open("), "the record shows the code");
}

/// In a box of its own and in a context alike.
#[test]
fn code_goes_on_when_its_caller_hangs_up() {
    let site = Site::start();
    let files = site.server.data().join("workspaces/default/default/sessions/s/work/output");
    for (name, context) in [("alone", Value::Null), ("kept", json!("c"))] {
        let code = format!(
            "import os, time\nopen('output/{name}', 'w').close()\n\
             while not os.path.exists('output/{name}-go'): time.sleep(0.01)\nprint('came through')"
        );
        let body = json!({ "session_id": "s", "context_id": context, "code": code }).to_string();
        let mut caller = site.server.connect();
        let head = format!("POST /api/run HTTP/1.1\r\nhost: {}\r\n", site.server.address);
        let rest =
            format!("authorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}", site.server.token, body.len());
        write!(caller, "{head}{rest}").unwrap();
        wait_for("the code to run", || files.join(name).exists().then_some(()));
        let port = caller.local_addr().unwrap().port();
        drop(caller);
        wait_for("the server to hang up too", || (!has_connection_from(port)).then_some(()));
        std::fs::write(files.join(format!("{name}-go")), "").unwrap();
        let ended = wait_for("its end", || {
            let newest = &site.server.ask("GET", "/sandbox/execs?limit=1", None).expect(200)[0];
            (newest["status"] != "RUNNING").then(|| newest.clone())
        });
        assert_eq!(ended["status"], "SUCCEEDED", "{name}: {ended}");
        assert_eq!(site.server.stdout(&ended), "came through\n", "{name}");
    }
}

/// Whether somebody here still holds the other end of this port's connection.
fn has_connection_from(port: u16) -> bool {
    let of_port = format!(":{port:04X}");
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // Established, or not yet closed by whoever was hung up on.
    let is_held = |words: &[&str]| words[2].ends_with(&of_port) && ["01", "08"].contains(&words[3]);
    table.lines().skip(1).any(|line| is_held(&line.split_whitespace().collect::<Vec<_>>()))
}

#[test]
fn what_fails_is_an_answer_too() {
    let site = Site::start();
    let failed = site.python("import sys; print('x', file=sys.stderr); sys.exit(3)");
    assert_eq!((&failed["success"], &failed["exit_code"]), (&json!(false), &json!(3)));
    assert_eq!((&failed["stderr"], &failed["error"]), (&json!("x\n"), &json!("It exited with code 3.")));
    let slow = json!({ "session_id": "s", "code": "while True: pass", "language": "python", "timeout": 1 });
    let slow = site.run(&slow).expect(200);
    assert_eq!((&slow["success"], &slow["exit_code"]), (&json!(false), &json!(-1)));
    assert!(slow["error"].as_str().unwrap().contains("1000 ms"), "{slow}");
    let large = json!({ "session_id": "s", "code": "print('é' * 100)", "language": "python", "max_output_bytes": 11 });
    assert_eq!(site.run(&large).expect(200)["stdout"], "ééééé", "cut between characters");
    // What is kept for the box as a whole cannot be asked for one command of it.
    for kept in [json!({ "backend": "aio" }), json!({ "context_id": "c" })] {
        let mut body = json!({ "session_id": "s", "code": "1", "max_memory_mb": 64 });
        body.as_object_mut().unwrap().extend(kept.as_object().unwrap().clone());
        assert!(site.run(&body).expect(400)["error"]["message"].as_str().unwrap().contains("max_memory_mb"));
    }
    let hungry =
        json!({ "session_id": "s", "code": "x = bytearray(400 << 20)", "language": "python", "max_memory_mb": 64 });
    let hungry = site.run(&hungry).expect(200);
    assert!(hungry["success"] == false && hungry["exit_code"] != 0, "{hungry}");
}

#[test]
fn code_that_is_too_long_for_a_word_runs_all_the_same() {
    let site = Site::start();
    site.set(&json!({ "sessions": { "confirmation": "auto-approve" } }));
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
        let ran = site.run(&json!({ "session_id": "s", "code": code, "language": language })).expect(200);
        assert_eq!((&ran["stdout"], &ran["success"]), (&json!(expected), &json!(true)), "{language}: {}", ran["error"]);
        assert_eq!(ran["files_created"], json!([]), "nothing of it lay in the session");
        let exec = site.server.exec(ran["exec_id"].as_str().unwrap());
        assert_eq!(exec["policy_snapshot"]["code"]["bytes"], code.len());
    }
    let too_long = json!({ "session_id": "s", "code": "#".repeat((1 << 20) + 1), "language": "python" });
    assert_eq!(code_of(site.run(&too_long), 413), "TOO_LARGE");
}

#[test]
fn files_come_along_and_stay_within() {
    let site = Site::start();
    let run = |path: &str| {
        let files = json!([{ "path": path, "content": "given" }]);
        site.run(&json!({ "session_id": "s", "code": "cat in/*", "language": "shell", "files": files }))
    };
    let ran = run("in/a").expect(200);
    assert_eq!((&ran["stdout"], &ran["files_created"]), (&json!("given"), &json!([])));
    for path in ["../a", "/etc/a", "in/../../a", "in\\a"] {
        assert_eq!(code_of(run(path), 403), "PathTraversal", "{path}");
    }
    // A link in the place of a directory is not followed.
    site.python("import os; os.symlink('/tmp', 'link')");
    let told = run("link/a").expect(200);
    assert!(told["success"] == false && told["error"].as_str().unwrap().contains("out of scope"), "{told}");
}

#[test]
fn nothing_of_the_host_is_there_whatever_is_allowed() {
    let site = Site::start();
    // With path control off a session's commands see the host's files; its code does not.
    let seen = site.shell("ls /etc/hostname /root /home /srv 2>&1; ls /home");
    assert!(!seen["stdout"].as_str().unwrap().contains("/etc/hostname\n"), "{seen}");
    let data = site.server.data().display().to_string();
    let told = site.python(&format!("import os; print(os.path.exists({data:?}), os.getuid(), os.listdir('/home'))"));
    assert_eq!(told["stdout"], "False 1000 ['sandbox']\n");
}

#[test]
fn malformed_requests_are_told_what_is_wrong() {
    let site = Site::start();
    let good = json!({ "session_id": "s", "code": "1", "language": "python" });
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
        let mut body = good.clone();
        body[key] = value;
        let told = site.run(&body).expect(400);
        assert_eq!(told["error"]["code"], "INVALID_ARGUMENT", "{key}");
        assert!(
            told["error"]["message"]
                .as_str()
                .is_some_and(|text| text.contains(word) || key == "code" || key == "timeout"),
            "{key}: {told}"
        );
    }
    let mut greedy = good.clone();
    greedy["max_memory_mb"] = json!(5000);
    let denied = site.run(&greedy).expect(403);
    assert_eq!((&denied["error"]["code"], &denied["error"]["field"]), (&json!("POLICY_DENIED"), &json!("memory_mb")));
    let begun = site.run(&json!({ "session_id": "s", "code": "1", "language": "python", "wait": false })).expect(202);
    assert!(begun["exec_id"].is_string() && begun["status"].is_string());
    site.set(&json!({ "sandbox": { "limits": { "memory_mb": 128 } } }));
    assert_eq!(site.run(&good).expect(200)["success"], true, "what is usual is no more than everybody gets");
}

#[test]
fn a_full_session_is_told_so() {
    let site = Site::start();
    site.set(&json!({ "sessions": { "max_mb": 4 } }));
    let ended =
        site.python("import time\nf = open('data/x', 'wb')\nf.write(bytes(8 << 20)); f.flush(); time.sleep(30)");
    assert!(ended["success"] == false && ended["error"].as_str().unwrap().contains("sessions.max_mb"), "{ended}");
    // Nothing more is put in; code can still make room.
    let with_file =
        json!({ "session_id": "s", "code": "1", "language": "python", "files": [{ "path": "a", "content": "a" }] });
    assert_eq!(code_of(site.run(&with_file), 413), "DISK_QUOTA");
    assert_eq!(code_of(site.put("/api/sessions/s/files/a", b"a"), 413), "DISK_QUOTA");
    assert_eq!(site.python("import os; print(os.path.getsize('data/x'))")["stdout"], "8388608\n");
    let other = json!({ "session_id": "t", "code": "print(1)", "language": "python" });
    assert_eq!(site.run(&other).expect(200)["success"], true);
    assert_eq!(site.python("open('data/x', 'wb').close()")["success"], true);
    assert_eq!(site.run(&with_file).expect(200)["success"], true);
}

#[test]
fn the_command_line_runs_code_too() {
    let site = Site::start();
    let url = format!("http://{}", site.server.address);
    let exec = |words: &[&str]| {
        let output = site.server.command().args(["exec", "--url", &url]).args(words).output().unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code().unwrap(), stdout, stderr)
    };
    assert_eq!(exec(&["--code", "print(6 * 7)", "--language", "python"]), (0, "42\n".into(), String::new()));
    let file = site.server.data().join("x.sh");
    std::fs::write(&file, "echo from a file; exit 5").unwrap();
    let file = file.to_str().unwrap();
    assert_eq!(exec(&["--code", file, "--language", "shell"]), (5, "from a file\n".into(), String::new()));
    let (code, _, told) = exec(&["--code", "rm -rf /", "--language", "shell"]);
    assert!(code == 1 && told.contains("Execution refused"), "{told}");
    let (_, json, _) = exec(&["--json", "--code", "print(1)"]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap()["stdout"], "1\n");
}
