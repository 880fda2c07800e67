//! Performs one browser action: records it, asks for approval if it is risky, performs it and
//! records the outcome.
//!
//! The action continues if its caller disconnects. Actions of a session run one at a time. An
//! action that is interrupted by the end of the session or the server is recorded as failed.

use std::sync::Arc;

use parking_lot::Mutex;
use ringwall_browser::{Action, Answer, Document, FieldKind};
use ringwall_ids::ExecId;
use ringwall_policy::{BrowserKind, ExternalMode, NetHost, check_page, page_host};
use ringwall_record::{BrowserOutcome, BrowserStatus, NewBrowserAction, SessionKey};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::browser_box::close_when_idle;
use super::confirm::needs_approval;
use super::files::StoredDownloads;
use super::request::{ActionRequest, Known};
use super::view::{BrowserAnswer, Done};
use crate::auth::principal::Principal;
use crate::boxes::browser::{BrowserSlot, Fault, Instance, MISSING, Refused, Stop, Turn};
use crate::egress::Requester;
use crate::error::{Error, causes};
use crate::service::Service;
use crate::session_ref::SessionAddress;
use crate::time::now;

const PAUSED: &str = "the session is paused, and its browser with it; resume it first";
const EXTERNAL_OFF: &str = "external browsers are switched off on this server (browser.external); use the one in the \
                            session's box: set context.is_research or context.needs_file_access";
/// Maximum length of a recorded URL or error message in bytes.
const MAX_NOTED: usize = 4096;

/// A request for a browser action, as the transports pass it on.
#[derive(Debug, Clone)]
pub struct BrowserRequest {
    pub session: SessionAddress,
    pub action: String,
    pub params: Value,
    /// Default: the browser that is open, otherwise the external one.
    pub kind: Option<BrowserKind>,
}

/// A started action. Its result can be awaited several times.
#[derive(Debug, Clone)]
pub struct BrowserBegun {
    pub action_id: ExecId,
    result: watch::Receiver<Option<Arc<PerformResult>>>,
    cancelled: Arc<watch::Sender<bool>>,
}

/// If the action could not start, only the first caller gets the error, because errors are not
/// `Clone`.
type PerformResult = Result<BrowserAnswer, Mutex<Option<Error>>>;

impl BrowserBegun {
    /// Cancels the action. Effects that it had on the page before remain.
    pub fn cancel(&self) {
        self.cancelled.send_replace(true);
    }

    pub fn is_over(&self) -> bool {
        self.result.borrow().is_some()
    }
}

/// A running action.
#[derive(Debug)]
pub(super) struct RunningAction {
    pub(super) service: Service,
    pub(super) by: Principal,
    pub(super) session: SessionKey,
    pub(super) id: ExecId,
    pub(super) slot: Arc<BrowserSlot>,
    requested: Option<BrowserKind>,
}

impl Service {
    pub async fn begin_browser(&self, by: &Principal, request: BrowserRequest) -> Result<BrowserBegun, Error> {
        let session = request.session.resolve(by)?;
        let action = ActionRequest::read(&request.action, request.params)?;
        if !matches!(action, ActionRequest::Close {}) && ringwall_browser::find_executable().is_none() {
            return Err(Error::BackendUnavailable { backend: "browser".to_owned(), why: MISSING.to_owned() });
        }
        let shared = self.inner.session_gates.try_share(&session)?;
        // Records the end of an earlier session with this id before a new one starts.
        self.session_rules(&session).await?;
        let slot = self.inner.browsers.slot(&session)?;
        let queued = slot.join_queue()?;
        let id = ExecId::random()?;
        let (service, by) = (self.clone(), by.clone());
        let running = RunningAction { service, by, session, id: id.clone(), slot, requested: request.kind };
        let (sender, result) = watch::channel(None);
        let cancelled = Arc::new(watch::Sender::new(false));
        let mut stop = Stop::new(running.slot.clone(), cancelled.subscribe());
        tokio::spawn(async move {
            let _shared = shared;
            let service = running.service.clone();
            let _acting = service.inner.browsers.act();
            let turn = stop.unless_gone(running.slot.turn()).await;
            drop(queued);
            let answer = match turn {
                Ok(turn) => running.run(turn, action, stop).await,
                Err(error) => Err(error),
            };
            sender.send_replace(Some(Arc::new(answer.map_err(|error| Mutex::new(Some(error))))));
        });
        Ok(BrowserBegun { action_id: id, result, cancelled })
    }

