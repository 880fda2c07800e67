//! State of the pages, derived from events: which are open, current, loading, and what they
//! downloaded.
//!
//! `Pages::apply` maps an event to commands. It sends nothing and never blocks, because it runs in
//! the reading task. All collections are bounded, because a page can cause any number of events.

use crate::answer::{Dialog, DialogKind, DownloadEnd, Downloaded, MAX_DOWNLOAD_BYTES};
use crate::event::{Attached, DialogOpening, DownloadBegins, DownloadProgress, Event, Paused};
use crate::protocol::Header;
use crate::text;

/// Further pages are closed when they open.
const MAX_PAGES: usize = 5;
/// Dialogs that are reported; further ones are answered without a report.
const MAX_DIALOGS: usize = 20;
/// A script that opens more dialogs than this during one action is terminated.
const MAX_DIALOGS_PER_ACTION: u32 = 10;
/// Downloads that are in progress or not reported yet.
const MAX_DOWNLOADS: usize = 10;
const TOO_LARGE: &str = "it is larger than 64 MiB";
const TOO_MANY: &str = "too many other downloads are in progress";

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) target: String,
    pub(crate) session: String,
    /// The main frame.
    pub(crate) frame: String,
    /// Loader id of the document in it.
    pub(crate) loader: String,
    pub(crate) is_loaded: bool,
    pub(crate) is_busy: bool,
    /// Number of requested navigations, and of completed ones (including within a document).
    pub(crate) requests: u32,
    pub(crate) commits: u32,
    pub(crate) is_crashed: bool,
    /// It failed to answer in time. The next navigation then uses a fresh page.
    pub(crate) is_stuck: bool,
    /// HTTP status of a document, with its loader id.
    pub(crate) status: Option<(String, i64)>,
    /// Context id of the scripts of its newest document, if it was requested.
    pub(crate) scripts: Option<String>,
}

/// A download that is not reported yet.
#[derive(Debug)]
pub(crate) struct Download {
    guid: String,
    name: String,
    /// Serial number, starting at 1.
    pub(crate) number: u64,
    /// `None` while it is in progress.
    pub(crate) end: Option<DownloadEnd>,
}

/// A command that the connection has to send.
#[derive(Debug, PartialEq)]
pub(crate) enum Command {
    Prepare {
        session: String,
    },
    /// Closes a page above the limit. It is resumed first, because a waiting page blocks the page
    /// that opened it.
    Refuse {
        session: String,
        target: String,
    },
    AnswerDialog {
        session: String,
        accept: bool,
    },
    EndScript {
        session: String,
    },
    CancelDownload {
        guid: String,
    },
    Continue {
        session: String,
        request: String,
        changed: Option<(u16, Vec<(String, String)>)>,
    },
    /// Fails the calls of a session that waits for answers.
    Forget {
        session: String,
        is_crash: bool,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// Oldest first; the last one is the current page.
    pub(crate) open: Vec<Page>,
    pub(crate) downloads: Vec<Download>,
    /// Number of downloads that ever started, and serial number of the last one that was refused.
    pub(crate) begun: u64,
    refused: u64,
    /// Pages that were requested, which are no popups.
    pub(crate) expected: u32,
    dialogs: Vec<Dialog>,
    dialogs_of_action: u32,
    popups: u32,
}

impl Pages {
    pub(crate) fn current(&self) -> Option<&Page> {
        self.open.last()
    }

    pub(crate) fn of_session(&mut self, session: &str) -> Option<&mut Page> {
        self.open.iter_mut().find(|page| page.session == session)
    }

    pub(crate) fn begin_action(&mut self) {
        self.dialogs_of_action = 0;
    }

    /// Takes the unreported events: ended downloads, dialogs, and the number of popups.
    pub(crate) fn take_events(&mut self, directory: &str) -> (Vec<Downloaded>, Vec<Dialog>, u32) {
        let mut ended = Vec::new();
        self.downloads.retain(|download| match download.end {
            None => true,
            Some(end) => {
                let path = format!("{}/{}", directory.trim_end_matches('/'), download.guid);
                ended.push(Downloaded { name: download.name.clone(), path, end });
                false
            }
        });
        (ended, std::mem::take(&mut self.dialogs), std::mem::take(&mut self.popups))
    }

    /// Result of the downloads that started after number `begun`: `None` until at least one has
    /// started and all have ended. Earlier downloads are ignored, because the page started them by
    /// itself.
    pub(crate) fn outcome_since(&self, begun: u64) -> Option<Result<(), &'static str>> {
        let own = || self.downloads.iter().filter(|download| download.number > begun).map(|download| download.end);
        let failed = own().find_map(|end| match end {
            Some(DownloadEnd::Failed { why }) => Some(why),
            Some(DownloadEnd::Complete { .. }) | None => None,
        });
        match failed {
            _ if self.begun == begun || own().any(|end| end.is_none()) => None,
            Some(why) => Some(Err(why)),
            None if self.refused > begun => Some(Err(TOO_MANY)),
            None => Some(Ok(())),
        }
    }

