//! Rules of a session (confirmation and security mode): a user can only tighten those of an
//! operator, also by deleting the session.

use serde_json::{Value, json};
use tests::support::server::Answer;

use crate::fixture::{Fixture, code_of};

/// A server with user `ann` and an agent of hers.
struct SessionFixture {
    base: Fixture,
    user: String,
    agent: String,
}

impl SessionFixture {
    fn start() -> Self {
        Self::start_with_env(&[])
    }

    fn start_with_env(env: &[(&str, &str)]) -> Self {
        let base = Fixture::start_with_env(env);
        let (user, agent) = (base.user_token("ann"), base.agent_token("ann", "default"));
        let fixture = Self { base, user, agent };
        fixture.create(&json!({ "session_id": "s" })).expect(201);
        fixture
    }

    fn create(&self, body: &Value) -> Answer {
        self.base.server.ask_as(&self.user, "POST", "/api/sessions", Some(body))
    }

    fn put_as_user(&self, body: &Value) -> Answer {
        self.base.change_session_as(&self.user, "s", body)
    }

    fn put_as_operator(&self, body: &Value) -> Value {
        self.base.server.ask("PUT", "/api/sessions/s?user_id=ann", Some(body)).expect(200)
    }

    fn delete_as(&self, token: &str) {
        self.base.server.ask_as(token, "DELETE", "/api/sessions/s", None).expect(200);
    }

    fn recreate(&self) -> Value {
        self.create(&json!({ "session_id": "s" })).expect(201)
    }

    fn session(&self) -> Value {
        self.base.server.ask_as(&self.user, "GET", "/api/sessions/s", None).expect(200)
    }

    /// Makes the session older than the retention of 24 hours and runs the garbage collection.
    fn retire(&self) {
        let session = self.base.server.data().join("workspaces/ann/default/sessions/s");
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_hours(30);
        for path in [session.join(".used"), session] {
            std::fs::File::open(path).unwrap().set_modified(long_ago).unwrap();
        }
        assert_eq!(self.base.server.ask("POST", "/api/gc", None).expect(200)["sessions"], 1);
    }
}

fn confirmation(mode: &str) -> Value {
    json!({ "confirmation": mode })
}

/// The control for the tests below: without a rule of an operator the same requests succeed.
#[test]
fn user_sets_and_takes_back_auto_reject_without_operator_rule() {
    let fixture = SessionFixture::start();
    assert_eq!(fixture.put_as_user(&confirmation("auto-reject")).expect(200)["confirmation"], "auto-reject");
    assert_eq!(fixture.put_as_user(&confirmation("websocket")).expect(200)["confirmation"], "websocket");
    fixture.put_as_user(&confirmation("auto-reject")).expect(200);
    fixture.delete_as(&fixture.user);
    assert_eq!(fixture.recreate()["confirmation"], "websocket");
}

#[test]
fn user_cannot_lift_operators_auto_reject() {
    let fixture = SessionFixture::start();
    fixture.put_as_operator(&confirmation("auto-reject"));
    assert_eq!(code_of(fixture.put_as_user(&confirmation("websocket")), 403), "FORBIDDEN");
    assert_eq!(fixture.session()["confirmation"], "auto-reject");
}

#[test]
fn user_cannot_go_below_setting_for_all_sessions() {
    let fixture = SessionFixture::start();
    fixture.base.change_settings(&json!({ "sessions": { "confirmation": "auto-reject" } }));
    assert_eq!(fixture.put_as_user(&confirmation("websocket")).status, 403);
    assert_eq!(fixture.create(&json!({ "session_id": "t", "confirmation": "websocket" })).status, 403);
    let refused = fixture.base.server.ask_as(&fixture.user, "GET", "/api/sessions/t", None);
    assert_eq!(refused.status, 404, "a refused session is not made");
}

#[test]
fn older_user_rule_does_not_override_stricter_setting() {
    let fixture = SessionFixture::start();
    fixture.put_as_user(&confirmation("websocket")).expect(200);
    fixture.base.change_settings(&json!({ "sessions": { "confirmation": "auto-reject" } }));
    assert_eq!(fixture.session()["confirmation"], "auto-reject");
}

#[test]
fn user_may_tighten_operators_auto_approve() {
    let fixture = SessionFixture::start();
    fixture.put_as_operator(&json!({ "confirmation": "auto-approve", "security_mode": "permissive" }));
    let tightened = fixture.put_as_user(&json!({ "confirmation": "websocket", "security_mode": "strict" })).expect(200);
    assert_eq!((&tightened["confirmation"], &tightened["security_mode"]), (&json!("websocket"), &json!("strict")));
}