    /// Waits for the result.
    pub async fn finish_browser(&self, begun: &BrowserBegun) -> Result<BrowserAnswer, Error> {
        let mut result = begun.result.clone();
        let lost = || Error::Runtime { message: "the task of the browser action ended without a result".to_owned() };
        let result = result.wait_for(Option::is_some).await.map_err(|_| lost())?.clone().ok_or_else(lost)?;
        match result.as_ref() {
            Ok(answer) => Ok(answer.clone()),
            Err(error) => Err(error.lock().take().unwrap_or_else(lost)),
        }
    }
}

impl RunningAction {
    pub(super) fn address(&self) -> SessionAddress {
        SessionAddress {
            session_id: self.session.session_id.to_string(),
            user_id: Some(self.session.user_id.as_str().to_owned()),
            agent_id: Some(self.session.agent_id.as_str().to_owned()),
        }
    }

    /// Records the intent, performs the action and records the outcome. An error means that the
    /// intent could not be recorded, so nothing was done.
    async fn run(self, mut turn: Turn, action: ActionRequest, mut stop: Stop) -> Result<BrowserAnswer, Error> {
        let kind = self.requested.or(turn.as_ref().map(|instance| instance.kind)).unwrap_or(BrowserKind::External);
        let new = NewBrowserAction {
            id: self.id.clone(),
            session: self.session.clone(),
            kind: kind.key().to_owned(),
            action: action.verb().to_owned(),
            detail: action.detail(),
            actor: self.by.caller().to_owned(),
            started_at: now(),
        };
        self.service.inner.store.intend_browser_action(new, self.by.origin.note()).await?;
        let done = self.perform(&mut turn, kind, action, &mut stop).await;
        self.record_outcome(&turn, &done).await;
        match turn.as_ref() {
            Some(_) => self.slot.used(),
            None => self.slot.release(),
        }
        drop(turn);
        Ok(BrowserAnswer::new(self.id.clone(), kind, done))
    }

    /// Performs the action. Cancelling interrupts every step except opening and closing a browser.
    async fn perform(
        &self,
        turn: &mut Turn,
        kind: BrowserKind,
        action: ActionRequest,
        stop: &mut Stop,
    ) -> Result<Done, Fault> {
        if turn.as_ref().is_some_and(Instance::is_paused) {
            return Err(Fault::failed(PAUSED));
        }
        if let ActionRequest::Close {} = action {
            self.end_browser(turn, None).await;
            self.slot.take_ended();
            return Ok(Done::default());
        }
        if kind == BrowserKind::External && self.service.settings_now().browser.external == ExternalMode::Off {
            if turn.as_ref().is_some_and(|instance| instance.kind == BrowserKind::External) {
                self.end_browser(turn, Some("external browsers were switched off")).await;
            }
            return Err(Fault::refused(EXTERNAL_OFF));
        }
        let page = action.page().map(|text| self.check_url(text, kind)).transpose()?;
        let opens = Opens::of(&action);
        let is_download = matches!(action, ActionRequest::Download { .. });
        let requester = self.requester(action.description());
        let mut notes = self.ensure_browser(turn, kind, stop).await?;
        let mut instance = present(turn)?;
        let mut current = instance.browser_box.begin(requester.clone());
        let prepared = stop.unless(self.prepare(instance, action, page)).await?;
        let mut performed = stop.unless(prepared.perform(instance)).await?;
        if performed.is_err() && opens == Opens::Page && !instance.is_alive() {
            // The browser had died unnoticed: open another one and try once more.
            drop(current);
            notes = self.ensure_browser(turn, kind, stop).await?;
            instance = present(turn)?;
            current = instance.browser_box.begin(requester);
            performed = stop.unless(prepared.perform(instance)).await?;
        }
        drop(current);
        let refused = instance.browser_box.gate.take_refused();
        if let Some(fault) = was_refused(opens, &performed, &refused) {
            return Err(fault);
        }
        let mut answer = performed?;
        let downloads = std::mem::take(&mut answer.downloads);
        let StoredDownloads { mut files, failed } =
            stop.unless(async { Ok(self.store_downloads(instance, &downloads).await) }).await?;
        match failed.first() {
            // A `download` action without a file has failed.
            Some(why) if is_download && files.is_empty() => return Err(Fault::failed(why)),
            Some(_) | None => notes.extend(failed),
        }
        if let Some(document) = answer.pdf.take() {
            files.push(self.store("page.pdf", document).await?);
        }
        self.slot.set_page(&answer.url, &answer.title, answer.screenshot.clone());
        Ok(Done { answer, files, notes })
    }

