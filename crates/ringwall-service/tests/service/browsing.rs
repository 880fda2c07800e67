//! Browsers through the service API: the limit of waiting actions, and cleanup after cancelling.
//!
//! The tests use a real Chromium. It opens pages that the test serves on the host's loopback
//! address, which `browser.allowed_hosts` permits.

use std::io::{Read, Write};
use std::net::TcpListener;

use ringwall_policy::BrowserKind;
use ringwall_record::ApprovalStatus;
use ringwall_service::{BrowserBegun, BrowserRequest, CodeRequest, Error, Limit, SessionAddress};
use serde_json::{Value, json};

use crate::fixture::{Fixture, LONG, in_fixture, seen};

/// Serves one page with a password field.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head);
            let page = "<title>Form</title><input id=p type=password>";
            let kind = "Content-Type: text/html\r\nConnection: close";
            let _ = write!(stream, "HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {}\r\n\r\n{page}", page.len());
        }
    });
    host
}

fn address() -> SessionAddress {
    SessionAddress { session_id: "s".to_owned(), ..SessionAddress::default() }
}

async fn begin(fixture: &Fixture, kind: BrowserKind, action: &str, params: Value) -> Result<BrowserBegun, Error> {
    let request = BrowserRequest { session: address(), action: action.to_owned(), params, kind: Some(kind) };
    fixture.service.begin_browser(&fixture.owner, request).await
}

/// While one action waits for approval, 32 more may wait for the browser. A cancelled or dropped
/// one frees its place.
pub fn waiting_browser_actions_are_limited() {
    in_fixture(async |fixture| {
        let host = serve();
        fixture.set(json!({ "browser": { "allowed_hosts": [host] } })).await;
        let ask = async |action: &str, params: Value| begin(fixture, BrowserKind::External, action, params).await;
        let finish = async |begun: &BrowserBegun| {
            let finishing = fixture.service.finish_browser(begun);
            tokio::time::timeout(LONG, finishing).await.unwrap()
        };
        let opened = ask("navigate", json!({ "url": format!("http://{host}/") })).await.unwrap();
        let opened = finish(&opened).await.unwrap();
        assert!(opened.success, "{:?}", opened.error);
        let typing = ask("fill", json!({ "selector": "#p", "value": "x" })).await.unwrap();
        let question = seen("a question", async || {
            let pending = Some(ApprovalStatus::Pending);
            let found =
                fixture.service.approvals(&fixture.owner, pending, None, Limit::nearest(10), None).await.unwrap();
            found.items.into_iter().next()
        })
        .await;
        let mut waiting = Vec::new();
        for _ in 0..32 {
            waiting.push(ask("get_content", json!({})).await.unwrap());
        }
        let one_more = ask("get_content", json!({})).await.unwrap_err();
        assert_eq!(one_more.code(), "QUEUE_FULL", "{one_more}");
        // A cancelled action ends at once, although the first one still waits for approval.
        let taken_back = waiting.pop().unwrap();
        taken_back.cancel();
        assert_eq!(finish(&taken_back).await.unwrap_err().code(), "CONFLICT");
        // A dropped action frees its place too.
        waiting.push(ask("get_content", json!({})).await.unwrap());
        waiting.pop();
        let next = seen("a place", async || ask("get_content", json!({})).await.ok()).await;
        assert!(!typing.is_over() && !next.is_over(), "nothing was done meanwhile");
        typing.cancel();
        assert!(!finish(&typing).await.unwrap().success);
        assert!(finish(&next).await.unwrap().success, "the line moves on");
        let settled = fixture.service.approval(&fixture.owner, question.id.as_str()).await.unwrap();
        assert_ne!(settled.status, ApprovalStatus::Approved);
    });
}

/// Cancelling a browser that is starting leaves no process and no file in the session's box.
pub fn cancelled_browser_start_leaves_nothing() {
    in_fixture(async |fixture| {
        fixture.set(json!({ "sessions": { "confirmation": "auto-approve" } })).await;
        let in_box = async |line: &str| {
            let request = CodeRequest::in_session_box(address(), line.to_owned(), Some(30), None);
            let begun = fixture.service.begin_code(&fixture.owner, request).await.unwrap();
            fixture.service.finish_code(&fixture.owner, begun, ringwall_risk::Locale::English).await.unwrap().stdout
        };
        let folders = async || in_box("ls -d /tmp/browser-* 2>/dev/null; true").await;
        assert_eq!(folders().await, "");
        let begun = begin(fixture, BrowserKind::Sandbox, "navigate", json!({ "url": "about:blank" })).await.unwrap();
        let _ = seen("a folder", async || Some(folders().await).filter(|found| !found.is_empty())).await;
        begun.cancel();
        let answer = fixture.service.finish_browser(&begun).await.unwrap();
        // If the start completed before it was cancelled, the browser is open and must be closed.
        if answer.success {
            let closing = begin(fixture, BrowserKind::Sandbox, "close", json!({})).await.unwrap();
            assert!(fixture.service.finish_browser(&closing).await.unwrap().success);
        }
        assert_eq!(folders().await, "", "{:?}", answer.error);
        let processes = async || in_box("cat /proc/[0-9]*/cmdline | grep -ac '[c]hromium'; true").await;
        seen("the end of its processes", async || (processes().await == "0\n").then_some(())).await;
    });
}
