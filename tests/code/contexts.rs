//! Contexts: stateful interpreters, their results, interrupt and restart, and the pool of their
//! boxes.

use serde_json::{Value, json};
use tests::support::pool_watch::pool;
use tests::support::wait::wait_until;

use crate::fixture::Fixture;

fn body(session: &str, context: &str, code: &str) -> Value {
    json!({ "session_id": session, "context_id": context, "code": code })
}

fn run_cell(fixture: &Fixture, code: &str) -> Value {
    fixture.run(&body("s", "c", code)).expect(200)
}

fn wait_for_status(fixture: &Fixture, status: &str) {
    wait_until(&format!("a context that is {status}"), || {
        let listed = fixture.server.ask("GET", "/api/contexts/s", None);
        listed.status == 200 && listed.json()["contexts"][0]["status"] == status
    });
}

#[test]
fn context_keeps_variables_and_returns_rich_results() {
    let fixture = Fixture::start();
    // Without warm boxes, which would count in the pool's numbers.
    fixture.change_settings(&json!({ "pool": { "min_instances": 0 } }));
    let assigned = run_cell(&fixture, "x = 41");
    assert_eq!((&assigned["success"], &assigned["results"]), (&json!(true), &json!([])), "{assigned}");
    let shown = run_cell(&fixture, "print('hi')\nx + 1");
    assert_eq!((&shown["results"], &shown["stdout"]), (&json!([{ "text/plain": "42" }]), &json!("hi\n")));
    let failed = run_cell(&fixture, "1/0");
    assert_eq!((&failed["success"], &failed["exit_code"]), (&json!(false), &json!(1)));
    assert_eq!(failed["error"], "ZeroDivisionError: division by zero");
    assert!(failed["stderr"].as_str().unwrap().contains("<cell 3>"), "{failed}");
    assert_eq!(run_cell(&fixture, "[x]")["results"][0]["application/json"], json!([41]), "state survives an error");
    let rich = run_cell(
        &fixture,
        "class Rich:\n    def _repr_html_(self): return '<b>é</b>'\n    def __repr__(self): return 'rich'\nRich()",
    );
    assert_eq!(rich["results"], json!([{ "text/html": "<b>é</b>", "text/plain": "rich" }]));
    let shown = run_cell(&fixture, "display(Rich(), 1)\nx");
    let plain: Vec<&Value> = shown["results"].as_array().unwrap().iter().map(|one| &one["text/plain"]).collect();
    assert_eq!(plain, ["rich", "1", "41"]);
    // A lone surrogate is replaced, and a large result of 6 MB in UTF-8 is within the limits.
    assert_eq!(run_cell(&fixture, "raise ValueError('\\ud800')")["error"], "ValueError: ?");
    let large = run_cell(&fixture, "'é' * (3 << 20)");
    assert_eq!(
        (&large["success"], large["results"].as_array().unwrap().len()),
        (&json!(true), 1),
        "{}",
        large["error"]
    );
    assert!(fixture.python("print(1)").get("results").is_none(), "only a context has results");
    let pool = pool(&fixture.server);
    assert_eq!((&pool["total"], &pool["hits"], &pool["misses"]), (&json!(1), &json!(7), &json!(1)), "{pool}");
}

