//! Requests that the policy denies are recorded; malformed requests are rejected without a record.

use ringwall_service::{AuditFilter, ClientClaim, Entry, Error, ExecFilter, ExecRequest, Limit, Origin, Scope, Status};
use serde_json::{Value, json};

use crate::fixture::{in_fixture, limited, shell};

pub fn denied_request_is_recorded() {
    in_fixture(async |fixture| {
        let kind = ExecRequest { kind: "perl".to_owned(), ..shell("true") };
        let command = ExecRequest { command: "sh".to_owned(), ..shell("true") };
        let nul = shell("echo \0");
        for (request, word) in [(kind, "perl"), (command, "bash"), (nul, "NUL")] {
            let Error::Denied { denial, exec_id } = fixture.refused(request).await else { panic!("{word}") };
            assert!(denial.message.contains(word), "{denial}");
            let view = fixture.service.exec(&fixture.owner, &exec_id).await.unwrap();
            assert_eq!(view.summary.status, Status::PolicyDenied);
            assert_eq!(view.error_reason.unwrap().message, denial.message);
            assert_eq!(
                fixture.service.finished(&fixture.owner, &exec_id).await.unwrap().summary.status,
                Status::PolicyDenied
            );
            assert!(fixture.service.artifacts(&fixture.owner, &exec_id).await.unwrap().files.is_empty());
        }
        let Error::Denied { denial, exec_id } = fixture.refused(limited("true", json!({"timeout_ms": 60_001}))).await
        else {
            panic!("more than allowed")
        };
        assert_eq!((denial.requested, denial.allowed), (Some(60_001), Some(60_000)));
        let view = fixture.service.exec(&fixture.owner, &exec_id).await.unwrap();
        assert_eq!(view.policy_snapshot["denied"]["field"], "timeout_ms");
        assert_eq!(view.policy_snapshot["denied"]["layer"], "system");
    });
}

pub fn intent_records_origin_of_request() {
    in_fixture(async |fixture| {
        let client = Some(ClientClaim::new("claude\u{1b}", "1.0"));
        let by = fixture.owner.clone().through(Origin { door: "mcp", remote: None, client });
        let submitted = fixture.service.submit(&by, shell("true")).await.unwrap();
        fixture.service.finished(&by, &submitted.exec_id).await.unwrap();
        let refused = fixture.service.submit(&by, ExecRequest { kind: "perl".to_owned(), ..shell("true") }).await;
        let Err(Error::Denied { exec_id, .. }) = refused else { panic!("{refused:?}") };
        let said = json!({ "door": "mcp", "role": "owner", "client_says": { "name": "claude", "version": "1.0" } });
        let entries = fixture
            .service
            .audit(&fixture.owner, AuditFilter::everything(Scope::All), Limit::nearest(10), None)
            .await
            .unwrap();
        for (action, subject) in [("exec.intent", submitted.exec_id), ("exec.denied", exec_id)] {
            let is_it = |entry: &&Entry| entry.action == action && entry.subject == subject.as_str();
            let entry = entries.items.iter().find(is_it).unwrap();
            let detail: Value = serde_json::from_str(&entry.detail).unwrap();
            assert_eq!(detail["from"], said, "{entry:?}");
        }
    });
}

pub fn malformed_request_is_not_recorded() {
    in_fixture(async |fixture| {
        let text = |text: &str| Some(text.to_owned());
        let wrong = [
            limited("true", json!({"timeout": 1})),
            limited("true", json!([])),
            limited("true", json!({"net": {"mode": "all"}})),
            ExecRequest { cwd: text("../x"), ..shell("true") },
            ExecRequest { cwd: text("artifacts"), ..shell("true") },
            ExecRequest { project_id: text("../p"), ..shell("true") },
            ExecRequest { project_id: None, ..shell("true") },
            ExecRequest { user_id: text("a/b"), ..shell("true") },
            ExecRequest { agent_id: text("skills"), ..shell("true") },
        ];
        for request in wrong {
            let error = fixture.refused(request).await;
            assert_eq!(error.code(), "INVALID_ARGUMENT", "{error}");
        }
        let execs =
            fixture.service.execs(&fixture.owner, ExecFilter::default(), Limit::nearest(10), None).await.unwrap();
        assert!(execs.items.is_empty());
    });
}

pub fn settings_are_operator_layer_of_policy() {
    in_fixture(async |fixture| {
        let change = async |patch| fixture.service.change_settings(&fixture.owner, patch).await;
        let shown = json!(change(json!({"sandbox": {"limits": {"timeout_ms": 120_000}}})).await.unwrap());
        assert_eq!(shown["sandbox"]["limits"]["timeout_ms"], 120_000);
        assert_eq!(shown["sandbox"]["max_concurrent_execs"], 4);
        let view = fixture.run(limited("true", json!({"timeout_ms": 110_000}))).await;
        assert_eq!(view.policy_snapshot["limits"]["timeout_ms"], 110_000);
        for wrong in [json!({"sandbox": {"limit": {}}}), json!({"sandbox": {"limits": {"pids": 513}}}), json!(3)] {
            assert_eq!(change(wrong).await.unwrap_err().code(), "INVALID_ARGUMENT");
        }
        assert_eq!(json!(fixture.service.settings(&fixture.owner).await.unwrap()), shown);
        let health = fixture.service.health(&fixture.owner, true).await;
        assert!(health.is_ready() && health.backends.native.available, "{health:?}");
    });
}