    pub(crate) fn apply(&mut self, session: Option<&str>, event: Event) -> Vec<Command> {
        match event {
            Event::Attached(attached) => return self.attach(attached),
            Event::Detached(detached) => {
                self.open.retain(|page| page.session != detached.session_id);
                return vec![Command::Forget { session: detached.session_id, is_crash: false }];
            }
            Event::DownloadBegins(begins) => return self.begin_download(begins),
            Event::DownloadProgress(progress) => return self.follow_download(&progress),
            _ => {}
        }
        let Some(session) = session.map(str::to_owned) else { return Vec::new() };
        match event {
            Event::Dialog(dialog) => return self.answer_dialog(session, dialog),
            Event::Paused(paused) => return vec![as_attachment(session, paused)],
            _ => {}
        }
        let Some(page) = self.of_session(&session) else { return Vec::new() };
        page.apply(event)
    }

    fn attach(&mut self, attached: Attached) -> Vec<Command> {
        let (session, target) = (attached.session_id, attached.target_info);
        if target.kind != "page" || target.subtype.is_some() {
            return Vec::new();
        }
        match self.expected.checked_sub(1) {
            Some(rest) => self.expected = rest,
            None => {
                self.popups = self.popups.saturating_add(1);
                if self.open.len() >= MAX_PAGES {
                    return vec![Command::Refuse { session, target: target.target_id }];
                }
            }
        }
        self.open.push(Page {
            frame: target.target_id.clone(),
            target: target.target_id,
            session: session.clone(),
            loader: String::new(),
            is_loaded: false,
            is_busy: false,
            requests: 0,
            commits: 0,
            is_crashed: false,
            is_stuck: false,
            status: None,
            scripts: None,
        });
        vec![Command::Prepare { session }]
    }

    fn answer_dialog(&mut self, session: String, dialog: DialogOpening) -> Vec<Command> {
        if self.dialogs.len() < MAX_DIALOGS {
            self.dialogs.push(Dialog { kind: dialog.kind, message: text::cut(&dialog.message, 1000) });
        }
        self.dialogs_of_action = self.dialogs_of_action.saturating_add(1);
        let mut commands = Vec::new();
        if self.dialogs_of_action > MAX_DIALOGS_PER_ACTION {
            commands.push(Command::EndScript { session: session.clone() });
        }
        commands.push(Command::AnswerDialog { session, accept: dialog.kind == DialogKind::Beforeunload });
        commands
    }

    fn begin_download(&mut self, begins: DownloadBegins) -> Vec<Command> {
        // It becomes a file name.
        let is_plain = begins.guid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if !is_plain || begins.guid.is_empty() || begins.guid.len() > 64 {
            return Vec::new();
        }
        self.begun += 1;
        if self.downloads.len() >= MAX_DOWNLOADS {
            self.refused = self.begun;
            return vec![Command::CancelDownload { guid: begins.guid }];
        }
        let name = text::file_name(&begins.suggested_filename);
        self.downloads.push(Download { guid: begins.guid, name, number: self.begun, end: None });
        Vec::new()
    }

    fn follow_download(&mut self, progress: &DownloadProgress) -> Vec<Command> {
        let Some(download) = self.downloads.iter_mut().find(|download| download.guid == progress.guid) else {
            return Vec::new();
        };
        if download.end.is_some() {
            return Vec::new();
        }
        // The cast saturates; NaN becomes 0.
        let bytes = progress.received_bytes as u64;
        if bytes > MAX_DOWNLOAD_BYTES {
            // The file may already be complete. It is reported, so that the caller can remove it.
            download.end = Some(DownloadEnd::Failed { why: TOO_LARGE });
            return vec![Command::CancelDownload { guid: progress.guid.clone() }];
        }
        match progress.state.as_str() {
            "completed" => download.end = Some(DownloadEnd::Complete { bytes }),
            "canceled" => download.end = Some(DownloadEnd::Failed { why: "it was canceled" }),
            _ => {}
        }
        Vec::new()
    }
}