/// Also in a context that has not imported `inspect` or `linecache` before.
#[test]
fn tracebacks_and_inspect_find_source_lines_of_cells() {
    let fixture = Fixture::start();
    run_cell(&fixture, "def late():\n    return 1 / 0  # in the first");
    let failed = run_cell(&fixture, "late()");
    let response = failed["stderr"].as_str().unwrap();
    assert!(
        response.contains("in the first") && response.contains("<cell 2>") && !response.contains("in run"),
        "{response}"
    );
    let shown = |code: &str| run_cell(&fixture, code)["results"][0]["text/plain"].clone();
    assert_eq!(shown("import inspect\ndef f(): pass\ninspect.getsource(f)"), r"'def f(): pass\n'");
    assert_eq!(shown("inspect.getsource(late).count('first')"), "1");
    fixture.server.ask("POST", "/api/contexts/s/c/restart", None).expect(200);
    assert_eq!(shown("import inspect\ndef f(): pass\ninspect.getsource(f)"), r"'def f(): pass\n'", "after a restart");
    fixture.server.ask("POST", "/api/contexts/s/c/restart", None).expect(200);
    run_cell(&fixture, "import sys\nsys.path.clear()\nsys.meta_path.clear()");
    let failed = run_cell(&fixture, "1/0");
    assert_eq!(failed["error"], "ZeroDivisionError: division by zero", "without importable modules");
    assert_eq!(failed["stderr"], "ZeroDivisionError: division by zero\n");
}

#[test]
fn matplotlib_figure_is_returned_as_png() {
    let fixture = Fixture::start();
    let drawn = run_cell(&fixture, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()");
    let png = drawn["results"][0]["image/png"].as_str().unwrap_or_else(|| panic!("{drawn}"));
    assert!(png.starts_with("iVBORw0KGgo"), "{png}");
}

#[test]
fn javascript_has_contexts_and_shell_has_none() {
    let fixture = Fixture::start();
    let node = |code: &str| {
        fixture
            .run(&json!({ "session_id": "s", "context_id": "j", "language": "javascript", "code": code }))
            .expect(200)
    };
    let runs = |code: &'static str, timeout: u64| {
        fixture.spawn_run(
            json!({ "session_id": "s", "context_id": "j", "language": "javascript", "code": code, "timeout": timeout }),
        )
    };
    node("const x = 41");
    assert_eq!(node("x + 1")["results"], json!([{ "text/plain": "42" }]));
    assert_eq!(node("({ a: [x] })")["results"][0]["application/json"], json!({ "a": [41] }));
    let failed = node("throw new TypeError('no')");
    assert_eq!((&failed["error"], &failed["exit_code"]), (&json!("TypeError: no"), &json!(1)), "{failed}");
    let endless = runs("while (true) {}", 60);
    wait_for_status(&fixture, "busy");
    fixture.server.ask("POST", "/api/contexts/s/j/interrupt", None).expect(200);
    assert!(endless.join().unwrap()["error"].as_str().unwrap().starts_with("Interrupted"));
    let late = runs("while (true) {}", 1).join().unwrap();
    assert!(late["error"].as_str().unwrap().contains("1000 ms"), "{late}");
    assert_eq!(node("x")["results"], json!([{ "text/plain": "41" }]), "the variables are lost");
    fixture.server.ask("POST", "/api/contexts/s/j/restart", None).expect(200);
    assert!(node("x")["error"].as_str().unwrap().starts_with("ReferenceError"));
    let shell = json!({ "session_id": "s", "context_id": "j", "language": "shell", "code": "ls" });
    assert_eq!(fixture.run(&shell).status, 400);
    assert_eq!(fixture.run(&body("s", "j", "1")).status, 409, "the context has another language");
    assert_eq!(fixture.run(&body("s", "../x", "1")).status, 400);
}

