//! Contexts: an interpreter that stays between runs, what it shows, and how it is stopped; and the pool of the boxes that they
//! are in.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::support::pool_watch::pool;

use crate::site::Site;

const TIMEOUT: Duration = Duration::from_secs(60);

fn body(session: &str, context: &str, code: &str) -> Value {
    json!({ "session_id": session, "context_id": context, "code": code })
}

fn cell(site: &Site, code: &str) -> Value {
    site.run(&body("s", "c", code)).expect(200)
}

fn await_status(site: &Site, status: &str) {
    let began = Instant::now();
    loop {
        let listed = site.server.ask("GET", "/api/contexts/s", None);
        if listed.status == 200 && listed.json()["contexts"][0]["status"] == status {
            return;
        }
        assert!(began.elapsed() < TIMEOUT, "it never became {status}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn variables_stay_and_values_come_back_in_their_forms() {
    let site = Site::start();
    // What is made ahead for single runs counts too, and none of that is here.
    site.set(&json!({ "pool": { "min_instances": 0 } }));
    let assigned = cell(&site, "x = 41");
    assert_eq!((&assigned["success"], &assigned["results"]), (&json!(true), &json!([])), "{assigned}");
    let shown = cell(&site, "print('hi')\nx + 1");
    assert_eq!((&shown["results"], &shown["stdout"]), (&json!([{ "text/plain": "42" }]), &json!("hi\n")));
    let failed = cell(&site, "1/0");
    assert_eq!((&failed["success"], &failed["exit_code"]), (&json!(false), &json!(1)));
    assert_eq!(failed["error"], "ZeroDivisionError: division by zero");
    assert!(failed["stderr"].as_str().unwrap().contains("<cell 3>"), "{failed}");
    assert_eq!(cell(&site, "[x]")["results"][0]["application/json"], json!([41]), "state survives an error");
    let rich = cell(
        &site,
        "class Rich:\n    def _repr_html_(self): return '<b>é</b>'\n    def __repr__(self): return 'rich'\nRich()",
    );
    assert_eq!(rich["results"], json!([{ "text/html": "<b>é</b>", "text/plain": "rich" }]));
    let shown = cell(&site, "display(Rich(), 1)\nx");
    let plain: Vec<&Value> = shown["results"].as_array().unwrap().iter().map(|one| &one["text/plain"]).collect();
    assert_eq!(plain, ["rich", "1", "41"]);
    // Half a character is in no text elsewhere, and large ones are counted as they are sent.
    assert_eq!(cell(&site, "raise ValueError('\\ud800')")["error"], "ValueError: ?");
    let large = cell(&site, "'é' * (3 << 20)");
    assert_eq!(
        (&large["success"], large["results"].as_array().unwrap().len()),
        (&json!(true), 1),
        "{}",
        large["error"]
    );
    assert!(site.python("print(1)").get("results").is_none(), "only a context has results");
    let pool = pool(&site.server);
    assert_eq!((&pool["total"], &pool["hits"], &pool["misses"]), (&json!(1), &json!(7), &json!(1)), "{pool}");
}

/// Also where nothing in the context has asked for lines before.
#[test]
fn lines_of_cells_are_found() {
    let site = Site::start();
    cell(&site, "def late():\n    return 1 / 0  # in the first");
    let failed = cell(&site, "late()");
    let told = failed["stderr"].as_str().unwrap();
    assert!(told.contains("in the first") && told.contains("<cell 2>") && !told.contains("in run"), "{told}");
    let shown = |code: &str| cell(&site, code)["results"][0]["text/plain"].clone();
    assert_eq!(shown("import inspect\ndef f(): pass\ninspect.getsource(f)"), r"'def f(): pass\n'");
    assert_eq!(shown("inspect.getsource(late).count('first')"), "1");
    site.server.ask("POST", "/api/contexts/s/c/restart", None).expect(200);
    assert_eq!(shown("import inspect\ndef f(): pass\ninspect.getsource(f)"), r"'def f(): pass\n'", "in the same cell");
    site.server.ask("POST", "/api/contexts/s/c/restart", None).expect(200);
    cell(&site, "import sys\nsys.path.clear()\nsys.meta_path.clear()");
    let failed = cell(&site, "1/0");
    assert_eq!(failed["error"], "ZeroDivisionError: division by zero", "with nothing that can be imported");
    assert_eq!(failed["stderr"], "ZeroDivisionError: division by zero\n");
}

#[test]
fn a_figure_is_a_picture() {
    let site = Site::start();
    let drawn = cell(&site, "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()");
    let png = drawn["results"][0]["image/png"].as_str().unwrap_or_else(|| panic!("{drawn}"));
    assert!(png.starts_with("iVBORw0KGgo"), "{png}");
}

#[test]
fn javascript_has_contexts_too_and_a_shell_has_none() {
    let site = Site::start();
    let node = |code: &str| {
        site.run(&json!({ "session_id": "s", "context_id": "j", "language": "javascript", "code": code })).expect(200)
    };
    let runs = |code: &'static str, timeout: u64| {
        site.begin(
            json!({ "session_id": "s", "context_id": "j", "language": "javascript", "code": code, "timeout": timeout }),
        )
    };
    node("const x = 41");
    assert_eq!(node("x + 1")["results"], json!([{ "text/plain": "42" }]));
    assert_eq!(node("({ a: [x] })")["results"][0]["application/json"], json!({ "a": [41] }));
    let failed = node("throw new TypeError('no')");
    assert_eq!((&failed["error"], &failed["exit_code"]), (&json!("TypeError: no"), &json!(1)), "{failed}");
    let endless = runs("while (true) {}", 60);
    await_status(&site, "busy");
    site.server.ask("POST", "/api/contexts/s/j/interrupt", None).expect(200);
    assert!(endless.join().unwrap()["error"].as_str().unwrap().starts_with("Interrupted"));
    let late = runs("while (true) {}", 1).join().unwrap();
    assert!(late["error"].as_str().unwrap().contains("1000 ms"), "{late}");
    assert_eq!(node("x")["results"], json!([{ "text/plain": "41" }]), "what was there is there");
    site.server.ask("POST", "/api/contexts/s/j/restart", None).expect(200);
    assert!(node("x")["error"].as_str().unwrap().starts_with("ReferenceError"));
    let shell = json!({ "session_id": "s", "context_id": "j", "language": "shell", "code": "ls" });
    assert_eq!(site.run(&shell).status, 400);
    assert_eq!(site.run(&body("s", "j", "1")).status, 409, "it speaks another language");
    assert_eq!(site.run(&body("s", "../x", "1")).status, 400);
}

#[test]
fn an_interrupt_a_restart_and_an_end() {
    let site = Site::start();
    cell(&site, "x = 1");
    let running = site.begin(body("s", "c", "while True: pass"));
    await_status(&site, "busy");
    let again = json!({ "session_id": "s", "context_id": "c", "code": "x", "on_busy": "fail" });
    assert_eq!(site.run(&again).status, 409);
    let stopped = site.server.ask("POST", "/api/contexts/s/c/interrupt", None).expect(200);
    assert_eq!(stopped["interrupted"], true);
    let ended = running.join().unwrap();
    assert!(ended["error"].as_str().unwrap().starts_with("KeyboardInterrupt"), "{ended}");
    assert_eq!(cell(&site, "x")["results"][0]["text/plain"], "1", "what was there is there");
    let slow = json!({ "session_id": "s", "context_id": "c", "code": "while True: pass", "timeout": 1 });
    assert!(site.run(&slow).expect(200)["error"].as_str().unwrap().contains("1000 ms"));
    assert_eq!(cell(&site, "x")["success"], true, "a time limit that is obeyed keeps the context");
    site.server.ask("POST", "/api/contexts/s/c/restart", None).expect(200);
    assert!(cell(&site, "x")["error"].as_str().unwrap().starts_with("NameError"));
    site.server.ask("DELETE", "/api/contexts/s/c", None).expect(200);
    assert_eq!(site.server.ask("DELETE", "/api/contexts/s/c", None).status, 404);
    assert_eq!(site.server.ask("GET", "/api/contexts/s", None).expect(200)["contexts"], json!([]));
    assert_eq!(site.server.ask("GET", "/api/contexts/none", None).status, 404);
}

#[test]
fn an_interpreter_that_ends_is_told_and_the_next_is_new() {
    let site = Site::start();
    cell(&site, "x = 1");
    let ended = cell(&site, "import os\nprint('last', flush=True)\nos._exit(3)");
    assert_eq!((&ended["exit_code"], &ended["stdout"]), (&json!(3), &json!("last\n")), "{ended}");
    assert!(cell(&site, "x")["error"].as_str().unwrap().starts_with("NameError"));
    // Code that answers in its interpreter's place is believed what it says, and makes the server keep no more than it sent.
    let most = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", site.server.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().to_owned();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    };
    let before = most();
    let liar = "import os, stat\nfor fd in range(3, 64):\n    try:\n        if stat.S_ISSOCK(os.fstat(fd).st_mode): break\n    except OSError: pass\n\
                id = 3\nline = b'{\"id\":3,\"results\":[{\"application/json\":[' + b'0,' * 4_500_000 + b'0]}],\"error\":null}\\n'\n\
                while line: line = line[os.write(fd, line):]\nimport time\ntime.sleep(60)";
    cell(&site, "1");
    let lied = site.run(&body("s", "c", liar)).expect(200);
    assert_eq!(lied["results"][0]["application/json"].as_array().map(Vec::len), Some(4_500_001), "{}", lied["error"]);
    let grown = most() - before;
    assert!(grown < 120, "{grown} MiB for an answer of 9 MiB");
}

#[test]
fn a_full_pool_ends_who_was_idle_longest_or_lets_wait() {
    let site = Site::start_under(&[("RINGWALL_POOL_MAX_INSTANCES", "1")]);
    cell(&site, "x = 1");
    assert_eq!(site.run(&body("other", "c", "2")).expect(200)["success"], true, "the idle one makes room");
    assert_eq!(pool(&site.server)["total"], 1);
    assert!(cell(&site, "x")["error"].as_str().unwrap().starts_with("NameError"), "its box was ended");
    let running = site.begin(body("s", "c", "while True: pass"));
    await_status(&site, "busy");
    assert_eq!(pool(&site.server)["busy"], 1);
    // So long a wait is in vain; where a box has to be ended and another made, it may be too short.
    site.set(&json!({ "pool": { "acquire_timeout_s": 1 } }));
    assert_eq!(site.run(&body("other", "c", "2")).status, 503);
    site.set(&json!({ "pool": { "acquire_timeout_s": null } }));
    let fail = json!({ "session_id": "other", "context_id": "c", "code": "2", "on_busy": "fail" });
    assert_eq!(site.run(&fail).status, 409);
    site.server.ask("DELETE", "/api/sessions/s", None).expect(200);
    running.join().unwrap();
    assert_eq!(site.run(&body("other", "c", "2")).expect(200)["success"], true);
}
