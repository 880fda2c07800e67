//! Approvals of browser actions: in each confirmation mode, after a change of the page, and for
//! hosts.

use std::net::TcpListener;

use serde_json::{Value, json};
use tests::support::wait::wait_until;

use crate::fixture::{Delivery, Fixture};
use crate::pages::{Pages, expect_failure, expect_success};

const SECRET: &str = "hunter2-never-told";
const SCRIPT: &str = "document.title = 'scripted'";

/// Two actions that need an approval, and the page's title after each.
fn risky_actions() -> [(&'static str, Value, String); 2] {
    [
        ("fill", json!({ "selector": "#p", "value": SECRET }), format!("typed {}", SECRET.len())),
        ("evaluate", json!({ "script": SCRIPT }), "scripted".to_owned()),
    ]
}

/// The next question at the callback; resolutions are skipped.
fn next_question(hook: &TcpListener) -> Value {
    loop {
        let response: Value = serde_json::from_slice(&Delivery::next(hook).bytes).unwrap();
        if response["type"] != "permission_resolved" {
            return response;
        }
    }
}

#[test]
fn password_and_script_follow_the_confirmation_mode() {
    let pages = Pages::serve(0);
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", hook.local_addr().unwrap());
    let fixture = Fixture::start_with_env(&[
        ("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host()),
        ("RINGWALL_APPROVALS_WEBHOOK_SECRET", "hunter2 and more"),
    ]);
    let owner = fixture.server.token.clone();
    let title = || expect_success(fixture.browse("get_content", json!({})))["title"].clone();
    let called = json!({ "session_id": "s", "confirmation": "callback", "callback_url": url });
    fixture.server.ask("POST", "/api/sessions", Some(&called)).expect(201);
    for (action, params, title_after) in risky_actions() {
        expect_success(fixture.browse("navigate", json!({ "url": pages.at("/form?q=secret-query") })));
        for (answer, shown) in
            [(json!({ "approved": false }), "Form".to_owned()), (json!({ "approved": true }), title_after)]
        {
            let acting = fixture.begin_browsing(action, params.clone());
            let response = next_question(&hook);
            assert_eq!((&response["kind"], &response["session_id"]), (&json!("risk"), &json!("s")), "{response}");
            assert_eq!(response["code"] == SCRIPT, action == "evaluate", "{response}");
            let all = response.to_string();
            assert!(
                all.contains(&pages.at("/form")) && !all.contains("secret-query") && !all.contains(SECRET),
                "{all}"
            );
            fixture.answer(&json!({ "id": response["request_id"] }), &answer).expect(200);
            assert_eq!(acting.join().unwrap()["success"], answer["approved"]);
            // Chromium reports a new title a little later.
            wait_until(&shown, || title() == shown);
        }
    }
    for (mode, verdict) in [("auto-reject", "denied"), ("auto-approve", "approved")] {
        fixture.change_session_as(&owner, "s", &json!({ "confirmation": mode })).expect(200);
        for (action, params, title_after) in risky_actions() {
            expect_success(fixture.browse("navigate", json!({ "url": pages.at("/form") })));
            let acted = fixture.browse(action, params);
            match verdict {
                "denied" => assert!(expect_failure(acted).starts_with("Refused:")),
                _ => drop(expect_success(acted)),
            }
            let shown = if verdict == "denied" { "Form".to_owned() } else { title_after };
            wait_until(&shown, || title() == shown);
            let newest = &fixture.approvals("")[0];
            assert_eq!((&newest["status"], &newest["answered_by"]), (&json!(verdict), &json!(mode)));
            assert!(!newest.to_string().contains(SECRET));
        }
    }
}

/// The page navigates while the approval is open. The approved action must not run on the new
/// document.
#[test]
fn approval_for_one_document_is_void_on_another() {
    let pages = Pages::serve(0);
    let fixture = Fixture::start_with_env(&[("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host())]);
    let mut seen = Vec::new();
    let about = |path: &str| format!("Browser at {}: ", pages.at(path));
    for (action, params, _) in risky_actions() {
        expect_success(fixture.browse("navigate", json!({ "url": pages.at("/leaves") })));
        let acting = fixture.begin_browsing(action, params);
        let question = fixture.next_question(&seen);
        assert!(question["command"].as_str().unwrap().starts_with(&about("/leaves")), "{question}");
        pages.change_document();
        fixture.answer(&question, &json!({ "approved": true })).expect(200);
        seen.push(question["id"].clone());
        let refused = expect_failure(acting.join().unwrap());
        assert!(refused.contains("the page changed since the action was checked"), "{refused}");
        assert_eq!(
            expect_success(fixture.browse("get_content", json!({})))["title"],
            "Arrives",
            "the action ran on the new document"
        );
        // The next question is about the new document.
        fixture
            .change_session_as(&fixture.server.token.clone(), "s", &json!({ "confirmation": "auto-approve" }))
            .expect(200);
        let left = expect_success(fixture.browse("evaluate", json!({ "script": "p.value.length" })));
        assert_eq!(left["value"], 0, "{left}");
        assert!(fixture.approvals("")[0]["command"].as_str().unwrap().starts_with(&about("/arrives")));
        fixture
            .change_session_as(&fixture.server.token.clone(), "s", &json!({ "confirmation": "websocket" }))
            .expect(200);
    }
}

/// A model names fields by the references of an outline, so the kind of field must be read from the
/// page.
#[test]
fn secret_field_asks_for_reference_and_selector() {
    let pages = Pages::serve(0);
    let fixture = Fixture::start_with_env(&[("RINGWALL_BROWSER_ALLOWED_HOSTS", &pages.host())]);
    expect_success(fixture.browse("navigate", json!({ "url": pages.at("/secrets") })));
    let outline = expect_success(fixture.browse("get_content", json!({ "format": "outline" })));
    let outline = outline["content"].as_str().unwrap().to_owned();
    let reference = |role: &str| {
        let line = outline.lines().find(|line| line.contains(role)).unwrap_or_else(|| panic!("{outline}"));
        line.split("[ref=").nth(1).unwrap().split(']').next().unwrap().to_owned()
    };
    let risky_actions = [
        ("fill", json!({ "ref": reference("textbox"), "value": SECRET }), "typed"),
        ("fill", json!({ "selector": "#x", "value": SECRET }), "typed"),
        ("select", json!({ "ref": reference("combobox"), "values": ["02"] }), "chosen"),
        ("select", json!({ "selector": "#m", "values": ["01"] }), "chosen"),
    ];
    let mut seen = Vec::new();
    for (action, params, title_after) in risky_actions {
        let acting = fixture.begin_browsing(action, params.clone());
        let question = fixture.next_question(&seen);
        assert_eq!((&question["kind"], &question["risk_level"]), (&json!("risk"), &json!("high")), "{question}");
        seen.push(question["id"].clone());
        fixture.answer(&question, &json!({ "approved": true })).expect(200);
        expect_success(acting.join().unwrap());
        // Chromium reports a new title a little later.
        wait_until(title_after, || expect_success(fixture.browse("get_content", json!({})))["title"] == title_after);
    }
}

/// The question about a host that is in no list belongs to the action, and its answer can be
/// remembered.
#[test]
fn sandbox_browser_asks_for_unknown_host() {
    let (listed, pages) = (Pages::serve(0), Pages::serve(0));
    let hosts = format!("{} {}", listed.host(), pages.host());
    let fixture = Fixture::start_with_env(&[
        ("RINGWALL_NET_MODE", "allowlist"),
        ("RINGWALL_NET_ALLOW", &listed.host()),
        ("RINGWALL_NET_UNKNOWN", "ask"),
        ("RINGWALL_EGRESS_ALLOWED_HOSTS", &hosts),
    ]);
    let sandbox = json!({ "is_research": true });
    expect_success(fixture.browse_in("navigate", json!({ "url": "about:blank" }), sandbox));
    assert_eq!(
        expect_success(fixture.browse("navigate", json!({ "url": listed.at("/form") })))["title"],
        "Form",
        "a listed host needs no approval"
    );
    let mut seen = Vec::new();
    for (answer, is_there) in [
        (json!({ "approved": false }), false),
        (json!({ "approved": true }), true),
        (json!({ "approved": true, "remember": true }), true),
    ] {
        // A new browser each time, because an approval is valid until the browser is closed.
        expect_success(fixture.browse("close", json!({})));
        expect_success(fixture.browse_in("navigate", json!({ "url": "about:blank" }), json!({ "is_research": true })));
        let acting = fixture.begin_browsing("navigate", json!({ "url": pages.at("/form?secret-query") }));
        let question = fixture.next_question(&seen);
        seen.push(question["id"].clone());
        assert_eq!((&question["kind"], &question["requested_paths"]), (&json!("network"), &json!([pages.host()])));
        assert_eq!(question["command"], json!(format!("Browser: navigate {}", pages.at("/form"))), "{question}");
        assert_eq!(question["exec_id"], fixture.last_action()["action_id"], "{question}");
        fixture.answer(&question, &answer).expect(200);
        let response = acting.join().unwrap();
        match is_there {
            true => assert_eq!(expect_success(response)["title"], "Form"),
            false => {
                assert_eq!(expect_failure(response), format!("{} was refused: a person has denied it", pages.host()))
            }
        }
        // A connection that ends after its action is listed with the next one.
        let outcome = if is_there { "allowed" } else { "refused" };
        wait_until(outcome, || {
            fixture.browse("get_content", json!({}));
            let view = fixture.server.ask("GET", "/api/browser/s", None).expect(200);
            let actions = view["actions"].as_array().unwrap();
            let own = actions.iter().position(|action| action["action_id"] == question["exec_id"]).unwrap();
            let response = actions[..=own].iter().flat_map(|action| action["connections"].as_array().unwrap());
            response.into_iter().any(|connection| connection["outcome"] == outcome)
        });
        if is_there {
            assert_eq!(
                expect_success(fixture.browse("navigate", json!({ "url": pages.at("/secrets") })))["title"],
                "Secrets"
            );
        }
    }
    expect_success(fixture.browse("close", json!({})));
    let url = json!({ "url": pages.at("/form") });
    assert_eq!(
        expect_success(fixture.browse_in("navigate", url, json!({ "is_research": true })))["title"],
        "Form",
        "remembered"
    );
    assert!(fixture.last_action()["connections"].to_string().contains("remembered from an earlier approval"));
    assert_eq!(fixture.pending(), [Value::Null; 0]);
}
