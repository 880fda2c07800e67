//! Waits for an exec until it ends, needs an approval, or the client cancels the request, which
//! cancels the exec.
//!
//! Meanwhile a client that sent a progress token gets progress notifications.

use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt as _;
use ringwall_service::{
    Announcement, ApprovalId, ApprovalView, Error, Event, EventKind, ExecId, ExecView, Following, Gone, OutputPart,
    Service, Watched,
};
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use rmcp::{Peer, RoleServer};
use tokio::time::Instant;

use super::answers::{Failure, Ran};
use super::who::Who;

/// Limit of each output stream in a result, in bytes. The whole output is a resource.
pub(super) const SHOWN: u64 = 256 * 1024;
/// Between two progress notifications about output.
const BREATH: Duration = Duration::from_millis(250);
/// Characters of output in one notification.
const GLIMPSE: usize = 400;

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
    pub(super) who: &'a Who,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) exec_id: ExecId,
    following: Option<Following>,
    /// Set if another approval was opened while the user was asked about the first.
    has_missed: bool,
    progress: Option<Progress>,
}

type Events = Pin<Box<dyn futures::Stream<Item = Result<Event, Error>> + Send>>;

impl<'a> Follower<'a> {
    pub(super) async fn new(
        service: &'a Service,
        who: &'a Who,
        context: &'a RequestContext<RoleServer>,
        exec_id: ExecId,
    ) -> Result<Self, Error> {
        let following = service.follow_approvals(&who.principal, Watched::Exec(exec_id.clone()))?;
        let progress = match context.meta.get_progress_token() {
            Some(token) => {
                let events: Events = Box::pin(service.events(&who.principal, &exec_id, None).await?);
                Some(Progress { peer: context.peer.clone(), token, events, printed: 0, told: 0, last: None })
            }
            None => None,
        };
        Ok(Self { service, who, context, exec_id, following: Some(following), has_missed: false, progress })
    }

    /// Waits until the exec ends, needs an approval, or the request is cancelled.
    pub(super) async fn follow(&mut self) -> Result<Followed, Error> {
        // A new subscription begins with the approvals that are open.
        if std::mem::take(&mut self.has_missed) && self.following.is_some() {
            let watched = Watched::Exec(self.exec_id.clone());
            self.following = Some(self.service.follow_approvals(&self.who.principal, watched)?);
        }
        let finished = self.service.finished(&self.who.principal, &self.exec_id);
        tokio::pin!(finished);
        loop {
            tokio::select! {
                biased;
                () = self.context.ct.cancelled() => break,
                view = &mut finished => return Ok(Followed::Ended(Box::new(view?))),
                news = next_question(&mut self.following) => match news {
                    Ok(Announcement::Opened(view)) => return Ok(Followed::Asks(Box::new((*view).clone()))),
                    Ok(Announcement::Resolved(_)) => {}
                    // A new subscription begins with the approvals that are open.
                    Err(Gone::Behind) => {
                        let watched = Watched::Exec(self.exec_id.clone());
                        self.following = Some(self.service.follow_approvals(&self.who.principal, watched)?);
                    }
                    Err(Gone::Stopping) => self.following = None,
                },
                () = speak(&mut self.progress) => {}
            }
        }
        take_back(self.service, self.who, &self.exec_id).await;
        Ok(Followed::GivenUp)
    }

    /// Returns when this approval was answered elsewhere or closed.
    pub(super) async fn settled(&mut self, id: &ApprovalId) {
        loop {
            match next_question(&mut self.following).await {
                Ok(Announcement::Resolved(view)) if view.id == *id => return,
                Ok(Announcement::Opened(_)) => self.has_missed = true,
                Ok(Announcement::Resolved(_)) => {}
                // Announcements were missed; the next `follow` begins with the open approvals.
                Err(Gone::Behind) => {
                    let watched = Watched::Exec(self.exec_id.clone());
                    self.following = self.service.follow_approvals(&self.who.principal, watched).ok();
                    return;
                }
                Err(Gone::Stopping) => self.following = None,
            }
        }
    }
}

/// Cancels the exec of a cancelled request.
pub(super) async fn take_back(service: &Service, who: &Who, exec_id: &ExecId) {
    match service.cancel(&who.principal, exec_id).await {
        // It may have ended by itself meanwhile.
        Ok(_) | Err(Error::AlreadyEnded(_)) => {}
        Err(error) => tracing::warn!(%exec_id, %error, "could not cancel the exec of a cancelled MCP request"),
    }
}

async fn next_question(following: &mut Option<Following>) -> Result<Announcement, Gone> {
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
    told: u64,
    last: Option<Instant>,
}

/// Sends the next progress notification. Never returns if there is nothing more to send.
async fn speak(progress: &mut Option<Progress>) {
    let Some(speaking) = progress else { return std::future::pending().await };
    match speaking.events.next().await {
        Some(Ok(Event { kind: EventKind::Output { bytes, .. }, .. })) => {
            speaking.printed += bytes.len() as u64;
            let is_due = speaking.last.is_none_or(|last| last.elapsed() >= BREATH);
            if is_due && speaking.printed > speaking.told {
                speaking.told = speaking.printed;
                speaking.last = Some(Instant::now());
                let words = glimpse(&bytes);
                speaking.tell(words).await;
            }
        }
        Some(Ok(Event { kind: EventKind::Status(status), .. })) => {
            // The progress value must grow with each notification, so a status counts as one byte.
            speaking.printed += 1;
            speaking.told = speaking.printed;
            speaking.tell(status.to_string()).await;
        }
        Some(Ok(Event { kind: EventKind::End(_), .. }) | Err(_)) | None => *progress = None,
    }
}

impl Progress {
    async fn tell(&mut self, words: String) {
        #[expect(clippy::cast_precision_loss, reason = "progress need not be exact")]
        let progress = self.told as f64;
        let told = ProgressNotificationParam::new(self.token.clone(), progress).with_message(words);
        // Fails if the client has disconnected, which also cancels the request.
        let _ = self.peer.notify_progress(told).await;
    }
}

/// The beginning of the last line of the output.
fn glimpse(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.trim_end().rsplit('\n').next().unwrap_or_default();
    line.chars().take(GLIMPSE).collect()
}

/// The result of an exec, as far as it has come.
pub(super) async fn tell(service: &Service, view: &ExecView) -> Result<Ran, Error> {
    let exec_id = &view.summary.exec_id;
    let mut ran = Ran {
        status: view.summary.status.to_string(),
        exec_id: exec_id.to_string(),
        exit_code: view.summary.exit_code,
        error: view
            .error_reason
            .as_ref()
            .map(|reason| Failure { code: reason.code.clone(), message: reason.message.clone() }),
        sandbox_type: view.summary.backend.clone(),
        execution_time_ms: view.summary.duration_ms.unwrap_or(0),
        ..Ran::default()
    };
    // An exec that never ran has no output.
    if view.summary.started_at.is_some() && view.protections.is_some() {
        let [stdout, stderr] = service.printed(view, SHOWN).await?;
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
        assert_eq!(glimpse(b"one\ntwo\n"), "two");
        assert_eq!(glimpse(b""), "");
        assert_eq!(glimpse(&[b'x'; 1000]).len(), GLIMPSE);
        assert_eq!(glimpse("aé\nüß".as_bytes()), "üß");
    }
}