    /// Prepares the action: finds its field, asks for approval, asks about an unlisted host in
    /// advance and copies uploads into the box.
    async fn prepare(
        &self,
        instance: &Instance,
        action: ActionRequest,
        page: Option<String>,
    ) -> Result<Prepared, Fault> {
        let field = match action.field() {
            Some(field) => instance.browser.field(&field).await?,
            None => FieldKind::Ordinary,
        };
        // An approval is valid for one document; the action then fails if the page has changed.
        let document = match needs_approval(&action, field) {
            Some(doing) => {
                let document = instance.browser.document().await?;
                self.confirm(&action, &doing, &without_query(&document.url)).await?;
                Some(document)
            }
            None => None,
        };
        if let Some((host, port)) = page.as_deref().and_then(page_host) {
            instance.browser_box.gate.ask_ahead(host, port).await;
            self.slot.used();
        }
        let uploads = self.copy_uploads(instance, action.files()).await?;
        let action = action.action(Known { page, field, uploads });
        Ok(Prepared { document, action: action.ok_or_else(|| Fault::failed("the action lacks a required parameter"))? })
    }

    /// The origin of questions that this action causes.
    pub(super) fn requester(&self, command: String) -> Requester {
        Requester {
            exec_id: self.id.clone(),
            user_id: self.session.user_id.clone(),
            agent_id: self.session.agent_id.clone(),
            session_id: self.session.session_id.to_string(),
            command,
            author: self.by.author(),
            policy_version: self.service.settings_now().version.to_string(),
        }
    }

    /// Checks the URL of a page. The addresses that its name resolves to are checked when the
    /// browser connects.
    fn check_url(&self, text: &str, kind: BrowserKind) -> Result<String, Fault> {
        let settings = self.service.settings_now();
        let is_lifted = |host: &NetHost, port: u16| {
            settings.browser.allowed_hosts.find(host, port).is_some()
                || (kind == BrowserKind::Sandbox && settings.egress.allowed_hosts.find(host, port).is_some())
        };
        Ok(check_page(text, (kind, settings.browser.external), is_lifted)?)
    }

    /// Opens the requested browser if it is not open. Returns notes for the caller.
    async fn ensure_browser(&self, turn: &mut Turn, kind: BrowserKind, stop: &mut Stop) -> Result<Vec<String>, Fault> {
        match turn.as_ref() {
            Some(instance) if instance.kind == kind && instance.is_alive() => return Ok(Vec::new()),
            Some(instance) if !instance.is_alive() => {
                self.end_browser(turn, Some("it has crashed or was killed")).await
            }
            Some(_) => self.end_browser(turn, Some("an action requested the other kind of browser")).await,
            None => {}
        }
        let ended = self.slot.take_ended();
        let note = ended.map(|why| format!("the previous browser was closed ({why}), so its page is lost"));
        let inner = &self.service.inner;
        let most = self.service.settings_now().browser.max_instances.get() as usize;
        inner.browsers.reserve(&inner.store, most, &self.slot, kind).await?;
        let browser_box = stop.unless(self.service.browser_box(&self.session, kind)).await?;
        let instance = Instance::open(kind, browser_box, inner.browsers.next_number(), stop).await?;
        let process = instance.process();
        let (weak_inner, weak_slot, number) = (Arc::downgrade(inner), Arc::downgrade(&self.slot), instance.number);
        tokio::spawn(close_when_idle(weak_inner, weak_slot, number, async move { process.ended().await }));
        **turn = Some(instance);
        Ok(note.into_iter().collect())
    }

