//! Waits for an exec until it ends, needs an approval, or the client cancels the request, which
//! cancels the exec.
//!
//! Meanwhile a client that sent a progress token gets progress notifications.

use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt as _;
use ringwall_service::{
    Announcement, ApprovalId, ApprovalStream, ApprovalTopic, ApprovalView, Error, Event, EventKind, ExecId, ExecView,
    OutputPart, Service, StreamEnd,
};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

use super::caller::Caller;
use super::results::{RunError, RunSummary};

/// Limit of each output stream in a result, in bytes. The whole output is a resource.
pub(super) const MAX_SHOWN_BYTES: u64 = 256 * 1024;
/// Between two progress notifications about output.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Characters of output in one notification.
const MAX_PROGRESS_CHARS: usize = 400;

/// The event that ended the wait.
#[derive(Debug)]
pub(super) enum Followed {
    Ended(Box<ExecView>),
    /// The exec needs an approval.
    Asks(Box<ApprovalView>),
    /// The client cancelled the request.
    GivenUp,
}

/// Waits for one exec on behalf of one request.
pub(super) struct Follower<'a> {
    pub(super) service: &'a Service,
    pub(super) caller: &'a Caller,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) exec_id: ExecId,
    following: Option<ApprovalStream>,
    /// Set if another approval was opened while the user was asked about the first.
    has_missed_approval: bool,
    progress: Option<Progress>,
}

type Events = Pin<Box<dyn futures::Stream<Item = Result<Event, Error>> + Send>>;

impl<'a> Follower<'a> {
    pub(super) async fn new(
        service: &'a Service,
        caller: &'a Caller,
        context: &'a RequestContext<RoleServer>,
        exec_id: ExecId,
    ) -> Result<Self, Error> {
        let following = service.follow_approvals(&caller.principal, ApprovalTopic::Exec(exec_id.clone()))?;
        let progress = match context.meta.get_progress_token() {
            Some(token) => {
                let events: Events = Box::pin(service.events(&caller.principal, &exec_id, None).await?);
                Some(Progress { peer: context.peer.clone(), token, events, printed: 0, reported: 0, last: None })
            }
            None => None,
        };
        Ok(Self { service, caller, context, exec_id, following: Some(following), has_missed_approval: false, progress })
    }

    /// Waits until the exec ends, needs an approval, or the request is cancelled.
    pub(super) async fn follow(&mut self) -> Result<Followed, Error> {
        // A new subscription begins with the approvals that are open.
        if std::mem::take(&mut self.has_missed_approval) && self.following.is_some() {
            let topic = ApprovalTopic::Exec(self.exec_id.clone());
            self.following = Some(self.service.follow_approvals(&self.caller.principal, topic)?);
        }
        let finished = self.service.finished(&self.caller.principal, &self.exec_id);
        tokio::pin!(finished);
        loop {
            tokio::select! {
                biased;
                () = self.context.ct.cancelled() => break,
                view = &mut finished => return Ok(Followed::Ended(Box::new(view?))),
                news = next_announcement(&mut self.following) => match news {
                    Ok(Announcement::Opened(view)) => return Ok(Followed::Asks(Box::new((*view).clone()))),
                    Ok(Announcement::Resolved(_)) => {}
                    // A new subscription begins with the approvals that are open.
                    Err(StreamEnd::Lagged) => {
                        let topic = ApprovalTopic::Exec(self.exec_id.clone());
                        self.following = Some(self.service.follow_approvals(&self.caller.principal, topic)?);
                    }
                    Err(StreamEnd::Stopping) => self.following = None,
                },
                () = send_progress(&mut self.progress) => {}
            }
        }
        cancel(self.service, self.caller, &self.exec_id).await;
        Ok(Followed::GivenUp)
    }

    /// Returns when this approval was answered elsewhere or closed.
    pub(super) async fn settled(&mut self, id: &ApprovalId) {
        loop {
            match next_announcement(&mut self.following).await {
                Ok(Announcement::Resolved(view)) if view.id == *id => return,
                Ok(Announcement::Opened(_)) => self.has_missed_approval = true,
                Ok(Announcement::Resolved(_)) => {}
                // Announcements were missed; the next `follow` begins with the open approvals.
                Err(StreamEnd::Lagged) => {
                    let topic = ApprovalTopic::Exec(self.exec_id.clone());
                    self.following = self.service.follow_approvals(&self.caller.principal, topic).ok();
                    return;
                }
                Err(StreamEnd::Stopping) => self.following = None,
            }
        }
    }
}

