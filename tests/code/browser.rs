//! A session's browser with a real Chromium. The pages are on loopback, which
//! `browser.allowed_hosts` permits. Few long tests, because each start of Chromium takes seconds.

use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::actor::{Identity, Mode};
use tests::support::scratch::Scratch;
use tests::support::server::{Server, Starter};
use tests::support::wait::{wait_for, wait_until};
use tests::support::{boxed, host};

use crate::fixture::Fixture;
use crate::pages::{Pages, expect_failure, expect_success};

const SECRET: &str = "hunter2-never-stored";

#[test]
fn external_browser_acts_asks_and_reaches_no_private_address() {
    let elsewhere = Pages::serve(0);
    let pages = Pages::serve(elsewhere.port);
    let fixture = Fixture::start_with_env(&[("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host())]);
    // Invalid actions and blocked addresses are rejected without starting a browser.
    for wrong in [
        json!({"action": "teleport"}),
        json!({"action": "click", "params": {"selektor": "a"}}),
        json!({"action": "navigate", "params": {"url": "https://a.com"}, "contex": {}}),
    ] {
        let response = fixture.server.ask("POST", "/api/browser/s", Some(&wrong)).expect(400);
        assert_eq!(
            (&response["success"], &response["data"], &response["screenshot"]),
            (&json!(false), &json!(null), &json!(null))
        );
        assert!(response["error"].as_str().is_some_and(|error| !error.is_empty()), "{response}");
    }
    for url in [
        elsewhere.at("/"),
        format!("http://2130706433:{}/", elsewhere.port),
        "http://169.254.169.254/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "javascript:alert(1)".to_owned(),
    ] {
        expect_failure(fixture.browse("navigate", json!({ "url": url })));
    }
    // An operator can restrict the external browser to a list or disable it.
    for (mode, words) in [("allowlist", "browser.allowed_hosts"), ("off", "browser.external")] {
        fixture.change_settings(&json!({ "browser": { "external": mode } }));
        let refused = expect_failure(fixture.browse("navigate", json!({ "url": "https://example.com/" })));
        assert!(refused.contains(words), "{refused}");
    }
    assert!(
        expect_failure(fixture.browse("get_content", json!({}))).contains("needs_file_access"),
        "the error does not name the alternative"
    );
    fixture.change_settings(&json!({ "browser": { "external": "allowlist" } }));
    assert!(fixture.chromium_processes().is_empty());
    let opened = expect_success(fixture.browse("navigate", json!({ "url": pages.at("/form") })));
    fixture.change_settings(&json!({ "browser": { "external": "on" } }));
    let mail = expect_failure(fixture.browse("navigate", json!({ "url": "http://example.com:25/" })));
    assert!(mail.contains("is not a web port"), "{mail}");
    assert_eq!(
        (&opened["title"], &opened["status"], &opened["browser"]),
        (&json!("Form"), &json!(200), &json!("external"))
    );
    expect_success(fixture.browse("fill", json!({ "selector": "#q", "value": "hello" })));
    // Typing a password needs an approval, which does not show the password.
    let typing = fixture.begin_browsing("fill", json!({ "selector": "#p", "value": SECRET }));
    let question = fixture.next_question(&[]);
    assert_eq!((&question["kind"], &question["risk_level"]), (&json!("risk"), &json!("high")), "{question}");
    assert!(question["command"].as_str().unwrap().contains("password"), "{question}");
    fixture.answer(&question, &json!({ "approved": true })).expect(200);
    expect_success(typing.join().unwrap());
    // Chromium reports a new title a little later.
    let typed = format!("typed {}", SECRET.len());
    wait_until("what was typed", || expect_success(fixture.browse("get_content", json!({})))["title"] == typed);
    // Each key in a password field needs an approval too; Tab does not type.
    let before = [question["id"].clone()];
    let pressing = fixture.begin_browsing("press", json!({ "key": "x" }));
    let question = fixture.next_question(&before);
    assert!(question["command"].as_str().unwrap().contains("type into a password field"), "{question}");
    assert!(!question.to_string().contains("key"), "{question}");
    fixture.answer(&question, &json!({ "approved": true })).expect(200);
    expect_success(pressing.join().unwrap());
    let typed = format!("typed {}", SECRET.len() + 1);
    wait_until("one more", || expect_success(fixture.browse("get_content", json!({})))["title"] == typed);
    expect_success(fixture.browse("press", json!({ "key": "Tab" })));
    fixture.change_settings(&json!({ "sessions": { "confirmation": "auto-reject" } }));
    assert!(expect_failure(fixture.browse("evaluate", json!({ "script": "1" }))).starts_with("Refused:"));
    let picture = fixture.browse("screenshot", json!({}));
    assert!(picture["screenshot"].as_str().unwrap().starts_with("iVBORw0KGgo"), "a PNG");
    expect_success(fixture.browse("click", json!({ "selector": "#go" })));
    let done = expect_success(fixture.browse("get_content", json!({})));
    assert!(done["content"].as_str().unwrap().contains("q=hello"), "{done}");
    let printed = expect_success(fixture.browse("pdf", json!({})));
    assert_eq!(printed["files"], json!(["data/page.pdf"]), "{printed}");
    assert_eq!(fixture.shell("head -c 5 data/page.pdf")["stdout"], "%PDF-");
    let back = expect_success(fixture.browse("back", json!({})));
    assert_eq!((&back["navigated"], &back["url"]), (&json!(true), &json!(pages.at("/form"))), "{back}");
    // Redirects to private addresses are refused.
    for path in ["/redirect", "/metadata"] {
        let refused = expect_failure(fixture.browse("navigate", json!({ "url": pages.at(path) })));
        assert!(refused.contains("refused"), "{refused}");
    }
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    expect_failure(fixture.browse("navigate", json!({ "url": format!("http://{name}:{}/", elsewhere.port) })));
    assert_eq!(elsewhere.count(), 0, "a host name led to a private address");
    let kept = expect_success(fixture.browse("download", json!({ "url": pages.at("/file") })));
    assert_eq!(kept["files"], json!(["data/report.txt"]), "{kept}");
    let read = fixture.shell("cat data/report.txt");
    assert_eq!(read["stdout"], "downloaded", "{read}");
    // A killed browser is replaced, and a note reports it.
    let [browser] = fixture.chromium_processes().try_into().unwrap();
    host::end(browser).unwrap();
    fixture.wait_for_no_browser();
    fixture.wait_for_no_zombies();
    let after = expect_success(fixture.browse("navigate", json!({ "url": pages.at("/form") })));
    assert!(after["notes"][0].as_str().is_some_and(|note| note.contains("lost")), "{after}");
    let view = fixture.server.ask("GET", "/api/browser/s", None).expect(200);
    assert_eq!((&view["kind"], &view["title"]), (&json!("external"), &json!("Form")), "{view}");
    let all = view["actions"].to_string();
    assert!(all.contains("refused") && all.contains("169.254.169.254") && !all.contains(SECRET), "{all}");
    let audit = fixture.server.ask("GET", "/api/audit?limit=500", None).expect(200).to_string();
    assert!(audit.contains("browser.intent") && audit.contains("browser.outcome") && !audit.contains(SECRET));
    let verified = fixture.server.ask("POST", "/api/audit/verify", None).expect(200);
    assert_eq!(verified["intact"], true, "{verified}");
    // Another user does not see the browser.
    let bob = fixture.user_token("bob");
    let theirs = fixture.server.ask_as(&bob, "GET", "/api/browser/s", None).expect(200);
    assert_eq!((&theirs["kind"], &theirs["actions"]), (&json!(null), &json!([])));
    let foreign = json!({ "action": "get_content", "user_id": "default" });
    fixture.server.ask_as(&bob, "POST", "/api/browser/s", Some(&foreign)).expect(404);
    // After `browser.external = off` the open browser is closed by the next action.
    fixture.change_settings(&json!({ "browser": { "external": "off" } }));
    assert!(expect_failure(fixture.browse("get_content", json!({}))).contains("browser.external"));
    assert!(fixture.chromium_processes().is_empty());
    fixture.change_settings(&json!({ "browser": { "external": "on" } }));
    expect_success(fixture.browse("navigate", json!({ "url": pages.at("/form") })));
    expect_success(fixture.browse("close", json!({})));
    assert!(fixture.chromium_processes().is_empty());
    fixture.wait_for_no_zombies();
    let stored: Vec<u8> = std::fs::read_dir(fixture.server.data())
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.unwrap().path()).ok())
        .flatten()
        .collect();
    assert!(!stored.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "the typed text was stored");
}

#[test]
fn sandbox_browser_shares_files_and_network_of_session_box() {
    let elsewhere = Pages::serve(0);
    let pages = Pages::serve(elsewhere.port);
    let host = pages.host();
    let fixture = Fixture::start_with_env(&[
        ("RINGWALL_NET_MODE", "allowlist"),
        ("RINGWALL_NET_ALLOW", &host),
        ("RINGWALL_EGRESS_ALLOWED_HOSTS", &format!("{host} {}", elsewhere.host())),
        ("RINGWALL_BROWSER_ALLOWED_HOSTS", &host),
    ]);
    fixture.change_settings(&json!({ "sessions": { "confirmation": "auto-approve" } }));
    let sandbox = || json!({ "needs_file_access": true });
    let made = fixture.shell("echo '<title>Own</title>made here' > x.html");
    assert_eq!(made["success"], true, "{made}");
    let url = json!({ "url": "file:///workspace/x.html" });
    assert!(
        expect_failure(fixture.browse("navigate", url.clone())).contains("sandbox"),
        "the external browser opened a file"
    );
    let opened = expect_success(fixture.browse_in("navigate", url, sandbox()));
    assert_eq!((&opened["title"], &opened["browser"]), (&json!("Own"), &json!("sandbox")));
    let read = expect_success(fixture.browse("get_content", json!({})));
    assert!(read["content"].as_str().unwrap().contains("made here"), "{read}");
    expect_failure(fixture.browse_in("navigate", json!({ "url": "file:///etc/passwd" }), sandbox()));
    // The browser reaches only the hosts of the egress allow-list.
    let listed = expect_success(fixture.browse("navigate", json!({ "url": pages.at("/form") })));
    assert_eq!((&listed["title"], &listed["browser"]), (&json!("Form"), &json!("sandbox")));
    for command_came_between in [false, true] {
        if command_came_between {
            // A command of the box in between has connections of its own.
            assert_eq!(fixture.run_in_session_box("echo here"), "here\n");
        }
        let refused = expect_failure(fixture.browse("navigate", json!({ "url": "http://example.com/" })));
        let words = "example.com:80 was refused: it is not among the hosts that this box may reach (net.allow)";
        assert_eq!(refused, words);
        let action = fixture.last_action();
        assert_eq!((&action["action"], &action["status"]), (&json!("navigate"), &json!("refused")), "{action}");
        // Only the port of the address is tried; Chromium must not upgrade it to https.
        let of_page = |one: &&Value| one["host"] == "example.com";
        let asked: Vec<&Value> = action["connections"].as_array().unwrap().iter().filter(of_page).collect();
        assert!(!asked.is_empty(), "{action}");
        assert!(asked.iter().all(|one| one["port"] == 80 && one["outcome"] == "refused"), "{action}");
    }
    // A page that downloads files by itself: the click succeeds, the small file is kept, and no
    // download stays in the box.
    expect_success(fixture.browse("navigate", json!({ "url": pages.at("/drops") })));
    let mut answer = expect_success(fixture.browse("click", json!({ "selector": "#b" })));
    let (mut files, mut notes) = (Vec::new(), Vec::new());
    wait_until("both files", || {
        files.extend(answer["files"].as_array().into_iter().flatten().cloned());
        notes.extend(answer["notes"].as_array().into_iter().flatten().cloned());
        answer = expect_success(fixture.browse("scroll", json!({})));
        !files.is_empty() && !notes.is_empty()
    });
    assert_eq!(answer["title"], "clicked");
    assert_eq!(files, ["data/report.txt"]);
    assert!(notes.len() == 1 && notes[0].as_str().unwrap().contains("huge.bin was not stored"), "{notes:?}");
    assert_eq!(fixture.run_in_session_box("ls -A /tmp/browser-*/downloads"), "");
    assert_eq!(fixture.run_in_session_box("rm data/report.txt"), "");
    let kept = expect_success(fixture.browse("download", json!({ "url": pages.at("/file") })));
    assert_eq!(kept["files"], json!(["data/report.txt"]), "{kept}");
    assert_eq!(fixture.shell("cat data/report.txt")["stdout"], "downloaded");
    // Using the other browser closes the first one.
    let first = fixture.chromium_processes();
    assert_eq!(first.len(), 1);
    let other = expect_success(fixture.browse_in("navigate", json!({ "url": pages.at("/form") }), json!({})));
    assert_eq!(other["browser"], "external", "{other}");
    assert!(!host::is_alive(first[0]));
    assert_eq!(fixture.browser_directories(), "", "after a switch");
    fixture.wait_for_no_zombies();
    // `close`, a crash and the idle timeout also remove the profile.
    for ending in ["close", "crash", "idle"] {
        if ending == "idle" {
            fixture.change_settings(&json!({ "browser": { "idle_timeout_s": 1 } }));
        }
        expect_success(fixture.browse_in("navigate", json!({ "url": "file:///workspace/x.html" }), sandbox()));
        if ending != "idle" {
            assert!(fixture.browser_directories().starts_with("/tmp/browser-"), "control: there is a profile");
        }
        match ending {
            "close" => drop(expect_success(fixture.browse("close", json!({})))),
            "crash" => host::end(fixture.chromium_processes()[0]).unwrap(),
            _ => {}
        }
        fixture.wait_for_no_browser();
        assert_eq!(fixture.browser_directories(), "", "{ending}");
        assert!(fixture.chromium_processes().is_empty());
        fixture.wait_for_no_zombies();
    }
    fixture.change_settings(&json!({ "browser": { "idle_timeout_s": null } }));
    let ends = fixture.server.ask("GET", "/api/audit?action=browser.closed", None).expect(200).to_string();
    assert!(!ends.contains("could not be removed"), "{ends}");
    expect_success(fixture.browse_in("navigate", json!({ "url": pages.at("/form") }), json!({})));
    let last = fixture.chromium_processes();
    assert_eq!(last.len(), 1);
    // Deleting a session ends its browser only.
    let body = json!({ "action": "navigate", "params": { "url": pages.at("/form") } });
    assert_eq!(fixture.server.ask("POST", "/api/browser/t", Some(&body)).expect(200)["success"], true);
    fixture.server.ask("DELETE", "/api/sessions/t", None).expect(200);
    assert_eq!(fixture.chromium_processes(), last, "another session's browser was ended");
    // A paused browser delays neither the deletion of its session nor the stop of the server.
    for session in ["t", "u"] {
        let body = json!({ "action": "navigate", "params": { "url": "file:///workspace/" }, "context": sandbox() });
        let path = format!("/api/browser/{session}");
        assert_eq!(fixture.server.ask("POST", &path, Some(&body)).expect(200)["success"], true);
        fixture.server.ask("POST", &format!("/api/sessions/{session}/pause"), None).expect(200);
        let refused =
            expect_failure(fixture.server.ask("POST", &path, Some(&json!({ "action": "close" }))).expect(200));
        assert!(refused.contains("resume it first"), "{refused}");
    }
    fixture.server.ask("DELETE", "/api/sessions/t", None).expect(200);
    let below = host::descendants(fixture.server.id()).unwrap();
    fixture.server.signal(Signal::TERM);
    let mut server = Arc::into_inner(fixture.server).unwrap();
    assert_eq!(server.ended().code(), Some(0));
    assert_eq!(below.into_iter().filter(|number| host::is_alive(*number)).collect::<Vec<_>>(), [0; 0]);
    assert_eq!(elsewhere.count(), 0);
}

#[test]
fn idle_browser_makes_room_and_is_closed_after_timeout() {
    let pages = Pages::serve(0);
    let fixture = Fixture::start_with_env(&[("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host())]);
    fixture.change_settings(&json!({ "browser": { "max_instances": 1 } }));
    assert_eq!(fixture.shell("printf seven > data/in.txt")["success"], true);
    expect_success(fixture.browse("navigate", json!({ "url": pages.at("/upload") })));
    expect_success(fixture.browse("upload", json!({ "selector": "#f", "files": ["data/in.txt"] })));
    expect_success(fixture.browse("wait_for", json!({ "text": "in.txt has seven" })));
    let missing = expect_failure(fixture.browse("upload", json!({ "selector": "#f", "files": ["data/none.txt"] })));
    assert!(missing.contains("none.txt") || missing.contains("not found"), "{missing}");
    let first = fixture.chromium_processes();
    // With `max_instances` 1 the browser of the next session replaces the idle one.
    let open_in_another = || {
        let body = json!({ "action": "navigate", "params": { "url": pages.at("/form") } });
        assert_eq!(fixture.server.ask("POST", "/api/browser/t", Some(&body)).expect(200)["success"], true);
    };
    open_in_another();
    assert!(!host::is_alive(first[0]));
    let after = expect_success(fixture.browse("navigate", json!({ "url": pages.at("/form") })));
    assert!(after["notes"][0].as_str().is_some_and(|note| note.contains("needed its place")), "{after}");
    // A changed idle timeout also applies to a browser that is idle already.
    open_in_another();
    fixture.change_settings(&json!({ "browser": { "idle_timeout_s": 1 } }));
    let is_gone = || fixture.server.ask("GET", "/api/browser/t", None).expect(200)["kind"].is_null();
    wait_until("the end of an idle browser", is_gone);
    assert!(fixture.chromium_processes().is_empty());
    fixture.wait_for_no_zombies();
}

#[test]
fn mcp_tools_drive_browser_and_agent_gets_pending() {
    let pages = Pages::serve(0);
    let fixture = Fixture::start_with_env(&[("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host())]);
    let agent = fixture.agent_token("default", "default");
    let call = |name: &str, arguments: Value| {
        let message = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": name, "arguments": arguments, "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": { "name": "x", "version": "0" },
        }}});
        let bearer = format!("Bearer {agent}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", name),
        ];
        fixture.server.ask_with("POST", "/mcp", &headers, Some(&message)).expect(200)["result"].clone()
    };
    let opened = call("browser_navigate", json!({ "url": pages.at("/form") }));
    assert_eq!(
        (&opened["isError"], &opened["structuredContent"]["data"]["title"]),
        (&json!(false), &json!("Form")),
        "{opened}"
    );
    let picture = call("browser_screenshot", json!({}));
    let image = &picture["content"][1];
    assert_eq!((&image["type"], &image["mimeType"]), (&json!("image"), &json!("image/png")), "{picture}");
    let outline = call("browser_content", json!({ "format": "outline" }));
    assert!(outline["content"][0]["text"].as_str().unwrap().contains("Go"), "{outline}");
    for (name, wrong) in [("browser_click", json!({ "selektor": "a" })), ("browser_navigate", json!({}))] {
        assert_eq!(call(name, wrong)["isError"], true);
    }
    let pending = call("browser_fill", json!({ "selector": "#p", "value": SECRET }));
    let asked = &pending["structuredContent"];
    assert_eq!((&asked["status"], &pending["isError"]), (&json!("approval_pending"), &json!(false)), "{pending}");
    let question = fixture.next_question(&[]);
    assert_eq!(question["id"], asked["approval"]["approval_id"]);
    fixture.answer(&question, &json!({ "approved": true })).expect(200);
    let response = wait_for("the end of an action", || {
        let response = call("approval_status", json!({ "approval_id": question["id"] }));
        (response["structuredContent"]["exec"]["status"] != "approval_pending").then_some(response)
    });
    assert_eq!(response["structuredContent"]["exec"]["status"], "SUCCEEDED", "{response}");
    assert_eq!(call("browser_close", json!({}))["isError"], false);
    assert!(fixture.chromium_processes().is_empty());
}

#[test]
fn rootless_server_runs_both_browsers() {
    if let Err(skip) = Mode::Rootless.available() {
        panic!("rootless boxes do not work here: {}", skip.reason());
    }
    let pages = Pages::serve(0);
    let home = Scratch::new(Identity::Unprivileged).unwrap();
    let starter = Starter { identity: Identity::Unprivileged, binary: boxed::place(&home).unwrap() };
    let data = TempDir::with_prefix("rw-code-").unwrap();
    let fixture = Fixture { server: Arc::new(Server::start_as(&starter, data, &[])) };
    fixture.change_settings(&json!({ "browser": { "allowed_hosts": [pages.host()] } }));
    let opened = expect_success(fixture.browse("navigate", json!({ "url": pages.at("/form") })));
    assert_eq!((&opened["title"], &opened["browser"]), (&json!("Form"), &json!("external")));
    let picture = fixture.browse("screenshot", json!({}));
    assert!(picture["screenshot"].as_str().unwrap().starts_with("iVBORw0KGgo"), "a PNG");
    assert_eq!(fixture.shell("echo '<title>Own</title>' > x.html")["success"], true);
    let url = json!({ "url": "file:///workspace/x.html" });
    let opened = expect_success(fixture.browse_in("navigate", url, json!({ "needs_file_access": true })));
    assert_eq!((&opened["title"], &opened["browser"]), (&json!("Own"), &json!("sandbox")));
    expect_success(fixture.browse("close", json!({})));
    assert!(fixture.chromium_processes().is_empty());
}
