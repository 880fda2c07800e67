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
use ringwall_record::{BrowserOutcome, BrowserStatus, NewBrowserAction};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::answer::{BrowserAnswer, Done};
use super::confirm::deserves_care;
use super::files::TakenOut;
use super::request::{ActionRequest, Known};
use super::watch::watch_over;
use crate::auth::principal::Principal;
use crate::boxes::browser::{BrowserSlot, Fault, Instance, MISSING, Refused, Stop, Turn};
use crate::egress::Asking;
use crate::error::{Error, causes};
use crate::service::Service;
use crate::session_ref::{SessionAddress, SessionRef};
use crate::time::now;

const PAUSED: &str = "the session is paused, and its browser with it; resume it first";
const OFF: &str = "there is no external browser on this server (browser.external); ask for the one in the session's own box: \
                   context.is_research or context.needs_file_access";
/// Maximum length of a recorded URL or error message.
const MAX_URL_LEN: usize = 4096;

/// A request for a browser action, as the transports pass it on.
#[derive(Debug, Clone)]
pub struct BrowserRequest {
    pub session: SessionAddress,
    pub action: String,
    pub params: Value,
    /// Default: the browser that is open, otherwise the external one.
    pub window: Option<BrowserKind>,
}

/// A started action. Its result can be awaited more than once.
#[derive(Debug, Clone)]
pub struct BrowserBegun {
    pub action_id: ExecId,
    told: watch::Receiver<Option<Arc<PerformResult>>>,
    taken_back: Arc<watch::Sender<bool>>,
}

/// If the action could not start, only the first caller gets the error, because errors are not
/// `Clone`.
type PerformResult = Result<BrowserAnswer, Mutex<Option<Error>>>;

impl BrowserBegun {
    /// Cancels the action as far as it has not been performed yet.
    pub fn take_back(&self) {
        self.taken_back.send_replace(true);
    }

    pub fn is_over(&self) -> bool {
        self.told.borrow().is_some()
    }
}

/// A running action.
#[derive(Debug)]
pub(super) struct Deed {
    pub(super) service: Service,
    pub(super) by: Principal,
    pub(super) place: SessionRef,
    pub(super) id: ExecId,
    pub(super) slot: Arc<BrowserSlot>,
    asked: Option<BrowserKind>,
}

impl Service {
    pub async fn begin_browser(&self, by: &Principal, request: BrowserRequest) -> Result<BrowserBegun, Error> {
        let place = SessionRef::read(by, &request.session)?;
        let action = ActionRequest::read(&request.action, request.params)?;
        if !matches!(action, ActionRequest::Close(_)) && ringwall_browser::find_executable().is_none() {
            return Err(Error::BackendUnavailable { backend: "browser".to_owned(), why: MISSING.to_owned() });
        }
        let shared = self.inner.session_gates.try_share(&place.name)?;
        // Records the end of an earlier session with this id before a new one starts.
        self.session_rules(&place).await?;
        let slot = self.inner.browsers.slot(&place.name)?;
        let in_line = slot.line_up()?;
        let id = ExecId::random()?;
        let deed = Deed { service: self.clone(), by: by.clone(), place, id: id.clone(), slot, asked: request.window };
        let (tell, told) = watch::channel(None);
        let taken_back = Arc::new(watch::Sender::new(false));
        let unwanted = taken_back.subscribe();
        tokio::spawn(async move {
            let _shared = shared;
            let service = deed.service.clone();
            let _acting = service.inner.browsers.act();
            let mut stop = Stop::new(deed.slot.clone(), unwanted);
            let turn = stop.unless_gone(deed.slot.turn()).await;
            drop(in_line);
            let answer = match turn {
                Ok(turn) => deed.live(turn, action, stop).await,
                Err(error) => Err(error),
            };
            let answer = answer.map_err(|error| Mutex::new(Some(error)));
            tell.send_replace(Some(Arc::new(answer)));
        });
        Ok(BrowserBegun { action_id: id, told, taken_back })
    }

    /// Waits for the result.
    pub async fn finish_browser(&self, begun: &BrowserBegun) -> Result<BrowserAnswer, Error> {
        let mut told = begun.told.clone();
        let gone = || Error::Runtime { message: "whoever did it is gone".to_owned() };
        let answer = told.wait_for(Option::is_some).await.map_err(|_| gone())?.clone().ok_or_else(gone)?;
        match answer.as_ref() {
            Ok(answer) => Ok(answer.clone()),
            Err(error) => Err(error.lock().take().unwrap_or_else(gone)),
        }
    }
}