/// Cancels the exec of a cancelled request.
pub(super) async fn cancel(service: &Service, caller: &Caller, exec_id: &ExecId) {
    match service.cancel(&caller.principal, exec_id).await {
        // It may have ended by itself meanwhile.
        Ok(_) | Err(Error::AlreadyEnded(_)) => {}
        Err(error) => tracing::warn!(%exec_id, %error, "could not cancel the exec of a cancelled MCP request"),
    }
}

async fn next_announcement(following: &mut Option<ApprovalStream>) -> Result<Announcement, StreamEnd> {
    match following {
        Some(following) => following.next().await,
        None => std::future::pending().await,
    }
}

/// Progress notifications for a request with a progress token.
struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    events: Events,
    printed: u64,
    reported: u64,
    last: Option<Instant>,
}

/// Sends the next progress notification. Never returns if there is nothing more to send.
async fn send_progress(progress: &mut Option<Progress>) {
    let Some(active) = progress else { return std::future::pending().await };
    match active.events.next().await {
        Some(Ok(Event { kind: EventKind::Output { bytes, .. }, .. })) => {
            active.printed += bytes.len() as u64;
            let is_due = active.last.is_none_or(|last| last.elapsed() >= PROGRESS_INTERVAL);
            if is_due && active.printed > active.reported {
                active.reported = active.printed;
                active.last = Some(Instant::now());
                let message = last_line(&bytes);
                active.notify(message).await;
            }
        }
        Some(Ok(Event { kind: EventKind::Status(status), .. })) => {
            // The progress value must grow with each notification, so a status counts as one byte.
            active.printed += 1;
            active.reported = active.printed;
            active.notify(status.to_string()).await;
        }
        Some(Ok(Event { kind: EventKind::End(_), .. }) | Err(_)) | None => *progress = None,
    }
}

impl Progress {
    async fn notify(&mut self, message: String) {
        #[expect(clippy::cast_precision_loss, reason = "progress need not be exact")]
        let progress = self.reported as f64;
        let reported = ProgressNotificationParam::new(self.token.clone(), progress).with_message(message);
        // Fails if the client has disconnected, which also cancels the request.
        let _ = self.peer.notify_progress(reported).await;
    }
}

/// The beginning of the last line of the output.
fn last_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.trim_end().rsplit('\n').next().unwrap_or_default();
    line.chars().take(MAX_PROGRESS_CHARS).collect()
}

/// The result of an exec, as far as it has come.
pub(super) async fn summarize(service: &Service, view: &ExecView) -> Result<RunSummary, Error> {
    let exec_id = &view.summary.exec_id;
    let mut ran = RunSummary {
        status: view.summary.status.to_string(),
        exec_id: exec_id.to_string(),
        exit_code: view.summary.exit_code,
        error: view
            .error_reason
            .as_ref()
            .map(|reason| RunError { code: reason.code.clone(), message: reason.message.clone() }),
        sandbox_type: view.summary.backend.clone(),
        execution_time_ms: view.summary.duration_ms.unwrap_or(0),
        ..RunSummary::default()
    };
    // An exec that never ran has no output.
    if view.summary.started_at.is_some() && view.protections.is_some() {
        let [stdout, stderr] = service.printed(view, MAX_SHOWN_BYTES).await?;
        (ran.stdout_truncated, ran.stderr_truncated) = (is_cut(&stdout), is_cut(&stderr));
        (ran.stdout, ran.stderr) = (stdout.into_text(), stderr.into_text());
    }
    Ok(ran)
}

fn is_cut(part: &OutputPart) -> bool {
    part.truncated || part.total > part.bytes.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glimpse_is_the_last_line() {
        assert_eq!(last_line(b"one\ntwo\n"), "two");
        assert_eq!(last_line(b""), "");
        assert_eq!(last_line(&[b'x'; 1000]).len(), MAX_PROGRESS_CHARS);
        assert_eq!(last_line("aé\nüß".as_bytes()), "üß");
    }
}
