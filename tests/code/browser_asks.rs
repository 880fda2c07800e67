//! Who is asked about what a browser would do, in each mode of a session, and that an answer is worth nothing on another page.

use std::net::TcpListener;

use serde_json::{Value, json};
use tests::support::wait::wait_until;

use crate::pages::{Pages, bad, good};
use crate::site::{Delivery, Site};

const SECRET: &str = "hunter2-never-told";
const SCRIPT: &str = "document.title = 'scripted'";

/// Both that are asked about, and the title that a form has when they were done.
fn deeds() -> [(&'static str, Value, String); 2] {
    [
        ("fill", json!({ "selector": "#p", "value": SECRET }), format!("typed {}", SECRET.len())),
        ("evaluate", json!({ "script": SCRIPT }), "scripted".to_owned()),
    ]
}

/// The next question that is brought to a callback; what became of others is brought there too.
fn next_question(hook: &TcpListener) -> Value {
    loop {
        let told: Value = serde_json::from_slice(&Delivery::next(hook).bytes).unwrap();
        if told["type"] != "permission_resolved" {
            return told;
        }
    }
}

#[test]
fn a_password_and_a_script_are_asked_about_in_each_mode() {
    let pages = Pages::serve(0);
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", hook.local_addr().unwrap());
    let site = Site::start_under(&[
        ("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host()),
        ("RINGWALL_APPROVALS_WEBHOOK_SECRET", "hunter2 and more"),
    ]);
    let owner = site.server.token.clone();
    let title = || good(site.browse("get_content", json!({})))["title"].clone();
    let called = json!({ "session_id": "s", "confirmation": "callback", "callback_url": url });
    site.server.ask("POST", "/api/sessions", Some(&called)).expect(201);
    for (action, params, done) in deeds() {
        good(site.browse("navigate", json!({ "url": pages.at("/form?q=secret-query") })));
        for (answer, shown) in [(json!({ "approved": false }), "Form".to_owned()), (json!({ "approved": true }), done)]
        {
            let acting = site.begin_browsing(action, params.clone());
            let told = next_question(&hook);
            assert_eq!((&told["kind"], &told["session_id"]), (&json!("risk"), &json!("s")), "{told}");
            assert_eq!(told["code"] == SCRIPT, action == "evaluate", "{told}");
            let all = told.to_string();
            assert!(
                all.contains(&pages.at("/form")) && !all.contains("secret-query") && !all.contains(SECRET),
                "{all}"
            );
            site.answer(&json!({ "id": told["request_id"] }), &answer).expect(200);
            assert_eq!(acting.join().unwrap()["success"], answer["approved"]);
            // Chromium hears of a page's new title a little after the page has it.
            wait_until(&shown, || title() == shown);
        }
    }
    for (mode, verdict) in [("auto-reject", "denied"), ("auto-approve", "approved")] {
        site.rule(&owner, "s", &json!({ "confirmation": mode })).expect(200);
        for (action, params, done) in deeds() {
            good(site.browse("navigate", json!({ "url": pages.at("/form") })));
            let acted = site.browse(action, params);
            match verdict {
                "denied" => assert!(bad(acted).starts_with("Refused:")),
                _ => drop(good(acted)),
            }
            let shown = if verdict == "denied" { "Form".to_owned() } else { done };
            wait_until(&shown, || title() == shown);
            let newest = &site.approvals("")[0];
            assert_eq!((&newest["status"], &newest["answered_by"]), (&json!(verdict), &json!(mode)));
            assert!(!newest.to_string().contains(SECRET));
        }
    }
}

/// The page goes elsewhere by itself while a person thinks: what they allow is not done to what came in its place.
#[test]
fn an_answer_about_one_page_is_worth_nothing_on_another() {
    let pages = Pages::serve(0);
    let site = Site::start_under(&[("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host())]);
    let mut seen = Vec::new();
    let about = |path: &str| format!("Browser at {}: ", pages.at(path));
    for (action, params, _) in deeds() {
        good(site.browse("navigate", json!({ "url": pages.at("/leaves") })));
        let acting = site.begin_browsing(action, params);
        let question = site.next_question(&seen);
        assert!(question["command"].as_str().unwrap().starts_with(&about("/leaves")), "{question}");
        pages.lead_on();
        site.answer(&question, &json!({ "approved": true })).expect(200);
        seen.push(question["id"].clone());
        let refused = bad(acting.join().unwrap());
        assert!(refused.contains("another one than the one that was asked about"), "{refused}");
        assert_eq!(good(site.browse("get_content", json!({})))["title"], "Arrives", "nothing was done to it");
        // Where the page is now is what the next question is about.
        site.rule(&site.server.token.clone(), "s", &json!({ "confirmation": "auto-approve" })).expect(200);
        let left = good(site.browse("evaluate", json!({ "script": "p.value.length" })));
        assert_eq!(left["value"], 0, "{left}");
        assert!(site.approvals("")[0]["command"].as_str().unwrap().starts_with(&about("/arrives")));
        site.rule(&site.server.token.clone(), "s", &json!({ "confirmation": "websocket" })).expect(200);
    }
}

/// By the reference that an outline gives it and not by its name, which is what a model does.
#[test]
fn a_field_is_asked_about_however_it_is_named() {
    let pages = Pages::serve(0);
    let site = Site::start_under(&[("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host())]);
    good(site.browse("navigate", json!({ "url": pages.at("/secrets") })));
    let outline = good(site.browse("get_content", json!({ "format": "outline" })));
    let outline = outline["content"].as_str().unwrap().to_owned();
    let reference = |role: &str| {
        let line = outline.lines().find(|line| line.contains(role)).unwrap_or_else(|| panic!("{outline}"));
        line.split("[ref=").nth(1).unwrap().split(']').next().unwrap().to_owned()
    };
    let deeds = [
        ("fill", json!({ "ref": reference("textbox"), "value": SECRET }), "typed"),
        ("fill", json!({ "selector": "#x", "value": SECRET }), "typed"),
        ("select", json!({ "ref": reference("combobox"), "values": ["02"] }), "chosen"),
        ("select", json!({ "selector": "#m", "values": ["01"] }), "chosen"),
    ];
    let mut seen = Vec::new();
    for (action, params, done) in deeds {
        let acting = site.begin_browsing(action, params.clone());
        let question = site.next_question(&seen);
        assert_eq!((&question["kind"], &question["risk_level"]), (&json!("risk"), &json!("high")), "{question}");
        seen.push(question["id"].clone());
        site.answer(&question, &json!({ "approved": true })).expect(200);
        good(acting.join().unwrap());
        // Chromium hears of a page's new title a little after the page has it.
        wait_until(done, || good(site.browse("get_content", json!({})))["title"] == done);
    }
}

/// The host of a page that is in no list: the person is asked in the action's name, and what they remember counts.
#[test]
fn a_sandbox_browser_asks_about_hosts_as_code_does() {
    let (listed, pages) = (Pages::serve(0), Pages::serve(0));
    let hosts = format!("{} {}", listed.host(), pages.host());
    let site = Site::start_under(&[
        ("RINGWALL_NET_MODE", "allowlist"),
        ("RINGWALL_NET_ALLOW", &listed.host()),
        ("RINGWALL_NET_UNKNOWN", "ask"),
        ("RINGWALL_EGRESS_ALLOWED_HOSTS", &hosts),
    ]);
    let sandbox = json!({ "is_research": true });
    good(site.browse_in("navigate", json!({ "url": "about:blank" }), sandbox));
    assert_eq!(good(site.browse("navigate", json!({ "url": listed.at("/form") })))["title"], "Form", "nobody is asked");
    let mut seen = Vec::new();
    for (answer, is_there) in [
        (json!({ "approved": false }), false),
        (json!({ "approved": true }), true),
        (json!({ "approved": true, "remember": true }), true),
    ] {
        // A browser of its own each time: what was allowed once holds as long as one lives.
        good(site.browse("close", json!({})));
        good(site.browse_in("navigate", json!({ "url": "about:blank" }), json!({ "is_research": true })));
        let acting = site.begin_browsing("navigate", json!({ "url": pages.at("/form?secret-query") }));
        let question = site.next_question(&seen);
        seen.push(question["id"].clone());
        assert_eq!((&question["kind"], &question["requested_paths"]), (&json!("network"), &json!([pages.host()])));
        assert_eq!(question["command"], json!(format!("Browser: navigate {}", pages.at("/form"))), "{question}");
        assert_eq!(question["exec_id"], site.last_action()["action_id"], "{question}");
        site.answer(&question, &answer).expect(200);
        let told = acting.join().unwrap();
        match is_there {
            true => assert_eq!(good(told)["title"], "Form"),
            false => assert_eq!(bad(told), format!("{} was refused: a person has denied it", pages.host())),
        }
        // What is over a little later than its action is told with the next one.
        let outcome = if is_there { "allowed" } else { "refused" };
        wait_until(outcome, || {
            site.browse("get_content", json!({}));
            let view = site.server.ask("GET", "/api/browser/s", None).expect(200);
            let actions = view["actions"].as_array().unwrap();
            let own = actions.iter().position(|action| action["action_id"] == question["exec_id"]).unwrap();
            let told = actions[..=own].iter().flat_map(|action| action["connections"].as_array().unwrap());
            told.into_iter().any(|connection| connection["outcome"] == outcome)
        });
        if is_there {
            assert_eq!(good(site.browse("navigate", json!({ "url": pages.at("/secrets") })))["title"], "Secrets");
        }
    }
    good(site.browse("close", json!({})));
    let url = json!({ "url": pages.at("/form") });
    assert_eq!(good(site.browse_in("navigate", url, json!({ "is_research": true })))["title"], "Form", "remembered");
    assert!(site.last_action()["connections"].to_string().contains("allowed before by a person"));
    assert_eq!(site.pending(), [Value::Null; 0]);
}