#[test]
fn context_is_interrupted_restarted_and_deleted() {
    let fixture = Fixture::start();
    run_cell(&fixture, "x = 1");
    let running = fixture.spawn_run(body("s", "c", "while True: pass"));
    wait_for_status(&fixture, "busy");
    let again = json!({ "session_id": "s", "context_id": "c", "code": "x", "on_busy": "fail" });
    assert_eq!(fixture.run(&again).status, 409);
    let stopped = fixture.server.ask("POST", "/api/contexts/s/c/interrupt", None).expect(200);
    assert_eq!(stopped["interrupted"], true);
    let ended = running.join().unwrap();
    assert!(ended["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{ended}");
    assert_eq!(run_cell(&fixture, "x")["results"][0]["text/plain"], "1", "the variables are lost");
    let slow = json!({ "session_id": "s", "context_id": "c", "code": "while True: pass", "timeout": 1 });
    assert!(fixture.run(&slow).expect(200)["error"].as_str().unwrap().contains("1000 ms"));
    assert_eq!(run_cell(&fixture, "x")["success"], true, "a run that stops at its timeout keeps the context");
    fixture.server.ask("POST", "/api/contexts/s/c/restart", None).expect(200);
    assert!(run_cell(&fixture, "x")["error"].as_str().unwrap().starts_with("NameError"));
    fixture.server.ask("DELETE", "/api/contexts/s/c", None).expect(200);
    assert_eq!(fixture.server.ask("DELETE", "/api/contexts/s/c", None).status, 404);
    assert_eq!(fixture.server.ask("GET", "/api/contexts/s", None).expect(200)["contexts"], json!([]));
    assert_eq!(fixture.server.ask("GET", "/api/contexts/none", None).status, 404);
}

#[test]
fn ended_interpreter_is_reported_and_replaced() {
    let fixture = Fixture::start();
    run_cell(&fixture, "x = 1");
    let ended = run_cell(&fixture, "import os\nprint('last', flush=True)\nos._exit(3)");
    assert_eq!((&ended["exit_code"], &ended["stdout"]), (&json!(3), &json!("last\n")), "{ended}");
    assert!(run_cell(&fixture, "x")["error"].as_str().unwrap().starts_with("NameError"));
    // Code can forge the interpreter's answer for its own session, but the server's memory grows
    // only in proportion to it.
    let peak_memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", fixture.server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().to_owned();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    let before = peak_memory();
    let forged_answer = "import os, stat\nfor fd in range(3, 64):\n    try:\n        if stat.S_ISSOCK(os.fstat(fd).st_mode): break\n    except OSError: pass\n\
                id = 3\nline = b'{\"id\":3,\"results\":[{\"application/json\":[' + b'0,' * 4_500_000 + b'0]}],\"error\":null}\\n'\n\
                while line: line = line[os.write(fd, line):]\nimport time\ntime.sleep(60)";
    run_cell(&fixture, "1");
    let forged = fixture.run(&body("s", "c", forged_answer)).expect(200);
    assert_eq!(
        forged["results"][0]["application/json"].as_array().map(Vec::len),
        Some(4_500_001),
        "{}",
        forged["error"]
    );
    let grown = peak_memory() - before;
    assert!(grown < 120, "{grown} MiB for an answer of 9 MiB");
}

#[test]
fn full_pool_evicts_idle_box_or_rejects_after_timeout() {
    let fixture = Fixture::start_with_env(&[("RINGWALL_POOL_MAX_INSTANCES", "1")]);
    run_cell(&fixture, "x = 1");
    assert_eq!(fixture.run(&body("other", "c", "2")).expect(200)["success"], true, "the idle box was not evicted");
    assert_eq!(pool(&fixture.server)["total"], 1);
    assert!(run_cell(&fixture, "x")["error"].as_str().unwrap().starts_with("NameError"), "its box was ended");
    let running = fixture.spawn_run(body("s", "c", "while True: pass"));
    wait_for_status(&fixture, "busy");
    assert_eq!(pool(&fixture.server)["busy"], 1);
    // Short only for this request: replacing a box may take longer.
    fixture.change_settings(&json!({ "pool": { "acquire_timeout_s": 1 } }));
    assert_eq!(fixture.run(&body("other", "c", "2")).status, 503);
    fixture.change_settings(&json!({ "pool": { "acquire_timeout_s": null } }));
    let fail = json!({ "session_id": "other", "context_id": "c", "code": "2", "on_busy": "fail" });
    assert_eq!(fixture.run(&fail).status, 409);
    fixture.server.ask("DELETE", "/api/sessions/s", None).expect(200);
    running.join().unwrap();
    assert_eq!(fixture.run(&body("other", "c", "2")).expect(200)["success"], true);
}
