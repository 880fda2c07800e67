//! Hostile pages: each action ends, and the next one works.

use std::sync::Arc;
use std::time::Duration;

use ringwall_browser::{Action, Dialog, DialogKind, Error, Format};

use crate::fixture::{Fixture, css};

pub async fn dialogs_are_answered_and_reported(fixture: Arc<Fixture>) {
    fixture.show(
        "<button onclick=\"alert('one'); document.title = [confirm('two'), prompt('three', 'x')].join()\">ask</button>\
         <script>onbeforeunload = (event) => { event.preventDefault(); return 'stay' }</script>",
    )
    .await;
    let answer = fixture.click("button").await;
    let dialog = |kind, message: &str| Dialog { kind, message: message.to_owned() };
    let said =
        [dialog(DialogKind::Alert, "one"), dialog(DialogKind::Confirm, "two"), dialog(DialogKind::Prompt, "three")];
    assert_eq!(answer.dialogs, said);
    assert_eq!(answer.title, "false,");
    let answer = fixture.open("/plain").await;
    assert_eq!(answer.title, "Plain", "beforeunload does not stop the navigation");
    assert_eq!(answer.dialogs.iter().map(|dialog| dialog.kind).collect::<Vec<_>>(), [DialogKind::Beforeunload]);
}

pub async fn endless_dialogs_are_terminated(fixture: Arc<Fixture>) {
    fixture.show("<button onclick=\"for (;;) alert('again')\">x</button>").await;
    let answer = fixture.click("button").await;
    assert!((10..=20).contains(&answer.dialogs.len()), "{answer:?}");
    assert_eq!(fixture.open("/plain").await.title, "Plain");
}

pub async fn endless_script_is_terminated(fixture: Arc<Fixture>) {
    fixture.open("/plain").await;
    fixture.fail(Action::Evaluate { script: "for (;;) {}".to_owned() }).await;
    assert_eq!(fixture.open("/plain").await.title, "Plain");
}

pub async fn crash_is_reported_and_next_page_works(fixture: Arc<Fixture>) {
    fixture.open("/plain").await;
    let error =
        fixture.fail(Action::Navigate { url: "chrome://crash".to_owned(), timeout: Duration::from_secs(20) }).await;
    assert!(matches!(error, Error::Crashed), "{error}");
    let error = fixture.fail(Action::Content { format: Format::Text }).await;
    assert_eq!(error.to_string(), "the page crashed; navigate opens a fresh one");
    let answer = fixture.open("/plain").await;
    assert_eq!((answer.title.as_str(), answer.popups), ("Plain", 0));
}

pub async fn huge_page_is_truncated(fixture: Arc<Fixture>) {
    fixture
        .show("<body><script>document.body.innerHTML = '<p><a href=#>link</a> and words</p>'.repeat(30000)</script>")
        .await;
    for format in [Format::Outline, Format::Html, Format::Text] {
        let answer = fixture.act(Action::Content { format }).await;
        assert_eq!(answer.data["truncated"], true, "{format:?}");
        assert!(answer.data["content"].as_str().unwrap().len() <= 1_100_000, "{format:?}");
    }
    fixture.show("<body><script>let deep = document.body; for (let i = 0; i < 400; i++) deep = deep.appendChild(document.createElement('div'))</script>")
        .await;
    fixture.act(Action::Content { format: Format::Outline }).await;
}

/// Part of /etc/passwd, which shows that the file was opened.
const OPENED: &str = "root:x:0";

pub async fn page_cannot_open_local_files(fixture: Arc<Fixture>) {
    let go = |url: &str| Action::Navigate { url: url.to_owned(), timeout: Duration::from_secs(20) };
    fixture.act(go("file:///etc/passwd")).await;
    assert!(fixture.content(Format::Text).await.contains(OPENED), "control: navigating there by URL shows it");
    let leading_to = |to: &str| {
        format!(
            "<title>Mine</title><a id=a href={to}>read</a><a id=b target=_blank href={to}>read</a>\
             <button id=c onclick=\"location = '{to}'\">go</button><button id=d onclick=\"window.open('{to}')\">go</button>\
             <iframe src={to}></iframe>"
        )
    };
    for selector in ["#a", "#b", "#c", "#d"] {
        fixture.show(&leading_to("/plain")).await;
        fixture.click(selector).await;
        assert_eq!(fixture.wait_for_text("nothing to see").await.title, "Plain", "control: {selector} navigates");
        fixture.show(&leading_to("file:///etc/passwd")).await;
        let answer = fixture.click(selector).await;
        assert!(!answer.url.starts_with("file:"), "{}", answer.url);
        for format in [Format::Html, Format::Outline] {
            assert!(!fixture.content(format).await.contains(OPENED), "{selector}");
        }
    }
    let error = fixture.fail(go(&fixture.server.url("/to-a-file"))).await;
    assert!(error.to_string().contains("ERR_UNSAFE_REDIRECT"), "{error}");
}

pub async fn endless_popups_are_closed(fixture: Arc<Fixture>) {
    fixture.show("<button onclick=\"for (let i = 0; i < 30; i++) window.open('/plain', 'w' + i)\">x</button>").await;
    fixture.click("button").await;
    // Each page opens the next when it is clicked.
    let chain = fixture.server.serve("<button onclick=\"window.open(location.href)\">more</button>");
    fixture.open(&chain).await;
    let mut popups = 0;
    for _ in 0..8 {
        popups += fixture.act(Action::Click { target: css("button") }).await.popups;
        fixture
            .act(Action::WaitFor {
                until: ringwall_browser::WaitCondition::Text("more".to_owned()),
                timeout: Duration::from_secs(20),
            })
            .await;
    }
    assert!(popups >= 4, "{popups}");
    assert_eq!(fixture.open("/plain").await.title, "Plain");
}

pub async fn unpaired_surrogate_keeps_browser_alive(fixture: Arc<Fixture>) {
    fixture
        .show("<script>document.title = 'a\\ud83d'; alert('\\udc00'); document.body.append('\\ud83d')</script>")
        .await;
    for format in [Format::Outline, Format::Html, Format::Text] {
        fixture.act(Action::Content { format }).await;
    }
    assert!(fixture.browser.is_alive());
}
