//! Sample execs, outcomes and events.

use ringwall_ids::ExecId;
use ringwall_record::{Event, ExecOutcome, FinalStatus, NewExec, Reason, Start, StoredOutput, Timestamp};
use serde_json::json;

pub fn at(milliseconds: i64) -> Timestamp {
    Timestamp::from_milliseconds(milliseconds)
}

pub fn exec_id(number: u64) -> ExecId {
    format!("e_{number:016x}").parse().unwrap()
}

pub fn running(number: u64) -> NewExec {
    NewExec {
        exec_id: exec_id(number),
        user_id: "ann".parse().unwrap(),
        agent_id: "helper".parse().unwrap(),
        caller: "t_0123456789abcdef".to_owned(),
        from: json!({ "door": "http" }),
        idempotency: None,
        project_id: "demo".to_owned(),
        task_id: None,
        conversation_id: None,
        skill_id: None,
        backend: "native".to_owned(),
        image: None,
        cmd: "bash".to_owned(),
        args: vec!["-lc".to_owned(), "echo \"é\0\" '; DROP TABLE audit; --".to_owned()],
        cwd: "work".to_owned(),
        env_keys: vec!["PATH".to_owned()],
        policy_snapshot: json!({ "version": "abc", "limits": { "pids": 256 } }),
        artifacts_path: format!("projects/demo/artifacts/{}", exec_id(number)),
        created_at: at(1_000 + i64::try_from(number).unwrap()),
        start: Start::Running { started_at: at(1_001) },
    }
}

pub fn queued(number: u64) -> NewExec {
    NewExec { start: Start::Queued, ..running(number) }
}

pub fn denied(number: u64) -> NewExec {
    NewExec { start: Start::Denied(reason("POLICY_DENIED")), ..running(number) }
}

pub fn reason(code: &str) -> Reason {
    Reason { code: code.to_owned(), message: "refused by a test".to_owned() }
}

pub fn ended(status: FinalStatus) -> ExecOutcome {
    ExecOutcome {
        status,
        exit_code: Some(0),
        error_reason: None,
        ended_at: at(2_000),
        duration_ms: Some(7),
        protections: None,
        stdout: StoredOutput::Complete,
        stderr: StoredOutput::Complete,
        cpu_ms: None,
        max_rss_bytes: None,
    }
}

pub fn event(number: i64) -> Event {
    Event {
        at: at(number),
        actor: "ann".to_owned(),
        action: "door.opened".to_owned(),
        subject: format!("door {number}"),
        user_id: Some("ann".parse().unwrap()),
        agent_id: None,
        detail: json!({ "number": number }),
    }
}
