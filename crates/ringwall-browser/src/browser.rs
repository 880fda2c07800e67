//! A Chromium at the other end of two streams: the one door of this crate.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;

use crate::action::{Action, FieldKind, FieldNames, Target};
use crate::answer::Answer;
use crate::connection::Connection;
use crate::document::Document;
use crate::error::Error;
use crate::protocol::{
    CloseBrowser, CloseTarget, CreateTarget, EnablePage, GetTargetInfo, SetAutoAttach, SetDownloadBehavior,
    TargetFilter,
};
use crate::scene::Scene;
use crate::view::{Memory, SOON, View, field_kind};
use crate::{act, capture, travel, words};

/// A Chromium that starts on a busy machine has said its first word by then.
const START: Duration = Duration::from_secs(30);
const FAREWELL: Duration = Duration::from_secs(2);

/// Where files go, as Chromium sees it.
#[derive(Debug, Clone)]
pub struct Files {
    /// A directory that is there already.
    pub downloads: String,
}

/// Actions wait for one another: there is one page that is seen, the newest.
#[derive(Debug)]
pub struct Browser {
    connection: Connection,
    files: Files,
    /// What is handed to our functions in each page.
    names: String,
    memory: Mutex<Memory>,
}

impl Browser {
    /// Takes what Chromium writes and what it reads, and waits until it has a page.
    pub async fn connect(
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
        files: Files,
        names: &FieldNames,
    ) -> Result<Self, Error> {
        let names = serde_json::to_string(names)
            .map_err(|error| Error::Page { why: format!("the names of fields cannot be said: {error}") })?;
        let connection = Connection::new(from, to);
        // The page that it starts with is no popup.
        connection.scene(|scene| scene.expected = 1);
        let behavior =
            SetDownloadBehavior { behavior: "allowAndName", download_path: &files.downloads, events_enabled: true };
        connection.call(None, &behavior, START).await?;
        // Pages wait until they are listened to; whatever else Chromium has inside is left alone.
        let filter = [TargetFilter { kind: Some("page"), exclude: false }, TargetFilter { kind: None, exclude: true }];
        let attach =
            SetAutoAttach { auto_attach: true, wait_for_debugger_on_start: true, flatten: true, filter: &filter };
        connection.call(None, &attach, START).await?;
        let session = connection.watch(START, |scene| scene.seen().map(|page| page.session.clone())).await?;
        let session = session.ok_or(Error::TimedOut { what: "its first page".to_owned(), limit: START })?;
        listen(&connection, &session).await?;
        Ok(Self { connection, files, names, memory: Mutex::default() })
    }

    /// On whatever page is seen.
    pub async fn perform(&self, action: Action) -> Result<Answer, Error> {
        self.perform_within(None, action).await
    }

    /// On this document, or not at all.
    pub async fn perform_on(&self, document: &Document, action: Action) -> Result<Answer, Error> {
        self.perform_within(Some(document), action).await
    }

    /// The document that is seen: asked for before somebody is asked about what would be done to it.
    pub async fn document(&self) -> Result<Document, Error> {
        let mut memory = self.memory.lock().await;
        let mut view = self.view(&mut memory, None)?;
        Document::shown(&mut view).await
    }

    async fn perform_within(&self, document: Option<&Document>, action: Action) -> Result<Answer, Error> {
        let mut memory = self.memory.lock().await;
        self.connection.scene(|scene| scene.begin_action());
        if let Action::Navigate { .. } | Action::Download { .. } = &action {
            self.freshen().await?;
        }
        let mut view = self.view(&mut memory, document)?;
        view.demand_document()?;
        view.bring_to_front().await?;
        let mut answer = Answer::default();
        answer.data = match &action {
            Action::Navigate { url, timeout } => travel::navigate(&view, url, *timeout).await?,
            Action::Click { target } => act::click(&mut view, target).await?,
            Action::Fill { target, text, expected } => act::fill(&mut view, target, text, *expected).await?,
            Action::Screenshot { of } => {
                let (data, picture) = capture::screenshot(&mut view, of).await?;
                answer.picture = Some(picture);
                data
            }
            Action::Content { format } => capture::content(&mut view, *format).await?,
            Action::WaitFor { until, timeout } => act::wait_for(&mut view, until, *timeout).await?,
            Action::Press { key, expected } => act::press(&mut view, key, *expected).await?,
            Action::Select { target, values, expected } => act::select(&mut view, target, values, *expected).await?,
            Action::Scroll { to } => act::scroll(&mut view, to).await?,
            Action::Back => travel::back(&view).await?,
            Action::Evaluate { script } => capture::evaluate(&view, script).await?,
            Action::Upload { target, paths } => act::upload(&mut view, target, paths).await?,
            Action::Download { from, timeout } => act::download(&mut view, from, *timeout).await?,
            Action::Pdf => {
                answer.document = Some(capture::pdf(&view).await?);
                Value::Null
            }
        };
        self.tell(answer).await
    }

