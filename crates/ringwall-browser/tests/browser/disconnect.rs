//! Browsers that exit or are killed, and peers that are no browser.

use std::sync::Arc;
use std::time::Duration;

use ringwall_browser::{Action, Browser, Error, Files, Format};
use tokio::io::AsyncWriteExt;

use crate::fixture::{Fixture, connect, names, start};

const LONG: Duration = Duration::from_secs(60);

pub async fn killed_browser_fails_actions(_fixture: Arc<Fixture>) {
    let directory = tempfile::tempdir().unwrap();
    let (mut chromium, control) = start(&directory);
    let browser = connect(control, &directory).await.unwrap();
    assert!(browser.is_alive());
    chromium.start_kill().unwrap();
    tokio::time::timeout(LONG, browser.closed()).await.unwrap();
    assert!(!browser.is_alive());
    let error = browser.perform(Action::Content { format: Format::Text }).await.unwrap_err();
    assert!(matches!(error, Error::Closed { .. }), "{error}");
}

pub async fn close_ends_browser(_fixture: Arc<Fixture>) {
    let directory = tempfile::tempdir().unwrap();
    let (mut chromium, control) = start(&directory);
    let browser = connect(control, &directory).await.unwrap();
    browser.close().await;
    tokio::time::timeout(LONG, chromium.wait()).await.unwrap().unwrap();
}

/// Invalid messages and closed streams fail at once.
pub async fn invalid_stream_fails_connect(_fixture: Arc<Fixture>) {
    let said: &[&[u8]] = &[
        b"",
        b"\0",
        b"hello\0",
        b"{\"id\":1",
        b"{\"id\":1,\"result\":{}}\0[]\0",
        b"{\"id\":1,\"error\":{\"message\":\"no\"}}\0",
        b"{\"id\":1,\"result\":7}\0",
        b"\xff\xfe\0",
        b"{\"id\":1,\"result\":{}}\0{\"id\":2,\"result\":{}}\0",
    ];
    for bytes in said {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let (from, to) = tokio::io::split(ours);
        let names = names();
        let connecting = Browser::connect(from, to, Files { downloads: "/nowhere".to_owned() }, &names);
        theirs.write_all(bytes).await.unwrap();
        theirs.shutdown().await.unwrap();
        let error = tokio::time::timeout(LONG, connecting).await.unwrap().unwrap_err();
        let is_expected = matches!(error, Error::Closed { .. } | Error::Refused { .. } | Error::Malformed { .. });
        assert!(is_expected, "{}: {error}", String::from_utf8_lossy(bytes));
    }
}