impl Deed {
    pub(super) fn address(&self) -> SessionAddress {
        SessionAddress {
            session_id: self.place.id.to_string(),
            user_id: Some(self.place.name.user_id.as_str().to_owned()),
            agent_id: Some(self.place.name.agent_id.as_str().to_owned()),
        }
    }

    /// Runs the action from its turn to its recorded outcome. Returns an error if it was not
    /// performed.
    async fn live(self, mut turn: Turn, action: ActionRequest, mut stop: Stop) -> Result<BrowserAnswer, Error> {
        let window = self.asked.or(turn.as_ref().map(|there| there.window)).unwrap_or(BrowserKind::External);
        let new = NewBrowserAction {
            id: self.id.clone(),
            session: self.place.name.clone(),
            kind: window.key().to_owned(),
            action: action.verb().to_owned(),
            detail: action.detail(),
            actor: self.by.caller().to_owned(),
            started_at: now(),
        };
        self.service.inner.store.intend_browser_action(new, self.by.origin.note()).await?;
        let done = self.act(&mut turn, window, action, &mut stop).await;
        self.conclude(&turn, &done).await;
        match turn.as_ref() {
            Some(_) => self.slot.used(),
            None => self.slot.vacate(),
        }
        drop(turn);
        Ok(BrowserAnswer::new(self.id.clone(), window, done))
    }

    /// Performs the action. Cancelling does not interrupt closing a browser; it does interrupt
    /// everything that is done with one.
    async fn act(
        &self,
        turn: &mut Turn,
        window: BrowserKind,
        action: ActionRequest,
        stop: &mut Stop,
    ) -> Result<Done, Fault> {
        if turn.as_ref().is_some_and(Instance::is_paused) {
            return Err(Fault::failed(PAUSED));
        }
        let is_off = self.service.settings_now().browser.external == ExternalMode::Off;
        match (&action, window) {
            (ActionRequest::Close(_), _) => {
                self.end_browser(turn, None).await;
                self.slot.take_ended();
                return Ok(Done { answer: Answer::default(), files: Vec::new(), notes: Vec::new() });
            }
            (_, BrowserKind::External) if is_off => {
                if turn.as_ref().is_some_and(|there| there.window == BrowserKind::External) {
                    self.end_browser(turn, Some("external browsers were switched off")).await;
                }
                return Err(Fault::refused(OFF));
            }
            (_, BrowserKind::External | BrowserKind::Sandbox) => {}
        }
        let page = action.page().map(|text| self.check(text, window)).transpose()?;
        let (opens, is_download, words) =
            (Opens::of(&action), matches!(action, ActionRequest::Download(_)), action.words());
        let mut notes = self.have_browser(turn, window, stop).await?;
        let mut there = present(turn)?;
        let mut under_way = there.home.begin(self.asking(&words));
        let deed = stop.unless(self.prepare(there, action, page)).await?;
        let mut performed = stop.unless(deed.perform(there)).await?;
        if performed.is_err() && opens == Opens::Page && !there.is_alive() {
            // The browser had died unnoticed: open another one and try once more.
            drop(under_way);
            notes = self.have_browser(turn, window, stop).await?;
            there = present(turn)?;
            under_way = there.home.begin(self.asking(&words));
            performed = stop.unless(deed.perform(there)).await?;
        }
        drop(under_way);
        let refused = there.home.gate.take_refused();
        if let Some(fault) = was_refused(opens, &performed, &refused) {
            return Err(fault);
        }
        let mut answer = performed?;
        let downloads = std::mem::take(&mut answer.downloads);
        let TakenOut { mut files, lost } = stop.unless(async { Ok(self.take_out(there, &downloads).await) }).await?;
        match lost.first() {
            // A `download` action without a file has failed.
            Some(why) if is_download && files.is_empty() => return Err(Fault::failed(why)),
            Some(_) | None => notes.extend(lost),
        }
        if let Some(document) = answer.pdf.take() {
            files.push(self.keep("page.pdf", document).await?);
        }
        self.slot.looks(&answer.url, &answer.title, answer.screenshot.clone());
        Ok(Done { answer, files, notes })
    }

    /// Prepares the action: finds its field, asks for approval, asks about an unlisted host in
    /// advance and copies uploads into the box.
    async fn prepare(&self, there: &Instance, action: ActionRequest, page: Option<String>) -> Result<Prepared, Fault> {
        let field = match action.field() {
            Some(field) => there.browser.field(&field).await?,
            None => FieldKind::Ordinary,
        };
        // An approval is valid for one document; the action then fails if the page has changed.
        let document = match deserves_care(&action, field) {
            Some(doing) => {
                let document = there.browser.document().await?;
                self.confirm(&action, &doing, &without_query(&document.url)).await?;
                Some(document)
            }
            None => None,
        };
        if let Some((host, port)) = page.as_deref().and_then(page_host) {
            there.home.gate.ask_ahead(host, port).await;
            self.slot.used();
        }
        let uploads = self.take_in(there, action.files()).await?;
        let action = action.action(Known { page, field, uploads });
        Ok(Prepared { document, action: action.ok_or_else(|| Fault::failed("nothing is to be done"))? })
    }

