//! The public interface: a connected Chromium and its current page.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;

use crate::action::{Action, FieldKind, FieldNames, Target};
use crate::answer::Answer;
use crate::connection::Connection;
use crate::document::Document;
use crate::error::Error;
use crate::pages::Pages;
use crate::protocol::{
    CloseBrowser, CloseTarget, CreateTarget, EnablePage, GetTargetInfo, SetAutoAttach, SetDownloadBehavior,
    TargetFilter,
};
use crate::view::{CALL_LIMIT, View, ViewMemory, field_kind};
use crate::{act, capture, navigate, text};

/// Limit for the first answer of a Chromium that starts on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Directories, as Chromium sees them.
#[derive(Debug, Clone)]
pub struct Files {
    /// Must exist.
    pub downloads: String,
}

/// Actions run one at a time, on the newest page.
#[derive(Debug)]
pub struct Browser {
    connection: Connection,
    files: Files,
    /// The field names as JSON, passed to `page.js` in each page.
    names: String,
    memory: Mutex<ViewMemory>,
}

impl Browser {
    /// Connects to the streams of a started Chromium and waits until it has a page.
    pub async fn connect(
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
        files: Files,
        names: &FieldNames,
    ) -> Result<Self, Error> {
        let names = serde_json::to_string(names)
            .map_err(|error| Error::Page { why: format!("the field names cannot be encoded: {error}") })?;
        let connection = Connection::new(from, to);
        // The initial page is not a popup.
        connection.pages(|pages| pages.expected = 1);
        let behavior =
            SetDownloadBehavior { behavior: "allowAndName", download_path: &files.downloads, events_enabled: true };
        connection.call(None, &behavior, START_LIMIT).await?;
        // Pages wait until their events are enabled. Other targets, such as workers, are not
        // attached.
        let filter = [TargetFilter { kind: Some("page"), exclude: false }, TargetFilter { kind: None, exclude: true }];
        let attach =
            SetAutoAttach { auto_attach: true, wait_for_debugger_on_start: true, flatten: true, filter: &filter };
        connection.call(None, &attach, START_LIMIT).await?;
        let session = connection.watch(START_LIMIT, |pages| pages.current().map(|page| page.session.clone())).await?;
        let session = session.ok_or(Error::TimedOut { what: "its first page".to_owned(), limit: START_LIMIT })?;
        enable_events(&connection, &session).await?;
        Ok(Self { connection, files, names, memory: Mutex::default() })
    }

    /// Acts on the current page.
    pub async fn perform(&self, action: Action) -> Result<Answer, Error> {
        self.perform_within(None, action).await
    }

    /// Acts only if the page still shows this document.
    pub async fn perform_on(&self, document: &Document, action: Action) -> Result<Answer, Error> {
        self.perform_within(Some(document), action).await
    }

    /// The current document. Get it before an approval, and pass it to
    /// [`perform_on`](Self::perform_on) afterwards.
    pub async fn document(&self) -> Result<Document, Error> {
        let mut memory = self.memory.lock().await;
        let mut view = self.view(&mut memory, None)?;
        Document::shown(&mut view).await
    }

    async fn perform_within(&self, document: Option<&Document>, action: Action) -> Result<Answer, Error> {
        let mut memory = self.memory.lock().await;
        self.connection.pages(|pages| pages.begin_action());
        if let Action::Navigate { .. } | Action::Download { .. } = &action {
            self.replace_unfit_page().await?;
        }
        let mut view = self.view(&mut memory, document)?;
        view.require_document()?;
        view.bring_to_front().await?;
        let mut answer = Answer::default();
        answer.data = match &action {
            Action::Navigate { url, timeout } => navigate::navigate(&view, url, *timeout).await?,
            Action::Click { target } => act::click(&mut view, target).await?,
            Action::Fill { target, text, expected } => act::fill(&mut view, target, text, *expected).await?,
            Action::Screenshot { of } => {
                let (data, picture) = capture::screenshot(&mut view, of).await?;
                answer.screenshot = Some(picture);
                data
            }
            Action::Content { format } => capture::content(&mut view, *format).await?,
            Action::WaitFor { until, timeout } => act::wait_for(&mut view, until, *timeout).await?,
            Action::Press { key, expected } => act::press(&mut view, key, *expected).await?,
            Action::Select { target, values, expected } => act::select(&mut view, target, values, *expected).await?,
            Action::Scroll { to } => act::scroll(&mut view, to).await?,
            Action::Back => navigate::back(&view).await?,
            Action::Evaluate { script } => capture::evaluate(&view, script).await?,
            Action::Upload { target, paths } => act::upload(&mut view, target, paths).await?,
            Action::Download { from, timeout } => act::download(&mut view, from, *timeout).await?,
            Action::Pdf => {
                answer.pdf = Some(capture::pdf(&view).await?);
                Value::Null
            }
        };
        self.complete(answer).await
    }

