//! Hostile pages: each action ends, and the next one works.

use std::sync::Arc;
use std::time::Duration;

use ringwall_browser::{Action, Dialog, DialogKind, Error, Format};

use crate::lab::{Lab, css};

pub async fn dialogs_are_answered_and_reported(lab: Arc<Lab>) {
    lab.show(
        "<button onclick=\"alert('one'); document.title = [confirm('two'), prompt('three', 'x')].join()\">ask</button>\
         <script>onbeforeunload = (event) => { event.preventDefault(); return 'stay' }</script>",
    )
    .await;
    let answer = lab.click("button").await;
    let dialog = |kind, message: &str| Dialog { kind, message: message.to_owned() };
    let said =
        [dialog(DialogKind::Alert, "one"), dialog(DialogKind::Confirm, "two"), dialog(DialogKind::Prompt, "three")];
    assert_eq!(answer.dialogs, said);
    assert_eq!(answer.title, "false,");
    let answer = lab.open("/plain").await;
    assert_eq!(answer.title, "Plain", "beforeunload does not stop the navigation");
    assert_eq!(answer.dialogs.iter().map(|dialog| dialog.kind).collect::<Vec<_>>(), [DialogKind::Beforeunload]);
}

pub async fn endless_dialogs_are_terminated(lab: Arc<Lab>) {
    lab.show("<button onclick=\"for (;;) alert('again')\">x</button>").await;
    let answer = lab.click("button").await;
    assert!((10..=20).contains(&answer.dialogs.len()), "{answer:?}");
    assert_eq!(lab.open("/plain").await.title, "Plain");
}

pub async fn endless_script_is_terminated(lab: Arc<Lab>) {
    lab.open("/plain").await;
    lab.fail(Action::Evaluate { script: "for (;;) {}".to_owned() }).await;
    assert_eq!(lab.open("/plain").await.title, "Plain");
}

pub async fn crash_is_reported_and_next_page_works(lab: Arc<Lab>) {
    lab.open("/plain").await;
    let error = lab.fail(Action::Navigate { url: "chrome://crash".to_owned(), timeout: Duration::from_secs(20) }).await;
    assert!(matches!(error, Error::Crashed), "{error}");
    let error = lab.fail(Action::Content { format: Format::Text }).await;
    assert_eq!(error.to_string(), "the page crashed; navigate opens a fresh one");
    let answer = lab.open("/plain").await;
    assert_eq!((answer.title.as_str(), answer.popups), ("Plain", 0));
}

pub async fn huge_page_is_truncated(lab: Arc<Lab>) {
    lab.show("<body><script>document.body.innerHTML = '<p><a href=#>link</a> and words</p>'.repeat(30000)</script>")
        .await;
    for format in [Format::Outline, Format::Html, Format::Text] {
        let answer = lab.act(Action::Content { format }).await;
        assert_eq!(answer.data["truncated"], true, "{format:?}");
        assert!(answer.data["content"].as_str().unwrap().len() <= 1_100_000, "{format:?}");
    }
    lab.show("<body><script>let deep = document.body; for (let i = 0; i < 400; i++) deep = deep.appendChild(document.createElement('div'))</script>")
        .await;
    lab.act(Action::Content { format: Format::Outline }).await;
}

/// Part of /etc/passwd, which shows that the file was opened.
const OPENED: &str = "root:x:0";

pub async fn page_cannot_open_local_files(lab: Arc<Lab>) {
    let go = |url: &str| Action::Navigate { url: url.to_owned(), timeout: Duration::from_secs(20) };
    lab.act(go("file:///etc/passwd")).await;
    assert!(lab.content(Format::Text).await.contains(OPENED), "control: navigating there by URL shows it");
    let leading_to = |to: &str| {
        format!(
            "<title>Mine</title><a id=a href={to}>read</a><a id=b target=_blank href={to}>read</a>\
             <button id=c onclick=\"location = '{to}'\">go</button><button id=d onclick=\"window.open('{to}')\">go</button>\
             <iframe src={to}></iframe>"
        )
    };
    for selector in ["#a", "#b", "#c", "#d"] {
        lab.show(&leading_to("/plain")).await;
        lab.click(selector).await;
        assert_eq!(lab.wait_for_text("nothing to see").await.title, "Plain", "control: {selector} navigates");
        lab.show(&leading_to("file:///etc/passwd")).await;
        let answer = lab.click(selector).await;
        assert!(!answer.url.starts_with("file:"), "{}", answer.url);
        for format in [Format::Html, Format::Outline] {
            assert!(!lab.content(format).await.contains(OPENED), "{selector}");
        }
    }
    let error = lab.fail(go(&lab.server.url("/to-a-file"))).await;
    assert!(error.to_string().contains("ERR_UNSAFE_REDIRECT"), "{error}");
}

pub async fn endless_popups_are_closed(lab: Arc<Lab>) {
    lab.show("<button onclick=\"for (let i = 0; i < 30; i++) window.open('/plain', 'w' + i)\">x</button>").await;
    lab.click("button").await;
    // Each page opens the next when it is clicked.
    let chain = lab.server.serve("<button onclick=\"window.open(location.href)\">more</button>");
    lab.open(&chain).await;
    let mut popups = 0;
    for _ in 0..8 {
        popups += lab.act(Action::Click { target: css("button") }).await.popups;
        lab.act(Action::WaitFor {
            until: ringwall_browser::Until::Text("more".to_owned()),
            timeout: Duration::from_secs(20),
        })
        .await;
    }
    assert!(popups >= 4, "{popups}");
    assert_eq!(lab.open("/plain").await.title, "Plain");
}

pub async fn unpaired_surrogate_keeps_browser_alive(lab: Arc<Lab>) {
    lab.show("<script>document.title = 'a\\ud83d'; alert('\\udc00'); document.body.append('\\ud83d')</script>").await;
    for format in [Format::Outline, Format::Html, Format::Text] {
        lab.act(Action::Content { format }).await;
    }
    assert!(lab.browser.is_alive());
}
