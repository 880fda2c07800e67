//! Runs code that a person has edited in an approval as a new exec, which is validated, assessed
//! and recorded from the start and refers to the original one. The original exec ends as replaced
//! and has never run.
//!
//! A recorded intent never changes, so an exec always runs what its own intent says. The edit is
//! not an approval: if the edited code needs one, the server asks again.

use futures::future::BoxFuture;
use ringwall_ids::ApprovalId;
use serde_json::json;

use crate::error::Error;
use crate::exec::code::{CodeBegun, CodeRequest, Input};
use crate::exec::lifecycle::{Exec, Step};
use crate::exec::outcome::ExecResult;
use crate::exec::spec::{ExecSpec, Target};
use crate::service::Service;

impl Exec {
    /// Admits the edited code as a new exec and returns the result of this one.
    pub(crate) async fn replace_code(&self, edited: String, approval: &ApprovalId, by: &str) -> Step<ExecResult> {
        let Target::Code(code) = &self.spec.target else {
            return Err(ExecResult::internal("a person can edit only code").into());
        };
        let request = CodeRequest { code: edited, ..code.request.clone() };
        // The new exec of a process keeps an open input. A terminal whose command needs an approval
        // is cancelled, so its command is never edited.
        let input = match &code.stdin {
            Input::Open => Input::Open,
            Input::Ends | Input::Terminal(_) => Input::Ends,
        };
        let author = self.spec.author.clone();
        let mut spec = self.service.read_code(author, code.session.clone(), request, input).await?;
        if let Target::Code(next) = &mut spec.target {
            next.replaces = Some(json!({ "exec_id": self.intent.exec_id, "approval": approval, "changed_by": by }));
        }
        let next = self.service.begin_next(spec).await?;
        let result = ExecResult::replaced_by(&next.exec_id);
        // Cannot fail: an exec is replaced at most once.
        let _ = code.replacement.set(next);
        Ok(result)
    }
}

impl Service {
    /// Boxed, because admitting an exec from within another one's future would make the future's
    /// type recursive.
    fn begin_next(&self, spec: ExecSpec) -> BoxFuture<'static, Result<CodeBegun, Error>> {
        let service = self.clone();
        Box::pin(async move { service.begin_spec(spec).await })
    }
}