    /// Kind of the field. Get it before a `Fill`, a `Press` or a `Select`, which fail if the kind
    /// has changed.
    pub async fn field(&self, target: &Target) -> Result<FieldKind, Error> {
        let mut memory = self.memory.lock().await;
        let mut view = self.view(&mut memory, None)?;
        let kind: Value = view.run_once_on("kind", target, json!({})).await?;
        field_kind(&kind).ok_or_else(|| Error::Page { why: "it does not report the kind of the field".to_owned() })
    }

    pub fn is_alive(&self) -> bool {
        self.connection.is_open()
    }

    /// Waits until Chromium has ended or closed its streams.
    pub async fn closed(&self) {
        self.connection.ended().await;
    }

    /// Asks Chromium to exit, waits up to 2 s and closes the streams. The caller must end its
    /// process.
    pub async fn close(self) {
        let closing = async {
            // It may exit without an answer.
            let _ = self.connection.call(None, &CloseBrowser {}, CLOSE_LIMIT).await;
            self.connection.ended().await;
        };
        let _ = tokio::time::timeout(CLOSE_LIMIT, closing).await;
    }

    fn view<'a>(&'a self, memory: &'a mut ViewMemory, document: Option<&'a Document>) -> Result<View<'a>, Error> {
        let (connection, names) = (&self.connection, self.names.as_str());
        let mut view = View { connection, names, memory, session: String::new(), document };
        view.follow()?;
        Ok(view)
    }

    /// Replaces crashed and unresponsive pages by a fresh one.
    async fn replace_unfit_page(&self) -> Result<(), Error> {
        let is_fit = |pages: &mut Pages| pages.current().is_some_and(|page| !page.is_crashed && !page.is_stuck);
        if self.connection.pages(is_fit) {
            return Ok(());
        }
        let unfit = self.connection.pages(|pages| {
            pages.expected = 1;
            let unfit = pages.open.iter().filter(|page| page.is_crashed || page.is_stuck);
            unfit.map(|page| page.target.clone()).collect::<Vec<_>>()
        });
        // Open the new page first, because a Chromium without pages may exit.
        let created = self.connection.call(None, &CreateTarget { url: "about:blank" }, CALL_LIMIT).await?;
        for target in &unfit {
            // It may have closed itself.
            let _ = self.connection.call(None, &CloseTarget { target_id: target }, CALL_LIMIT).await;
        }
        let is_there = |pages: &Pages| {
            let page = pages.current().filter(|page| page.target == created.target_id)?;
            Some(page.session.clone())
        };
        let session = self.connection.watch(CALL_LIMIT, is_there).await?;
        let session = session.ok_or(Error::TimedOut { what: "a fresh page".to_owned(), limit: CALL_LIMIT })?;
        enable_events(&self.connection, &session).await
    }

    /// Adds URL and title of the page, and the events since the last action. URL and title come
    /// from Chromium, which answers even if the page hangs.
    async fn complete(&self, mut answer: Answer) -> Result<Answer, Error> {
        let target = self.connection.pages(|pages| pages.current().map(|page| page.target.clone()));
        if let Some(target) = target {
            match self.connection.call(None, &GetTargetInfo { target_id: &target }, CALL_LIMIT).await {
                Ok(info) => {
                    answer.url = text::cut(&info.target_info.url, 8192);
                    answer.title = text::cut(&info.target_info.title, 1000);
                }
                // The page has just closed itself.
                Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let (downloads, dialogs, popups) = self.connection.pages(|pages| pages.take_events(&self.files.downloads));
        (answer.downloads, answer.dialogs, answer.popups) = (downloads, dialogs, popups);
        Ok(answer)
    }
}

/// Waits until a page's events are enabled, which was requested when it was attached. Earlier
/// events are missed.
async fn enable_events(connection: &Connection, session: &str) -> Result<(), Error> {
    connection.call(Some(session), &EnablePage {}, START_LIMIT).await.map(|_| ())
}