impl Page {
    fn apply(&mut self, event: Event) -> Vec<Command> {
        match event {
            Event::Crashed => {
                self.is_crashed = true;
                return vec![Command::Forget { session: self.session.clone(), is_crash: true }];
            }
            Event::FrameNavigated(navigated) if navigated.frame.parent_id.is_none() => {
                self.frame = navigated.frame.id;
                self.loader = navigated.frame.loader_id;
                self.is_loaded = false;
                self.commits = self.commits.wrapping_add(1);
            }
            Event::NavigatedWithin(within) if within.frame_id == self.frame => {
                self.commits = self.commits.wrapping_add(1);
            }
            Event::RequestedNavigation(request) if request.frame_id == self.frame => {
                self.requests = self.requests.wrapping_add(1);
            }
            Event::StartedLoading(start) if start.frame_id == self.frame => self.is_busy = true,
            Event::StoppedLoading(stop) if stop.frame_id == self.frame => self.is_busy = false,
            Event::Lifecycle(stage) if stage.frame_id == self.frame => {
                // A popup may show its document before its events are enabled.
                if self.loader.is_empty() {
                    self.loader = stage.loader_id.clone();
                }
                self.is_loaded |= stage.name == "load" && stage.loader_id == self.loader;
            }
            Event::ContextCreated(created)
                if created.context.aux_data.is_default && created.context.aux_data.frame_id == self.frame =>
            {
                self.scripts = Some(created.context.unique_id);
            }
            Event::Response(response)
                if response.kind == "Document" && response.frame_id.as_ref() == Some(&self.frame) =>
            {
                self.status = Some((response.loader_id, response.response.status));
            }
            _ => {}
        }
        Vec::new()
    }
}

