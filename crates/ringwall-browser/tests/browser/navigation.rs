//! Navigation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringwall_browser::{Action, Error};
use serde_json::json;

use crate::fixture::Fixture;

pub async fn answer_has_url_title_and_status(fixture: Arc<Fixture>) {
    let answer = fixture.open("/plain").await;
    assert_eq!((answer.url, answer.title.as_str()), (fixture.server.url("/plain"), "Plain"));
    assert_eq!(answer.data, json!({ "status": 200, "loaded": true }));
    assert_eq!(fixture.open("/missing").await.data["status"], 404);
    let blank = fixture.act(Action::Navigate { url: "about:blank".to_owned(), timeout: Duration::from_secs(5) }).await;
    assert_eq!((blank.url.as_str(), &blank.data["status"]), ("about:blank", &json!(null)));
}

pub async fn redirect_is_followed(fixture: Arc<Fixture>) {
    let answer = fixture.open("/redirect").await;
    assert_eq!((answer.url, &answer.data["status"]), (fixture.server.url("/plain"), &json!(200)));
}

pub async fn unreachable_url_fails_with_reason(fixture: Arc<Fixture>) {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let go = |url: String| Action::Navigate { url, timeout: Duration::from_secs(10) };
    let error = fixture.fail(go(format!("http://{address}/"))).await;
    assert!(matches!(&error, Error::NotOpened { .. }), "{error}");
    assert!(error.to_string().contains("ERR_CONNECTION_REFUSED"), "{error}");
    let error = fixture.fail(go("no address at all".to_owned())).await;
    assert!(matches!(&error, Error::NotOpened { .. }), "{error}");
    fixture.open("/plain").await;
}

pub async fn silent_server_fails_after_time_limit(fixture: Arc<Fixture>) {
    let begun = Instant::now();
    let error =
        fixture.fail(Action::Navigate { url: fixture.server.url("/never"), timeout: Duration::from_secs(1) }).await;
    assert!(matches!(&error, Error::NoAnswer { .. }), "{error}");
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(fixture.open("/plain").await.title, "Plain");
}

pub async fn unfinished_page_is_shown_as_not_loaded(fixture: Arc<Fixture>) {
    // A slow Chromium needs more time for the first half.
    let mut seen = None;
    for timeout in [1, 5, 20].map(Duration::from_secs) {
        let half = fixture.browser.perform(Action::Navigate { url: fixture.server.url("/half"), timeout }).await;
        seen = half.ok().filter(|answer| answer.title == "Half");
        if seen.is_some() {
            break;
        }
    }
    assert_eq!(seen.unwrap().data["loaded"], json!(false));
    assert!(fixture.content(ringwall_browser::Format::Text).await.contains("the first half"));
}

pub async fn back_opens_previous_page(fixture: Arc<Fixture>) {
    fixture.open("/plain").await;
    fixture.open("/missing").await;
    let answer = fixture.act(Action::Back).await;
    assert_eq!((answer.title.as_str(), &answer.data["navigated"]), ("Plain", &json!(true)));
}

pub async fn popup_becomes_current_page_until_closed(fixture: Arc<Fixture>) {
    fixture.show("<title>First</title><a id=a href=/plain target=_blank>open</a>").await;
    // A popup that opens late is reported with the next answer.
    let early = fixture.click("#a").await.popups;
    let answer = fixture.wait_for_text("nothing to see").await;
    assert_eq!((answer.title.as_str(), early + answer.popups), ("Plain", 1), "a popup is reported once");
    fixture.act(Action::Evaluate { script: "setTimeout(() => window.close(), 0); 1".to_owned() }).await;
    let answer = fixture.wait_for_text("open").await;
    assert_eq!(answer.title, "First");
}

pub async fn back_without_history_fails(fixture: Arc<Fixture>) {
    // A new page has no history.
    fixture.show("<button onclick=\"window.open('about:blank')\">new</button>").await;
    fixture.click("button").await;
    let error = fixture.fail(Action::Back).await;
    assert!(matches!(error, Error::NoHistory), "{error}");
    fixture.act(Action::Evaluate { script: "setTimeout(() => window.close(), 0); 1".to_owned() }).await;
    fixture.wait_for_text("new").await;
}
