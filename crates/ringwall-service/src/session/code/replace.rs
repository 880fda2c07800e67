//! Runs code that a person has edited in an approval as a new exec, which is validated, assessed
//! and recorded from the start and refers to the original one. The original exec ends as replaced
//! and has never run.
//!
//! A recorded intent never changes, so an exec always runs what its own intent says. The edit is
//! not an approval: if the edited code needs one, the server asks again.

use futures::future::BoxFuture;
use ringwall_ids::{ApprovalId, ExecId};
use ringwall_record::Reason;
use serde_json::json;

use crate::error::Error;
use crate::error::codes::RUNTIME_ERROR;
use crate::exec::code::CodeRequest;
use crate::exec::code::Input;
use crate::exec::lifecycle::Exec;
use crate::exec::outcome::ExecResult;
use crate::exec::spec::{ExecSpec, Target};
use crate::exec::submit::Submitted;
use crate::service::Service;

const REPLACED: &str = "REPLACED";
/// Prefix of the recorded reason; the id of the new exec follows.
const GOES_ON_AS: &str = "a person changed its code, which goes on as ";

impl Exec {
    /// Admits the edited code as a new exec and returns the result of this one.
    pub(crate) async fn replace_code(&self, modified: String, approval: &ApprovalId, by: &str) -> ExecResult {
        let failed = |error: Error| ExecResult::failed(error.code(), error.to_string());
        let Target::Code(code) = &self.spec.target else {
            return ExecResult::failed(RUNTIME_ERROR, "only code can be changed by a person");
        };
        let request = CodeRequest { code: modified, ..code.request.clone() };
        // The new exec of a process keeps an open input. A terminal whose command needs an approval
        // is cancelled, so its command is never edited.
        let input = match &code.stdin {
            Input::Open => Input::Open,
            Input::Ends | Input::Terminal(_) => Input::Ends,
        };
        let author = self.spec.author.clone();
        let read = self.service.read_code(author, code.place.clone(), request, code.run_notes.clone(), input).await;
        let mut spec = match read {
            Ok(spec) => spec,
            Err(error) => return failed(error),
        };
        if let Target::Code(next) = &mut spec.target {
            next.replaces = Some(json!({ "exec_id": self.intent.exec_id, "approval": approval, "changed_by": by }));
        }
        let next = match self.service.admit_next(spec).await {
            Ok(submitted) => submitted.exec_id,
            // The new exec is recorded, although it was denied.
            Err(Error::Denied { exec_id, .. }) => exec_id,
            Err(error) => return failed(error),
        };
        code.run_notes.go_on_as(next.clone());
        replaced(&next)
    }
}

impl Service {
    /// Boxed, because admitting an exec from within another one's future would make the future's
    /// type recursive.
    fn admit_next(&self, spec: ExecSpec) -> BoxFuture<'static, Result<Submitted, Error>> {
        let service = self.clone();
        Box::pin(async move { service.admit(spec).await })
    }
}

fn replaced(next: &ExecId) -> ExecResult {
    ExecResult {
        status: ringwall_record::FinalStatus::Cancelled,
        ..ExecResult::failed(REPLACED, format!("{GOES_ON_AS}{next}"))
    }
}

/// The exec that replaced the one which ended with `reason`, if it was replaced.
pub(crate) fn goes_on_as(reason: &Reason) -> Option<ExecId> {
    let Reason { code, message } = reason;
    message.strip_prefix(GOES_ON_AS).filter(|_| code == REPLACED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_exec_names_its_successor() {
        let next: ExecId = "e_0123456789abcdef0123456789abcdef".parse().expect("an id");
        let reason = replaced(&next).reason.expect("a reason");
        assert_eq!(goes_on_as(&reason), Some(next));
        let other = Reason { code: "CANCELLED".to_owned(), ..reason };
        assert_eq!(goes_on_as(&other), None);
    }
}
