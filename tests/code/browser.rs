//! The browser of a session, through the real binary with a real Chromium: pages on this machine's loopback, which is allowed by
//! the setting that is meant for that. Few trials, because each Chromium takes its time.

use std::sync::Arc;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::actor::{Identity, Mode};
use tests::support::scratch::Scratch;
use tests::support::server::{Server, Starter};
use tests::support::wait::{wait_for, wait_until};
use tests::support::{boxed, host};

use crate::pages::{Pages, bad, good};
use crate::site::Site;

const SECRET: &str = "hunter2-never-stored";

#[test]
fn an_external_browser_acts_asks_and_is_kept_from_private_addresses() {
    let elsewhere = Pages::serve(0);
    let pages = Pages::serve(elsewhere.port);
    let site = Site::start_under(&[("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host())]);
    // What is not understood, and what is not to be opened, needs no browser.
    for wrong in [
        json!({"action": "teleport"}),
        json!({"action": "click", "params": {"selektor": "a"}}),
        json!({"action": "navigate", "params": {"url": "https://a.com"}, "contex": {}}),
    ] {
        let told = site.server.ask("POST", "/api/browser/s", Some(&wrong)).expect(400);
        assert_eq!((&told["success"], &told["data"], &told["screenshot"]), (&json!(false), &json!(null), &json!(null)));
        assert!(told["error"].as_str().is_some_and(|error| !error.is_empty()), "{told}");
    }
    for url in [
        elsewhere.at("/"),
        format!("http://2130706433:{}/", elsewhere.port),
        "http://169.254.169.254/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "javascript:alert(1)".to_owned(),
    ] {
        bad(site.browse("navigate", json!({ "url": url })));
    }
    // An operator narrows what it may reach, down to nothing.
    for (mode, words) in [("allowlist", "browser.allowed_hosts"), ("off", "browser.external")] {
        site.set(&json!({ "browser": { "external": mode } }));
        let refused = bad(site.browse("navigate", json!({ "url": "https://example.com/" })));
        assert!(refused.contains(words), "{refused}");
    }
    assert!(bad(site.browse("get_content", json!({}))).contains("needs_file_access"), "what there is instead is told");
    site.set(&json!({ "browser": { "external": "allowlist" } }));
    assert!(site.browsers().is_empty());
    let opened = good(site.browse("navigate", json!({ "url": pages.at("/form") })));
    site.set(&json!({ "browser": { "external": "on" } }));
    let mail = bad(site.browse("navigate", json!({ "url": "http://example.com:25/" })));
    assert!(mail.contains("is not a web port"), "{mail}");
    assert_eq!(
        (&opened["title"], &opened["status"], &opened["browser"]),
        (&json!("Form"), &json!(200), &json!("external"))
    );
    good(site.browse("fill", json!({ "selector": "#q", "value": "hello" })));
    // A password is typed when a person says so, and nobody is shown it.
    let typing = site.begin_browsing("fill", json!({ "selector": "#p", "value": SECRET }));
    let question = site.next_question(&[]);
    assert_eq!((&question["kind"], &question["risk_level"]), (&json!("risk"), &json!("high")), "{question}");
    assert!(question["command"].as_str().unwrap().contains("password"), "{question}");
    site.answer(&question, &json!({ "approved": true })).expect(200);
    good(typing.join().unwrap());
    // It arrived; Chromium hears of a page's new title a little after the page has it.
    let typed = format!("typed {}", SECRET.len());
    wait_until("what was typed", || good(site.browse("get_content", json!({})))["title"] == typed);
    // So is each key of it; one that moves on types nothing.
    let before = [question["id"].clone()];
    let pressing = site.begin_browsing("press", json!({ "key": "x" }));
    let question = site.next_question(&before);
    assert!(question["command"].as_str().unwrap().contains("type into a password field"), "{question}");
    assert!(!question.to_string().contains("key"), "{question}");
    site.answer(&question, &json!({ "approved": true })).expect(200);
    good(pressing.join().unwrap());
    let typed = format!("typed {}", SECRET.len() + 1);
    wait_until("one more", || good(site.browse("get_content", json!({})))["title"] == typed);
    good(site.browse("press", json!({ "key": "Tab" })));
    site.set(&json!({ "sessions": { "confirmation": "auto-reject" } }));
    assert!(bad(site.browse("evaluate", json!({ "script": "1" }))).starts_with("Refused:"));
    let picture = site.browse("screenshot", json!({}));
    assert!(picture["screenshot"].as_str().unwrap().starts_with("iVBORw0KGgo"), "a PNG");
    good(site.browse("click", json!({ "selector": "#go" })));
    let done = good(site.browse("get_content", json!({})));
    assert!(done["content"].as_str().unwrap().contains("q=hello"), "{done}");
    let printed = good(site.browse("pdf", json!({})));
    assert_eq!(printed["files"], json!(["data/page.pdf"]), "{printed}");
    assert_eq!(site.shell("head -c 5 data/page.pdf")["stdout"], "%PDF-");
    let back = good(site.browse("back", json!({})));
    assert_eq!((&back["navigated"], &back["url"]), (&json!(true), &json!(pages.at("/form"))), "{back}");
    // On the way to another address nobody is met.
    for path in ["/redirect", "/metadata"] {
        let refused = bad(site.browse("navigate", json!({ "url": pages.at(path) })));
        assert!(refused.contains("refused"), "{refused}");
    }
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    bad(site.browse("navigate", json!({ "url": format!("http://{name}:{}/", elsewhere.port) })));
    assert_eq!(elsewhere.count(), 0, "judged by where a name leads");
    let kept = good(site.browse("download", json!({ "url": pages.at("/file") })));
    assert_eq!(kept["files"], json!(["data/report.txt"]), "{kept}");
    let read = site.shell("cat data/report.txt");
    assert_eq!(read["stdout"], "downloaded", "{read}");
    // One that dies is replaced, and that is told.
    let [browser] = site.browsers().try_into().unwrap();
    host::end(browser).unwrap();
    site.wait_for_no_browser();
    site.has_no_zombies();
    let after = good(site.browse("navigate", json!({ "url": pages.at("/form") })));
    assert!(after["notes"][0].as_str().is_some_and(|note| note.contains("lost")), "{after}");
    let view = site.server.ask("GET", "/api/browser/s", None).expect(200);
    assert_eq!((&view["kind"], &view["title"]), (&json!("external"), &json!("Form")), "{view}");
    let all = view["actions"].to_string();
    assert!(all.contains("refused") && all.contains("169.254.169.254") && !all.contains(SECRET), "{all}");
    let audit = site.server.ask("GET", "/api/audit?limit=500", None).expect(200).to_string();
    assert!(audit.contains("browser.intent") && audit.contains("browser.outcome") && !audit.contains(SECRET));
    let verified = site.server.ask("POST", "/api/audit/verify", None).expect(200);
    assert_eq!(verified["intact"], true, "{verified}");
    // Nobody else's.
    let bob = site.user("bob");
    let theirs = site.server.ask_as(&bob, "GET", "/api/browser/s", None).expect(200);
    assert_eq!((&theirs["kind"], &theirs["actions"]), (&json!(null), &json!([])));
    let foreign = json!({ "action": "get_content", "user_id": "default" });
    site.server.ask_as(&bob, "POST", "/api/browser/s", Some(&foreign)).expect(404);
    // Switched off, the one that is there goes with the next action.
    site.set(&json!({ "browser": { "external": "off" } }));
    assert!(bad(site.browse("get_content", json!({}))).contains("browser.external"));
    assert!(site.browsers().is_empty());
    site.set(&json!({ "browser": { "external": "on" } }));
    good(site.browse("navigate", json!({ "url": pages.at("/form") })));
    good(site.browse("close", json!({})));
    assert!(site.browsers().is_empty());
    site.has_no_zombies();
    let stored: Vec<u8> = std::fs::read_dir(site.server.data())
        .unwrap()
        .filter_map(|entry| std::fs::read(entry.unwrap().path()).ok())
        .flatten()
        .collect();
    assert!(!stored.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "nothing typed is stored");
}

#[test]
fn a_sandbox_browser_shares_the_sessions_box() {
    let elsewhere = Pages::serve(0);
    let pages = Pages::serve(elsewhere.port);
    let host = pages.host();
    let site = Site::start_under(&[
        ("RINGWALL_NET_MODE", "allowlist"),
        ("RINGWALL_NET_ALLOW", &host),
        ("RINGWALL_EGRESS_ALLOWED_HOSTS", &format!("{host} {}", elsewhere.host())),
        ("RINGWALL_BROWSER_ALLOWED_HOSTS", &host),
    ]);
    site.set(&json!({ "sessions": { "confirmation": "auto-approve" } }));
    let sandbox = || json!({ "needs_file_access": true });
    let made = site.shell("echo '<title>Own</title>made here' > x.html");
    assert_eq!(made["success"], true, "{made}");
    let url = json!({ "url": "file:///workspace/x.html" });
    assert!(bad(site.browse("navigate", url.clone())).contains("sandbox"), "the external one sees no files");
    let opened = good(site.browse_in("navigate", url, sandbox()));
    assert_eq!((&opened["title"], &opened["browser"]), (&json!("Own"), &json!("sandbox")));
    let read = good(site.browse("get_content", json!({})));
    assert!(read["content"].as_str().unwrap().contains("made here"), "{read}");
    bad(site.browse_in("navigate", json!({ "url": "file:///etc/passwd" }), sandbox()));
    // By the list, and not beyond it.
    let listed = good(site.browse("navigate", json!({ "url": pages.at("/form") })));
    assert_eq!((&listed["title"], &listed["browser"]), (&json!("Form"), &json!("sandbox")));
    for command_came_between in [false, true] {
        if command_came_between {
            // Whatever that asked of the network was its own affair, and the browser's is the browser's again.
            assert_eq!(site.in_box("echo here"), "here\n");
        }
        let refused = bad(site.browse("navigate", json!({ "url": "http://example.com/" })));
        let words = "example.com:80 was refused: it is not among the hosts that this box may reach (net.allow)";
        assert_eq!(refused, words);
        let action = site.last_action();
        assert_eq!((&action["action"], &action["status"]), (&json!("navigate"), &json!("refused")), "{action}");
        // The address that was judged, and not one that Chromium would rather try.
        let of_page = |one: &&Value| one["host"] == "example.com";
        let asked: Vec<&Value> = action["connections"].as_array().unwrap().iter().filter(of_page).collect();
        assert!(!asked.is_empty(), "{action}");
        assert!(asked.iter().all(|one| one["port"] == 80 && one["outcome"] == "refused"), "{action}");
    }
    // A page that drops files by itself: the click is done, what can be kept is, and nothing stays in the box.
    good(site.browse("navigate", json!({ "url": pages.at("/drops") })));
    let mut answer = good(site.browse("click", json!({ "selector": "#b" })));
    let (mut files, mut notes) = (Vec::new(), Vec::new());
    wait_until("both files", || {
        files.extend(answer["files"].as_array().into_iter().flatten().cloned());
        notes.extend(answer["notes"].as_array().into_iter().flatten().cloned());
        answer = good(site.browse("scroll", json!({})));
        !files.is_empty() && !notes.is_empty()
    });
    assert_eq!(answer["title"], "clicked");
    assert_eq!(files, ["data/report.txt"]);
    assert!(notes.len() == 1 && notes[0].as_str().unwrap().contains("huge.bin was not kept"), "{notes:?}");
    assert_eq!(site.in_box("ls -A /tmp/browser-*/downloads"), "");
    assert_eq!(site.in_box("rm data/report.txt"), "");
    let kept = good(site.browse("download", json!({ "url": pages.at("/file") })));
    assert_eq!(kept["files"], json!(["data/report.txt"]), "{kept}");
    assert_eq!(site.shell("cat data/report.txt")["stdout"], "downloaded");
    // A switch closes the first.
    let first = site.browsers();
    assert_eq!(first.len(), 1);
    let other = good(site.browse_in("navigate", json!({ "url": pages.at("/form") }), json!({})));
    assert_eq!(other["browser"], "external", "{other}");
    assert!(!host::is_alive(first[0]));
    assert_eq!(site.left_in_box(), "", "after a switch");
    site.has_no_zombies();
    // So does whatever ends one: being closed, a crash, and that nobody uses it.
    for ending in ["close", "crash", "idle"] {
        if ending == "idle" {
            site.set(&json!({ "browser": { "idle_timeout_s": 1 } }));
        }
        good(site.browse_in("navigate", json!({ "url": "file:///workspace/x.html" }), sandbox()));
        if ending != "idle" {
            assert!(site.left_in_box().starts_with("/tmp/browser-"), "the control: there is a profile");
        }
        match ending {
            "close" => drop(good(site.browse("close", json!({})))),
            "crash" => host::end(site.browsers()[0]).unwrap(),
            _ => {}
        }
        site.wait_for_no_browser();
        assert_eq!(site.left_in_box(), "", "{ending}");
        assert!(site.browsers().is_empty());
        site.has_no_zombies();
    }
    site.set(&json!({ "browser": { "idle_timeout_s": null } }));
    let ends = site.server.ask("GET", "/api/audit?action=browser.closed", None).expect(200).to_string();
    assert!(!ends.contains("could not be removed"), "{ends}");
    good(site.browse_in("navigate", json!({ "url": pages.at("/form") }), json!({})));
    let last = site.browsers();
    assert_eq!(last.len(), 1);
    // Another session's, and then the end of everything.
    let body = json!({ "action": "navigate", "params": { "url": pages.at("/form") } });
    assert_eq!(site.server.ask("POST", "/api/browser/t", Some(&body)).expect(200)["success"], true);
    site.server.ask("DELETE", "/api/sessions/t", None).expect(200);
    assert_eq!(site.browsers(), last, "a session's end is its browser's");
    // One that stands still with its session's box is no reason to wait for it, neither for its session nor for the server.
    for session in ["t", "u"] {
        let body = json!({ "action": "navigate", "params": { "url": "file:///workspace/" }, "context": sandbox() });
        let path = format!("/api/browser/{session}");
        assert_eq!(site.server.ask("POST", &path, Some(&body)).expect(200)["success"], true);
        site.server.ask("POST", &format!("/api/sessions/{session}/pause"), None).expect(200);
        let refused = bad(site.server.ask("POST", &path, Some(&json!({ "action": "close" }))).expect(200));
        assert!(refused.contains("resume it first"), "{refused}");
    }
    site.server.ask("DELETE", "/api/sessions/t", None).expect(200);
    let below = host::descendants(site.server.id()).unwrap();
    site.server.signal(Signal::TERM);
    let mut server = Arc::into_inner(site.server).unwrap();
    assert_eq!(server.ended().code(), Some(0));
    assert_eq!(below.into_iter().filter(|number| host::is_alive(*number)).collect::<Vec<_>>(), [0; 0]);
    assert_eq!(elsewhere.count(), 0);
}

#[test]
fn places_are_few_and_an_idle_browser_goes() {
    let pages = Pages::serve(0);
    let site = Site::start_under(&[("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host())]);
    site.set(&json!({ "browser": { "max_instances": 1 } }));
    assert_eq!(site.shell("printf seven > data/in.txt")["success"], true);
    good(site.browse("navigate", json!({ "url": pages.at("/upload") })));
    good(site.browse("upload", json!({ "selector": "#f", "files": ["data/in.txt"] })));
    good(site.browse("wait_for", json!({ "text": "in.txt has seven" })));
    let missing = bad(site.browse("upload", json!({ "selector": "#f", "files": ["data/none.txt"] })));
    assert!(missing.contains("none.txt") || missing.contains("not found"), "{missing}");
    let first = site.browsers();
    // The next session's browser takes the place of one that nobody uses.
    let open_in_another = || {
        let body = json!({ "action": "navigate", "params": { "url": pages.at("/form") } });
        assert_eq!(site.server.ask("POST", "/api/browser/t", Some(&body)).expect(200)["success"], true);
    };
    open_in_another();
    assert!(!host::is_alive(first[0]));
    let after = good(site.browse("navigate", json!({ "url": pages.at("/form") })));
    assert!(after["notes"][0].as_str().is_some_and(|note| note.contains("needed its place")), "{after}");
    // And one goes by itself when nobody uses it, also one that has begun to wait under other settings.
    open_in_another();
    site.set(&json!({ "browser": { "idle_timeout_s": 1 } }));
    let is_gone = || site.server.ask("GET", "/api/browser/t", None).expect(200)["kind"].is_null();
    wait_until("the end of an idle browser", is_gone);
    assert!(site.browsers().is_empty());
    site.has_no_zombies();
}

#[test]
fn tools_drive_it_and_an_agent_waits_for_a_person() {
    let pages = Pages::serve(0);
    let site = Site::start_under(&[("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host())]);
    let agent = site.agent("default", "default");
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
        site.server.ask_with("POST", "/mcp", &headers, Some(&message)).expect(200)["result"].clone()
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
    let question = site.next_question(&[]);
    assert_eq!(question["id"], asked["approval"]["approval_id"]);
    site.answer(&question, &json!({ "approved": true })).expect(200);
    let told = wait_for("the end of an action", || {
        let told = call("approval_status", json!({ "approval_id": question["id"] }));
        (told["structuredContent"]["exec"]["status"] != "approval_pending").then_some(told)
    });
    assert_eq!(told["structuredContent"]["exec"]["status"], "SUCCEEDED", "{told}");
    assert_eq!(call("browser_close", json!({}))["isError"], false);
    assert!(site.browsers().is_empty());
}

/// Both browsers, in boxes that an ordinary user can make.
#[test]
fn the_server_of_an_ordinary_user_has_them_too() {
    if let Err(skip) = Mode::Rootless.available() {
        panic!("it cannot be tried here: {}", skip.reason());
    }
    let pages = Pages::serve(0);
    let home = Scratch::new(Identity::Unprivileged).unwrap();
    let starter = Starter { identity: Identity::Unprivileged, binary: boxed::place(&home).unwrap() };
    let data = TempDir::with_prefix("rw-code-").unwrap();
    let site = Site { server: Arc::new(Server::start_as(&starter, data, &[])) };
    site.set(&json!({ "browser": { "allowed_hosts": [pages.host()] } }));
    let opened = good(site.browse("navigate", json!({ "url": pages.at("/form") })));
    assert_eq!((&opened["title"], &opened["browser"]), (&json!("Form"), &json!("external")));
    let picture = site.browse("screenshot", json!({}));
    assert!(picture["screenshot"].as_str().unwrap().starts_with("iVBORw0KGgo"), "a PNG");
    assert_eq!(site.shell("echo '<title>Own</title>' > x.html")["success"], true);
    let url = json!({ "url": "file:///workspace/x.html" });
    let opened = good(site.browse_in("navigate", url, json!({ "needs_file_access": true })));
    assert_eq!((&opened["title"], &opened["browser"]), (&json!("Own"), &json!("sandbox")));
    good(site.browse("close", json!({})));
    assert!(site.browsers().is_empty());
}
