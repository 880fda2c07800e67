//! Waits until an exec or a browser action ends, needs an approval, or the client cancels the
//! request.
//!
//! Meanwhile a client that sent a progress token gets progress notifications about an exec.

use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt as _;
use ringwall_service::{
    Announcement, ApprovalId, ApprovalStream, ApprovalTopic, ApprovalView, Error, Event, EventKind, ExecId, StreamEnd,
};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

use super::call::{Call, Ended, Started};

/// Between two progress notifications about output.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(250);
/// Characters of output in one notification.
const MAX_PROGRESS_CHARS: usize = 400;

/// The event that ended the wait.
pub(super) enum Followed {
    Ended(Ended),
    /// It needs an approval.
    Asks(Box<ApprovalView>),
    /// The client cancelled the request.
    Cancelled,
}

/// Follows one exec or browser action for one request.
pub(super) struct Follower<'a> {
    call: &'a Call<'a>,
    pub(super) exec_id: ExecId,
    /// `None` after the server began to stop.
    following: Option<ApprovalStream>,
    /// Set if another approval was opened while the user was asked about the first.
    has_missed_approval: bool,
    progress: Option<Progress>,
}

type Events = Pin<Box<dyn futures::Stream<Item = Result<Event, Error>> + Send>>;

impl<'a> Follower<'a> {
    pub(super) async fn new(call: &'a Call<'a>, started: &Started) -> Result<Self, Error> {
        let exec_id = started.exec_id();
        let following = Some(follow_approvals(call, &exec_id)?);
        let progress = match call.context.meta.get_progress_token() {
            Some(token) if !matches!(started, Started::Browser(_)) => {
                let events: Events = Box::pin(call.service.events(&call.caller.principal, &exec_id, None).await?);
                Some(Progress { peer: call.context.peer.clone(), token, events, printed: 0, reported: 0, last: None })
            }
            Some(_) | None => None,
        };
        Ok(Self { call, exec_id, following, has_missed_approval: false, progress })
    }

    /// Waits until `ended` completes, an approval is needed, or the request is cancelled.
    pub(super) async fn follow(
        &mut self,
        ended: impl Future<Output = Result<Ended, Error>>,
    ) -> Result<Followed, Error> {
        if std::mem::take(&mut self.has_missed_approval) && self.following.is_some() {
            self.following = Some(follow_approvals(self.call, &self.exec_id)?);
        }
        tokio::pin!(ended);
        loop {
            tokio::select! {
                biased;
                () = self.call.context.ct.cancelled() => return Ok(Followed::Cancelled),
                ended = &mut ended => return Ok(Followed::Ended(ended?)),
                news = next_announcement(&mut self.following) => match news {
                    Ok(Announcement::Opened(view)) => return Ok(Followed::Asks(Box::new((*view).clone()))),
                    Ok(Announcement::Resolved(_)) => {}
                    Err(StreamEnd::Lagged) => self.following = Some(follow_approvals(self.call, &self.exec_id)?),
                    Err(StreamEnd::Stopping) => self.following = None,
                },
                () = send_progress(&mut self.progress) => {}
            }
        }
    }

    /// Returns when this approval has been answered or has ended.
    pub(super) async fn settled(&mut self, id: &ApprovalId) {
        loop {
            match next_announcement(&mut self.following).await {
                Ok(Announcement::Resolved(view)) if view.id == *id => return,
                Ok(Announcement::Opened(_)) => self.has_missed_approval = true,
                Ok(Announcement::Resolved(_)) => {}
                // Announcements were missed; the next `follow` begins with the open approvals.
                Err(StreamEnd::Lagged) => {
                    self.following = follow_approvals(self.call, &self.exec_id).ok();
                    return;
                }
                Err(StreamEnd::Stopping) => self.following = None,
            }
        }
    }
}

/// Begins with the approvals that are open.
fn follow_approvals(call: &Call<'_>, exec_id: &ExecId) -> Result<ApprovalStream, Error> {
    call.service.follow_approvals(&call.caller.principal, ApprovalTopic::Exec(exec_id.clone()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_message_is_the_last_line() {
        assert_eq!(last_line(b"one\ntwo\n"), "two");
        assert_eq!(last_line(b""), "");
        assert_eq!(last_line(&[b'x'; 1000]).len(), MAX_PROGRESS_CHARS);
        assert_eq!(last_line("aé\nüß".as_bytes()), "üß");
    }
}