/// Changes a response that the page would show into a download. Redirects are passed unchanged.
fn as_attachment(session: String, paused: Paused) -> Command {
    let request = paused.request_id;
    let code = paused.response_status_code.filter(|code| !(300..400).contains(code));
    let changed = code.map(|code| {
        let is_other = |header: &Header| !header.name.eq_ignore_ascii_case("content-disposition");
        let (others, said): (Vec<Header>, Vec<Header>) = paused.response_headers.into_iter().partition(is_other);
        let said = said.first().map_or("", |header| header.value.as_str());
        let rest = said.split_once(';').map_or(String::new(), |(_, rest)| format!(";{rest}"));
        let mut headers: Vec<_> = others.into_iter().map(|header| (header.name, header.value)).collect();
        headers.push(("content-disposition".to_owned(), format!("attachment{rest}")));
        (code, headers)
    });
    Command::Continue { session, request, changed }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;
    use serde_json::{Value, json};

    use super::*;

    fn apply(pages: &mut Pages, session: Option<&str>, method: &str, params: &Value) -> Vec<Command> {
        let params = RawValue::from_string(params.to_string()).unwrap();
        pages.apply(session, Event::read(method, &params).unwrap())
    }

    fn attach(pages: &mut Pages, name: &str) -> Vec<Command> {
        let target = json!({ "targetId": format!("T{name}"), "type": "page" });
        apply(pages, None, "Target.attachedToTarget", &json!({ "sessionId": name, "targetInfo": target }))
    }

    #[test]
    fn sixth_page_is_refused_unless_requested() {
        let mut pages = Pages { expected: 1, ..Pages::default() };
        for name in ["1", "2", "3", "4", "5"] {
            assert_eq!(attach(&mut pages, name), [Command::Prepare { session: name.to_owned() }]);
        }
        let refused = Command::Refuse { session: "6".to_owned(), target: "T6".to_owned() };
        assert_eq!(attach(&mut pages, "6"), [refused]);
        assert_eq!((pages.open.len(), pages.take_events("/d").2), (5, 5), "the first page is not a popup");
        pages.expected = 1;
        assert_eq!(attach(&mut pages, "7"), [Command::Prepare { session: "7".to_owned() }]);
        apply(&mut pages, None, "Target.detachedFromTarget", &json!({ "sessionId": "7" }));
        assert_eq!(pages.current().map(|page| page.session.as_str()), Some("5"));
    }

    #[test]
    fn inner_frame_does_not_change_page_state() {
        let mut pages = Pages::default();
        attach(&mut pages, "1");
        let frame = json!({ "frame": { "id": "inner", "parentId": "T1", "loaderId": "L" } });
        apply(&mut pages, Some("1"), "Page.frameNavigated", &frame);
        apply(&mut pages, Some("1"), "Page.frameStartedLoading", &json!({ "frameId": "inner" }));
        let page = pages.current().unwrap();
        assert_eq!((page.commits, page.is_busy, page.frame.as_str()), (0, false, "T1"));
    }

    #[test]
    fn all_dialogs_are_answered_and_reported_up_to_limit() {
        let mut pages = Pages::default();
        attach(&mut pages, "1");
        pages.begin_action();
        for count in 1..=100 {
            let dialog = json!({ "type": "alert", "message": "m".repeat(5000) });
            let commands = apply(&mut pages, Some("1"), "Page.javascriptDialogOpening", &dialog);
            assert!(commands.contains(&Command::AnswerDialog { session: "1".to_owned(), accept: false }));
            assert_eq!(commands.contains(&Command::EndScript { session: "1".to_owned() }), count > 10, "{count}");
        }
        let dialogs = pages.take_events("/d").1;
        assert_eq!(dialogs.len(), MAX_DIALOGS);
        assert!(dialogs[0].message.len() < 1010);
    }

    #[test]
    fn download_is_reported_when_complete_and_its_id_is_no_path() {
        let mut pages = Pages::default();
        let begin = |guid: &str| json!({ "guid": guid, "suggestedFilename": "a/b.txt" });
        for wrong in ["../x", "", "a/b", &"a".repeat(65)] {
            apply(&mut pages, None, "Browser.downloadWillBegin", &begin(wrong));
        }
        assert_eq!(pages.begun, 0);
        apply(&mut pages, None, "Browser.downloadWillBegin", &begin("ab-1"));
        let progress = |state: &str, bytes: f64| json!({ "guid": "ab-1", "receivedBytes": bytes, "state": state });
        apply(&mut pages, None, "Browser.downloadProgress", &progress("inProgress", 3.0));
        assert!(pages.take_events("/d").0.is_empty());
        apply(&mut pages, None, "Browser.downloadProgress", &progress("completed", 7.0));
        let report = |end| Downloaded { name: "b.txt".to_owned(), path: "/d/ab-1".to_owned(), end };
        assert_eq!(pages.take_events("/d/").0, [report(DownloadEnd::Complete { bytes: 7 })]);
        // An oversized download fails even if it completed before it could be canceled; it is
        // reported, so that it can be removed.
        for state in ["inProgress", "completed"] {
            apply(&mut pages, None, "Browser.downloadWillBegin", &begin("ab-1"));
            let commands = apply(&mut pages, None, "Browser.downloadProgress", &progress(state, 1e12));
            assert_eq!(commands, [Command::CancelDownload { guid: "ab-1".to_owned() }]);
            assert_eq!(pages.take_events("/d").0, [report(DownloadEnd::Failed { why: TOO_LARGE })]);
        }
    }

    #[test]
    fn earlier_downloads_do_not_affect_outcome() {
        let mut pages = Pages::default();
        let mut number = 0;
        let mut begin = |pages: &mut Pages| {
            number += 1;
            let guid = format!("a{number}");
            apply(pages, None, "Browser.downloadWillBegin", &json!({ "guid": guid, "suggestedFilename": "x" }));
            guid
        };
        let end = |pages: &mut Pages, guid: &str, state: &str| {
            let progress = json!({ "guid": guid, "receivedBytes": 1.0, "state": state });
            apply(pages, None, "Browser.downloadProgress", &progress);
        };
        // Two downloads of the page: one never ends, one was canceled. Neither affects later ones.
        begin(&mut pages);
        let broken = begin(&mut pages);
        end(&mut pages, &broken, "canceled");
        let before = pages.begun;
        assert_eq!(pages.outcome_since(before), None, "none has started");
        let own = begin(&mut pages);
        assert_eq!(pages.outcome_since(before), None);
        end(&mut pages, &own, "completed");
        assert_eq!(pages.outcome_since(before), Some(Ok(())));
        assert_eq!(pages.outcome_since(0), None, "all of them");
        // A refused download fails the action that waits for it.
        while pages.downloads.len() < MAX_DOWNLOADS {
            begin(&mut pages);
        }
        let before = pages.begun;
        begin(&mut pages);
        assert_eq!(pages.outcome_since(before), Some(Err(TOO_MANY)));
    }

    #[test]
    fn shown_response_becomes_attachment_and_redirect_is_unchanged() {
        let paused = |status: u16, disposition: &str| {
            let headers =
                json!([{ "name": "Content-Disposition", "value": disposition }, { "name": "a", "value": "b" }]);
            json!({ "requestId": "r", "responseStatusCode": status, "responseHeaders": headers })
        };
        let changed = |params: &Value| {
            let commands = apply(&mut Pages::default(), Some("1"), "Fetch.requestPaused", params);
            let [Command::Continue { changed, .. }] = &commands[..] else { panic!("{commands:?}") };
            changed.clone()
        };
        let (code, headers) = changed(&paused(200, "inline; filename=\"x.txt\"")).unwrap();
        assert_eq!(code, 200);
        let said = ("content-disposition".to_owned(), "attachment; filename=\"x.txt\"".to_owned());
        assert_eq!(headers, [("a".to_owned(), "b".to_owned()), said]);
        assert_eq!(changed(&paused(302, "")), None);
    }
}
