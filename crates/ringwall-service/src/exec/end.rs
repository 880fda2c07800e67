//! Records the one outcome of an exec, then announces it.
//!
//! A failed write is retried until it succeeds or the server stops. An exec without a recorded
//! outcome is LOST at the next start, and its end is not announced before. Values that the database
//! rejects are not retried: the exec is then recorded as FAILED without them.

use std::sync::Arc;
use std::time::Duration;

use ringwall_record::{ExecOutcome, FinishResult, Scope, Status};

use crate::blocking::briefly;
use crate::error::causes;
use crate::error::codes::RUNTIME_ERROR;
use crate::exec::lifecycle::{Exec, Remains, RunSummary};
use crate::exec::outcome::ExecResult;
use crate::exec::queue::Slot;
use crate::exec::registry::ExecState;
use crate::exec::view::ExecView;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(5);

impl Exec {
    /// Stores the remaining files while the outcome is being recorded. The slot is free before the
    /// end is announced, so a client that then submits the next exec finds it free.
    pub(crate) async fn conclude(self, ran: RunSummary, remains: Option<Remains>, slot: Option<Slot>) {
        let ending = ran.ending();
        let store_artifacts = async {
            if let Some(remains) = remains {
                briefly(|| self.store_artifacts(remains));
            }
        };
        let (view, ()) = tokio::join!(biased; self.finish(ending), store_artifacts);
        drop(slot);
        if let Some(view) = view {
            self.service.inner.counters.ended(&view.summary.user_id, view.summary.status, &view.summary.backend);
            self.running.set_state(ExecState::Over(Some(Arc::new(view))));
        }
        // Drops the service first: when the last registration is gone, the data directory can be
        // opened again.
        let Self { service, registration, .. } = self;
        drop(service);
        drop(registration);
    }

    async fn finish(&self, ending: ExecOutcome) -> Option<ExecView> {
        let (store, exec_id) = (&self.service.inner.store, &self.intent.exec_id);
        let (mut ending, mut is_bare) = (ending, false);
        let mut pause = FIRST_PAUSE;
        loop {
            let view = async {
                let mut view = ExecView::intended(&self.intent);
                view.end(&ending);
                view
            };
            // Builds the view while the outcome is being written.
            let (finished, view) = tokio::join!(biased; store.finish(&self.intent, &ending), view);
            match finished {
                Ok(FinishResult::Recorded) => return Some(view),
                Ok(FinishResult::AlreadyEnded(_)) => {
                    return store.exec(exec_id, &Scope::All).await.ok().flatten().map(ExecView::from);
                }
                Err(error) => match after(&error, is_bare) {
                    // The intent was unconfirmed and turned out not to be recorded.
                    Next::Nothing if matches!(error, ringwall_record::Error::UnknownExec(_)) => return None,
                    Next::Nothing => {
                        let (status, error) = (Status::from(ending.status), causes(&error));
                        tracing::error!(%exec_id, %status, %error, "an ending was not recorded, and will be LOST");
                        return None;
                    }
                    Next::Bare => {
                        tracing::error!(%exec_id, error = %causes(&error), "an ending cannot be recorded as it is");
                        (ending, is_bare) = (bare(&ending), true);
                    }
                    Next::Again => {
                        tracing::error!(%exec_id, error = %causes(&error), "could not record an ending; trying again");
                        tokio::time::sleep(pause).await;
                        pause = (pause * 2).min(MAX_PAUSE);
                    }
                },
            }
        }
    }
}

/// The next step after the database refused an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Again,
    /// Retry with only the fields that any database row can hold.
    Bare,
    Nothing,
}

fn after(error: &ringwall_record::Error, is_bare: bool) -> Next {
    match error {
        ringwall_record::Error::UnknownExec(_) | ringwall_record::Error::Closed => Next::Nothing,
        error if !error.is_invalid_input() => Next::Again,
        _ if is_bare => Next::Nothing,
        _ => Next::Bare,
    }
}

/// A minimal outcome in place of one that the database rejects. Its status is FAILED in any case.
fn bare(ending: &ExecOutcome) -> ExecOutcome {
    let result = ExecResult::failed(RUNTIME_ERROR, "what is known of its ending cannot be recorded");
    ExecOutcome {
        ended_at: ending.ended_at,
        stdout: ending.stdout,
        stderr: ending.stderr,
        ..RunSummary::never(result).ending()
    }
}

#[cfg(test)]
mod tests {
    use ringwall_record::Error;

    use super::*;

    #[test]
    fn permanent_error_is_not_retried() {
        let [number, text] = [Error::NumberTooLarge { column: "max_rss_bytes" }, Error::NulByte { column: "reason" }];
        for error in [number, text] {
            assert_eq!((after(&error, false), after(&error, true)), (Next::Bare, Next::Nothing), "{error}");
        }
        assert_eq!((after(&Error::Busy, false), after(&Error::Busy, true)), (Next::Again, Next::Again));
        assert_eq!(after(&Error::Closed, false), Next::Nothing);
        let mut ran = RunSummary::never(ExecResult::failed("X", "a\0b"));
        ran.peak_memory_bytes = Some(u64::MAX);
        let bare = bare(&ran.ending());
        assert_eq!((bare.max_rss_bytes, bare.cpu_ms, bare.exit_code), (None, None, None));
        assert!(bare.error_reason.is_some_and(|reason| reason.code == RUNTIME_ERROR && !reason.message.contains('\0')));
    }
}