#[test]
fn operators_auto_reject_survives_deletion() {
    let fixture = SessionFixture::start();
    fixture.put_as_operator(&confirmation("auto-reject"));
    fixture.delete_as(&fixture.user);
    assert_eq!(fixture.recreate()["confirmation"], "auto-reject");
    assert_eq!(fixture.put_as_user(&confirmation("websocket")).status, 403);
    // A second deletion changes nothing either, and the operator can change the rule.
    fixture.delete_as(&fixture.user);
    assert_eq!(fixture.create(&json!({ "session_id": "s", "confirmation": "websocket" })).status, 403);
    fixture.recreate();
    assert_eq!(fixture.put_as_operator(&confirmation("websocket"))["confirmation"], "websocket");
}

#[test]
fn operators_auto_reject_survives_retention() {
    let fixture = SessionFixture::start();
    fixture.put_as_operator(&confirmation("auto-reject"));
    fixture.retire();
    assert_eq!(fixture.recreate()["confirmation"], "auto-reject");
}

#[test]
fn operators_auto_reject_survives_removal_by_hand() {
    let fixture = SessionFixture::start();
    fixture.put_as_operator(&confirmation("auto-reject"));
    std::fs::remove_dir_all(fixture.base.server.data().join("workspaces/ann/default/sessions/s")).unwrap();
    assert_eq!(fixture.recreate()["confirmation"], "auto-reject");
}

#[test]
fn operators_loosening_rule_ends_with_session() {
    let fixture = SessionFixture::start();
    fixture.put_as_operator(&json!({ "confirmation": "auto-approve", "security_mode": "permissive" }));
    fixture.delete_as(&fixture.user);
    let again = fixture.recreate();
    assert_eq!((&again["confirmation"], &again["security_mode"]), (&json!("websocket"), &json!("strict")));
}

#[test]
fn operators_strict_survives_deletion_under_permissive_settings() {
    let fixture = SessionFixture::start();
    fixture.base.change_settings(&json!({ "sessions": { "security_mode": "permissive" } }));
    fixture.put_as_operator(&json!({ "security_mode": "strict" }));
    fixture.delete_as(&fixture.user);
    assert_eq!(fixture.recreate()["security_mode"], "strict");
}

#[test]
fn users_auto_reject_survives_deletion_by_agent() {
    let fixture = SessionFixture::start();
    fixture.put_as_user(&confirmation("auto-reject")).expect(200);
    fixture.delete_as(&fixture.agent);
    let body = json!({ "session_id": "s" });
    let made = fixture.base.server.ask_as(&fixture.agent, "POST", "/api/sessions", Some(&body)).expect(201);
    assert_eq!(made["confirmation"], "auto-reject");
}

#[test]
fn rule_does_not_apply_to_session_of_other_agent() {
    let fixture = SessionFixture::start();
    fixture.put_as_operator(&confirmation("auto-reject"));
    let made = fixture.create(&json!({ "session_id": "s", "agent_id": "other" })).expect(201);
    assert_eq!(made["confirmation"], "websocket");
}

#[test]
fn user_cannot_leave_operators_callback() {
    let fixture = SessionFixture::start_with_env(&[("RINGWALL_APPROVALS_WEBHOOK_SECRET", "hunter2 and more")]);
    let url = "http://127.0.0.1:1/hook";
    fixture.put_as_operator(&json!({ "confirmation": "callback", "callback_url": url }));
    assert_eq!(fixture.put_as_user(&confirmation("websocket")).status, 403);
    fixture.put_as_user(&confirmation("callback")).expect(200);
    fixture.delete_as(&fixture.user);
    fixture.recreate();
    let seen = fixture.base.server.ask("GET", "/api/sessions/s?user_id=ann", None).expect(200);
    assert_eq!((&seen["confirmation"], &seen["callback_url"]), (&json!("callback"), &json!(url)));
}

/// PUT by an operator races with DELETE and re-creation by the user. In any order, a PUT that
/// returned 200 stays in force.
#[test]
fn accepted_operator_rule_survives_concurrent_deletion() {
    let fixture = SessionFixture::start();
    for round in 0..20 {
        let put = std::thread::scope(|scope| {
            let server = &fixture.base.server;
            let put = scope.spawn(move || {
                let body = confirmation("auto-reject");
                server.ask("PUT", "/api/sessions/s?user_id=ann", Some(&body)).status
            });
            fixture.base.server.ask_as(&fixture.user, "DELETE", "/api/sessions/s", None);
            fixture.create(&json!({ "session_id": "s" }));
            put.join().unwrap()
        });
        assert!(put == 200 || put == 404, "round {round}: {put}");
        let expected = if put == 200 { "auto-reject" } else { "websocket" };
        assert_eq!(fixture.session()["confirmation"], expected, "round {round}");
        fixture.put_as_operator(&confirmation("websocket"));
    }
}
