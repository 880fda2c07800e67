//! Following what runs until there is something to tell: its end, a question to a person, or that nobody waits any more.
//!
//! Whoever wants to know hears of its output as it comes. Whoever takes a request back ends what it started; nothing that
//! was only asked for goes on in secret.

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

/// Of each stream in an answer: a model reads no more at once, and the rest is a resource.
pub(super) const SHOWN: u64 = 256 * 1024;
/// Between two words about progress.
const BREATH: Duration = Duration::from_millis(250);
/// Of the output in one of them.
const GLIMPSE: usize = 400;

/// Why following stopped.
#[derive(Debug)]
pub(super) enum Followed {
    Ended(Box<ExecView>),
    /// A person is asked.
    Asks(Box<ApprovalView>),
    /// Whoever asked for it took that back.
    GivenUp,
}

/// What is followed, and for whom.
pub(super) struct Follower<'a> {
    pub(super) service: &'a Service,
    pub(super) who: &'a Who,
    pub(super) context: &'a RequestContext<RoleServer>,
    pub(super) exec_id: ExecId,
    following: Option<Following>,
    /// Whether something was asked while the person thought about something else.
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

    /// Goes on until there is something to tell.
    pub(super) async fn follow(&mut self) -> Result<Followed, Error> {
        // What is open then is told first.
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
                    // What is open then is told first.
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

    /// Comes back when somebody has answered this question, or nobody is asked any more.
    pub(super) async fn settled(&mut self, id: &ApprovalId) {
        loop {
            match next_question(&mut self.following).await {
                Ok(Announcement::Resolved(view)) if view.id == *id => return,
                Ok(Announcement::Opened(_)) => self.has_missed = true,
                Ok(Announcement::Resolved(_)) => {}
                // Whatever is open then is asked about again.
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

/// Ends what runs, because nobody wants it any more.
pub(super) async fn take_back(service: &Service, who: &Who, exec_id: &ExecId) {
    match service.cancel(&who.principal, exec_id).await {
        // It may have ended by itself in the same moment.
        Ok(_) | Err(Error::AlreadyEnded(_)) => {}
        Err(error) => tracing::warn!(%exec_id, %error, "could not cancel what an MCP client took back"),
    }
}

async fn next_question(following: &mut Option<Following>) -> Result<Announcement, Gone> {
    match following {
        Some(following) => following.next().await,
        None => std::future::pending().await,
    }
}

/// Words about progress, for whoever wants them.
struct Progress {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    events: Events,
    printed: u64,
    told: u64,
    last: Option<Instant>,
}

/// Never comes back where there is nothing to say any more.
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
            // Progress only ever grows; a status is a step of it.
            speaking.printed += 1;
            speaking.told = speaking.printed;
            speaking.tell(status.to_string()).await;
        }
        Some(Ok(Event { kind: EventKind::End(_), .. }) | Err(_)) | None => *progress = None,
    }
}

impl Progress {
    async fn tell(&mut self, words: String) {
        #[expect(clippy::cast_precision_loss, reason = "it is a measure, not a count")]
        let progress = self.told as f64;
        let told = ProgressNotificationParam::new(self.token.clone(), progress).with_message(words);
        // Whoever is gone takes the request back, which is noticed elsewhere.
        let _ = self.peer.notify_progress(told).await;
    }
}

/// The last whole line of what was printed, or as much as is shown of it.
fn glimpse(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.trim_end().rsplit('\n').next().unwrap_or_default();
    line.chars().take(GLIMPSE).collect()
}

/// What became of an exec, as tools tell it.
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
    // What never ran has printed nothing.
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
    fn a_glimpse_is_the_last_line() {
        assert_eq!(glimpse(b"one\ntwo\n"), "two");
        assert_eq!(glimpse(b""), "");
        assert_eq!(glimpse(&[b'x'; 1000]).len(), GLIMPSE);
        assert_eq!(glimpse("aé\nüß".as_bytes()), "üß");
    }
}
