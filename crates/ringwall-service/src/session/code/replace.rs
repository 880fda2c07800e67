//! Code that a person has changed: another exec, read, judged and recorded from the start, which refers to the one that was
//! asked about. That one ends as replaced and has never run.
//!
//! An intent never changes once it is on record; so what runs is always what its own intent says. The person's word was about
//! their text and allows nothing by itself: where that deserves care too, it is asked about anew.

use futures::future::BoxFuture;
use ringwall_record::{ApprovalId, ExecId, Reason};
use serde_json::json;

use crate::error::Error;
use crate::error::codes::RUNTIME_ERROR;
use crate::exec::code::CodeRequest;
use crate::exec::code::Input;
use crate::exec::lifecycle::Exec;
use crate::exec::order::{Ground, Order};
use crate::exec::outcome::Told;
use crate::exec::submit::Submitted;
use crate::service::Service;

const REPLACED: &str = "REPLACED";
/// Before the id of the next one, in the record's words.
const GOES_ON_AS: &str = "a person changed its code, which goes on as ";

impl Exec {
    /// Has the changed code run in this one's stead, and gives the ending of this one.
    pub(crate) async fn replace_code(&self, modified: String, approval: &ApprovalId, by: &str) -> Told {
        let failed = |error: Error| Told::failed(error.code(), error.to_string());
        let Ground::Code(code) = &self.order.ground else {
            return Told::failed(RUNTIME_ERROR, "only code can be changed by a person");
        };
        let request = CodeRequest { code: modified, ..code.request.clone() };
        // Whoever talks with a process goes on talking with it. Nobody changes what is to run at a terminal: that is not asked.
        let input = match &code.stdin {
            Input::Open => Input::Open,
            Input::Ends | Input::Terminal(_) => Input::Ends,
        };
        let author = self.order.author.clone();
        let read = self.service.read_code(author, code.place.clone(), request, code.trail.clone(), input).await;
        let mut order = match read {
            Ok(order) => order,
            Err(error) => return failed(error),
        };
        if let Ground::Code(next) = &mut order.ground {
            next.replaces = Some(json!({ "exec_id": self.intent.exec_id, "approval": approval, "changed_by": by }));
        }
        let next = match self.service.admit_next(order).await {
            Ok(submitted) => submitted.exec_id,
            // On record, and never to run.
            Err(Error::Denied { exec_id, .. }) => exec_id,
            Err(error) => return failed(error),
        };
        code.trail.go_on_as(next.clone());
        replaced(&next)
    }
}

impl Service {
    /// An exec that is admitted from within another one's life, which therefore has to have a type of its own.
    fn admit_next(&self, order: Order) -> BoxFuture<'static, Result<Submitted, Error>> {
        let service = self.clone();
        Box::pin(async move { service.admit(order).await })
    }
}

fn replaced(next: &ExecId) -> Told {
    Told { status: ringwall_record::FinalStatus::Cancelled, ..Told::failed(REPLACED, format!("{GOES_ON_AS}{next}")) }
}

/// The exec as which one goes on that ended for this reason, if it does.
pub(crate) fn goes_on_as(reason: &Reason) -> Option<ExecId> {
    let Reason { code, message } = reason;
    message.strip_prefix(GOES_ON_AS).filter(|_| code == REPLACED)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_says_by_what() {
        let next: ExecId = "e_0123456789abcdef0123456789abcdef".parse().expect("an id");
        let reason = replaced(&next).reason.expect("a reason");
        assert_eq!(goes_on_as(&reason), Some(next));
        let other = Reason { code: "CANCELLED".to_owned(), ..reason };
        assert_eq!(goes_on_as(&other), None);
    }
}