    /// The origin of network questions caused by this action.
    fn asking(&self, words: &str) -> Asking {
        Asking {
            exec_id: self.id.clone(),
            user_id: self.place.name.user_id.clone(),
            agent_id: self.place.name.agent_id.clone(),
            session_id: self.place.id.to_string(),
            command: words.to_owned(),
            author: self.by.author(),
            policy_version: self.service.settings_now().version.to_string(),
        }
    }

    /// Checks the URL of a page. The addresses that its name resolves to are checked when the
    /// browser connects.
    fn check(&self, text: &str, window: BrowserKind) -> Result<String, Fault> {
        let settings = self.service.settings_now();
        let is_lifted = |host: &NetHost, port: u16| {
            let lists = match window {
                BrowserKind::External => vec![&settings.browser.allowed_hosts],
                BrowserKind::Sandbox => vec![&settings.browser.allowed_hosts, &settings.egress.allowed_hosts],
            };
            lists.into_iter().any(|list| list.find(host, port).is_some())
        };
        Ok(check_page(text, (window, settings.browser.external), is_lifted)?)
    }

    /// Opens the requested browser if it is not open. Returns notes for the caller.
    async fn have_browser(&self, turn: &mut Turn, window: BrowserKind, stop: &mut Stop) -> Result<Vec<String>, Fault> {
        match turn.as_ref() {
            Some(there) if there.window == window && there.is_alive() => return Ok(Vec::new()),
            Some(there) if !there.is_alive() => self.end_browser(turn, Some("it has crashed or was killed")).await,
            Some(_) => self.end_browser(turn, Some("the other browser was asked for")).await,
            None => {}
        }
        let notes = self
            .slot
            .take_ended()
            .map(|why| format!("the browser before this one was closed ({why}): its page is lost"));
        let inner = &self.service.inner;
        let most = self.service.settings_now().browser.max_instances.get() as usize;
        inner.browsers.take_place(&inner.store, most, &self.slot, window).await?;
        let home = stop.unless(self.service.make_home(&self.place, window)).await?;
        let instance = Instance::open(window, home, inner.browsers.next_number(), stop).await?;
        let process = instance.process();
        let watching = watch_over(Arc::downgrade(inner), Arc::downgrade(&self.slot), instance.number, async move {
            process.ended().await
        });
        tokio::spawn(watching);
        **turn = Some(instance);
        Ok(notes.into_iter().collect())
    }

    async fn end_browser(&self, turn: &mut Turn, why: Option<&'static str>) {
        self.slot.end(&self.service.inner.store, turn.take(), why).await;
    }

    async fn conclude(&self, turn: &Turn, done: &Result<Done, Fault>) {
        let connections = turn.as_ref().map_or_else(|| json!([]), |there| there.home.gate.take());
        let (status, error, url) = match done {
            Ok(done) => (BrowserStatus::Succeeded, None, Some(without_query(&done.answer.url))),
            Err(fault) => (fault.status, Some(cut(&fault.message)), None),
        };
        let ending = BrowserOutcome { status, error, url: url.filter(|url| !url.is_empty()), connections, at: now() };
        if let Err(error) = self.service.inner.store.finish_browser_action(&self.id, ending).await {
            tracing::error!(action_id = %self.id, error = %causes(&error), "could not record what a browser did");
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
    async fn perform(&self, there: &Instance) -> Result<Result<Answer, ringwall_browser::Error>, Fault> {
        Ok(match &self.document {
            Some(document) => there.browser.perform_on(document, self.action.clone()).await,
            None => there.browser.perform(self.action.clone()).await,
        })
    }
}

fn present(turn: &Turn) -> Result<&Instance, Fault> {
    turn.as_ref().ok_or_else(|| Fault::failed("there is no browser"))
}

/// The page or URL that an action opens by itself.
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
            ActionRequest::Navigate(_) => Opens::Page,
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
    text[..text.floor_char_boundary(MAX_URL_LEN)].replace('\0', "\u{fffd}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_text_is_cut_and_cleaned_for_record() {
        assert_eq!(cut("covered by <div#a\0b>"), "covered by <div#a\u{fffd}b>");
        assert_eq!(cut(&"ü".repeat(MAX_URL_LEN)).len(), MAX_URL_LEN);
        assert_eq!(without_query("https://a.com/b?c=d#e"), "https://a.com/b");
    }
}
