//! Records the policy that an exec runs under, if it differs from the policy of its intent: after
//! an approval, or because settings or allowed paths changed while the exec waited.
//!
//! An intent never changes, so this policy is stored in a table of its own, with an audit entry,
//! before the box is created. Reads of the exec return it in place of the intent's policy.

use ringwall_ids::{AgentId, ExecId, UserId};
use serde_json::{Value as Json, json};

use crate::audit::entry::{Draft, Event};
use crate::db::statement::{Statement, check_text};
use crate::digest::Digest;
use crate::error::Error;
use crate::exec::rows::NewExec;
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;
use crate::writer::queue::Operation;

impl Store {
    /// After an error the exec must not run.
    pub async fn record_policy(&self, exec: &NewExec, snapshot: &Json, at: Timestamp) -> Result<(), Error> {
        let text = snapshot.to_string();
        check_text("policy_snapshot", &text)?;
        let detail = json!({
            "policy": snapshot["version"],
            "path_control": snapshot["path_control"],
            "when_disabled": snapshot["when_disabled"],
            "paths": snapshot["paths"],
            "digest": Digest::of(text.as_bytes()).to_string(),
        });
        let owner = (exec.user_id.clone(), exec.agent_id.clone());
        self.submit(RecordPolicy { exec_id: exec.exec_id.clone(), owner, text, detail, at }).await
    }
}

struct RecordPolicy {
    exec_id: ExecId,
    owner: (UserId, AgentId),
    text: String,
    detail: Json,
    at: Timestamp,
}

impl Operation for RecordPolicy {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        let text = "INSERT INTO exec_policies (exec_id, snapshot) VALUES ($1, $2) \
                    ON CONFLICT (exec_id) DO UPDATE SET snapshot = excluded.snapshot";
        let insertion = Statement::new("record the policy of an exec", text);
        ledger.execute(insertion.bind(self.exec_id.as_str()).bind(self.text.as_str())).await?;
        let event = Event {
            at: self.at,
            actor: "ringwall".to_owned(),
            action: "exec.policy".to_owned(),
            subject: self.exec_id.to_string(),
            user_id: Some(self.owner.0.clone()),
            agent_id: Some(self.owner.1.clone()),
            detail: self.detail.clone(),
        };
        ledger.append(Draft { event, digest: None });
        Ok(())
    }
}