    async fn end_browser(&self, turn: &mut Turn, why: Option<&'static str>) {
        self.slot.end(&self.service.inner.store, turn.take(), why).await;
    }

    async fn record_outcome(&self, turn: &Turn, done: &Result<Done, Fault>) {
        let connections = turn.as_ref().map_or_else(|| json!([]), |instance| instance.browser_box.gate.take());
        let (status, error, url) = match done {
            Ok(done) => (BrowserStatus::Succeeded, None, Some(without_query(&done.answer.url))),
            Err(fault) => (fault.status, Some(cut(&fault.message)), None),
        };
        let outcome = BrowserOutcome { status, error, url: url.filter(|url| !url.is_empty()), connections, at: now() };
        if let Err(error) = self.service.inner.store.finish_browser_action(&self.id, outcome).await {
            tracing::error!(action_id = %self.id, error = %causes(&error), "could not record the outcome of a browser action");
        }
    }
}

/// An action that is ready to be performed. If it was approved for a document, it applies only to
/// that document.
#[derive(Debug)]
struct Prepared {
    document: Option<Document>,
    action: Action,
}

impl Prepared {
    /// Performs the action. The inner error is separate, because the browser may have died before
    /// the action; the caller then tries again.
    async fn perform(&self, instance: &Instance) -> Result<Result<Answer, ringwall_browser::Error>, Fault> {
        Ok(match &self.document {
            Some(document) => instance.browser.perform_on(document, self.action.clone()).await,
            None => instance.browser.perform(self.action.clone()).await,
        })
    }
}

fn present(turn: &Turn) -> Result<&Instance, Fault> {
    turn.as_ref().ok_or_else(|| Fault::failed("there is no browser"))
}

/// The page or file that an action itself opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opens {
    /// A page that replaces the current one.
    Page,
    /// A URL beside the current page, for a download.
    Beside,
    /// Nothing, unless the page reacts with a navigation.
    Nothing,
}

impl Opens {
    fn of(action: &ActionRequest) -> Self {
        match action {
            ActionRequest::Navigate { .. } => Opens::Page,
            _ if action.page().is_some() => Opens::Beside,
            _ => Opens::Nothing,
        }
    }
}

/// Returns an error if the page could not be opened because a host was refused. Refused requests of
/// the previous page are ignored if the new page was opened.
fn was_refused(
    opens: Opens,
    performed: &Result<Answer, ringwall_browser::Error>,
    refused: &[Refused],
) -> Option<Fault> {
    let found = match (performed, opens) {
        (Ok(answer), _) if opens == Opens::Page || answer.data["navigated"] == true => {
            let (host, port) = page_host(&answer.url)?;
            refused.iter().find(|refused| refused.host == host.to_string() && refused.port == port)
        }
        (Err(_), Opens::Page | Opens::Beside) => refused.last(),
        (Ok(_), _) | (Err(_), Opens::Nothing) => None,
    }?;
    Some(Fault::refused(format!("{}:{} was refused: {}", found.host, found.port, found.why)))
}

/// Removes the query and the fragment, which may contain form input.
fn without_query(url: &str) -> String {
    cut(url.split(['?', '#']).next().unwrap_or_default())
}

/// Shortens text for the record and replaces NUL, which the database rejects. Error messages may
/// contain text of the page.
fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_NOTED)].replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_text_is_cut_and_without_nul_or_query() {
        assert_eq!(cut("covered by <div#a\0b>"), "covered by <div#a\u{fffd}b>");
        assert_eq!(cut(&"ü".repeat(MAX_NOTED)).len(), MAX_NOTED);
        assert_eq!(without_query("https://a.com/b?c=d#e"), "https://a.com/b");
    }
}