    /// What would be typed into or chosen in: asked before a `Fill`, a `Press` or a `Select`, which then fail if it has become
    /// another.
    pub async fn field(&self, target: &Target) -> Result<FieldKind, Error> {
        let mut memory = self.memory.lock().await;
        let mut view = self.view(&mut memory, None)?;
        let kind: Value = view.ask_once("kind", target, json!({})).await?;
        field_kind(&kind).ok_or_else(|| Error::Page { why: "it does not say what the field is".to_owned() })
    }

    pub fn is_alive(&self) -> bool {
        self.connection.is_open()
    }

    /// Waits until Chromium is gone, however it went.
    pub async fn closed(&self) {
        self.connection.ended().await;
    }

    /// Asks Chromium to end, waits a moment, and lets go of its streams. Who started it sees to it that it ends.
    pub async fn close(self) {
        let farewell = async {
            // Whether it answers or just goes is the same.
            let _ = self.connection.call(None, &CloseBrowser {}, FAREWELL).await;
            self.connection.ended().await;
        };
        let _ = tokio::time::timeout(FAREWELL, farewell).await;
    }

    fn view<'a>(&'a self, memory: &'a mut Memory, document: Option<&'a Document>) -> Result<View<'a>, Error> {
        let (connection, names) = (&self.connection, self.names.as_str());
        let mut view = View { connection, names, memory, session: String::new(), document };
        view.follow()?;
        Ok(view)
    }

    /// Sees to it that there is a page that can go somewhere: a fresh one instead of one that crashed or hangs.
    async fn freshen(&self) -> Result<(), Error> {
        let is_fit = |scene: &mut Scene| scene.seen().is_some_and(|page| !page.is_crashed && !page.is_stuck);
        if self.connection.scene(is_fit) {
            return Ok(());
        }
        let unfit = self.connection.scene(|scene| {
            scene.expected = 1;
            let unfit = scene.pages.iter().filter(|page| page.is_crashed || page.is_stuck);
            unfit.map(|page| page.target.clone()).collect::<Vec<_>>()
        });
        // First the new one: a Chromium without any page may end.
        let created = self.connection.call(None, &CreateTarget { url: "about:blank" }, SOON).await?;
        for target in &unfit {
            // One that is gone already is as good as closed.
            let _ = self.connection.call(None, &CloseTarget { target_id: target }, SOON).await;
        }
        let is_there = |scene: &Scene| {
            let page = scene.seen().filter(|page| page.target == created.target_id)?;
            Some(page.session.clone())
        };
        let session = self.connection.watch(SOON, is_there).await?;
        let session = session.ok_or(Error::TimedOut { what: "a fresh page".to_owned(), limit: SOON })?;
        listen(&self.connection, &session).await
    }

    /// Adds where the page is now, and what happened meanwhile. Both are asked of Chromium, which answers while a page hangs.
    async fn tell(&self, mut answer: Answer) -> Result<Answer, Error> {
        let target = self.connection.scene(|scene| scene.seen().map(|page| page.target.clone()));
        if let Some(target) = target {
            match self.connection.call(None, &GetTargetInfo { target_id: &target }, SOON).await {
                Ok(info) => {
                    answer.url = words::cut(&info.target_info.url, 8192);
                    answer.title = words::cut(&info.target_info.title, 1000);
                }
                // The page closed itself just now; there is no other place that it could be.
                Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let (downloads, dialogs, popups) = self.connection.scene(|scene| scene.tell(&self.files.downloads));
        (answer.downloads, answer.dialogs, answer.popups) = (downloads, dialogs, popups);
        Ok(answer)
    }
}

/// Waits until a page's events are on: it was asked for that as it came, and whatever happens before goes unseen.
async fn listen(connection: &Connection, session: &str) -> Result<(), Error> {
    connection.call(Some(session), &EnablePage {}, START).await.map(|_| ())
}
