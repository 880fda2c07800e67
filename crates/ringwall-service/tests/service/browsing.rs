//! Browsers at the service itself: how many may wait for one, and that none leaves anything when it is not wanted any more.
//!
//! Both have a real Chromium; the pages are this test's, on the host's loopback, which is allowed by the setting for that.

use std::io::{Read, Write};
use std::net::TcpListener;

use ringwall_policy::BrowserKind;
use ringwall_record::ApprovalStatus;
use ringwall_service::{BrowserBegun, BrowserRequest, CodeRequest, Error, Limit, SessionAddress};
use serde_json::{Value, json};

use crate::lab::{LONG, Lab, in_lab, seen};

/// Serves one page, with a field for a password.
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

async fn begin(lab: &Lab, window: BrowserKind, action: &str, params: Value) -> Result<BrowserBegun, Error> {
    let request = BrowserRequest { session: address(), action: action.to_owned(), params, window: Some(window) };
    lab.service.begin_browser(&lab.owner, request).await
}

/// While one action waits for a person, so many wait for it, each until it is taken back or whoever asked is gone.
pub fn waiting_for_a_browser_is_bounded() {
    in_lab(async |lab| {
        let host = serve();
        lab.set(json!({ "browser": { "allowed_hosts": [host] } })).await;
        let ask = async |action: &str, params: Value| begin(lab, BrowserKind::External, action, params).await;
        let finish = async |begun: &BrowserBegun| {
            let finishing = lab.service.finish_browser(begun);
            tokio::time::timeout(LONG, finishing).await.unwrap()
        };
        let opened = ask("navigate", json!({ "url": format!("http://{host}/") })).await.unwrap();
        let opened = finish(&opened).await.unwrap();
        assert!(opened.success, "{:?}", opened.error);
        let typing = ask("fill", json!({ "selector": "#p", "value": "x" })).await.unwrap();
        let question = seen("a question", async || {
            let pending = Some(ApprovalStatus::Pending);
            let found = lab.service.approvals(&lab.owner, pending, None, Limit::nearest(10), None).await.unwrap();
            found.items.into_iter().next()
        })
        .await;
        let mut waiting = Vec::new();
        for _ in 0..32 {
            waiting.push(ask("get_content", json!({})).await.unwrap());
        }
        let one_more = ask("get_content", json!({})).await.unwrap_err();
        assert_eq!(one_more.code(), "QUEUE_FULL", "{one_more}");
        // One that is taken back is over at once, while the other still waits for a person.
        let taken_back = waiting.pop().unwrap();
        taken_back.take_back();
        assert_eq!(finish(&taken_back).await.unwrap_err().code(), "CONFLICT");
        // Whoever is gone leaves their place, too.
        waiting.push(ask("get_content", json!({})).await.unwrap());
        waiting.pop();
        let next = seen("a place", async || ask("get_content", json!({})).await.ok()).await;
        assert!(!typing.is_over() && !next.is_over(), "nothing was done meanwhile");
        typing.take_back();
        assert!(!finish(&typing).await.unwrap().success);
        assert!(finish(&next).await.unwrap().success, "the line moves on");
        let settled = lab.service.approval(&lab.owner, question.id.as_str()).await.unwrap();
        assert_ne!(settled.status, ApprovalStatus::Approved);
    });
}

/// Taken back while it starts: neither a process nor a file of it is left in the session's box.
pub fn a_browser_that_is_not_wanted_leaves_nothing() {
    in_lab(async |lab| {
        lab.set(json!({ "sessions": { "confirmation": "auto-approve" } })).await;
        let in_box = async |line: &str| {
            let request = CodeRequest::in_session_box(address(), line.to_owned(), Some(30), None);
            let begun = lab.service.begin_code(&lab.owner, request).await.unwrap();
            lab.service.finish_code(&lab.owner, begun, ringwall_risk::Locale::English).await.unwrap().stdout
        };
        let folders = async || in_box("ls -d /tmp/browser-* 2>/dev/null; true").await;
        assert_eq!(folders().await, "");
        let begun = begin(lab, BrowserKind::Sandbox, "navigate", json!({ "url": "about:blank" })).await.unwrap();
        let _ = seen("a folder", async || Some(folders().await).filter(|found| !found.is_empty())).await;
        begun.take_back();
        let answer = lab.service.finish_browser(&begun).await.unwrap();
        // Where it was too late for that, there is one, and it is closed.
        if answer.success {
            let closing = begin(lab, BrowserKind::Sandbox, "close", json!({})).await.unwrap();
            assert!(lab.service.finish_browser(&closing).await.unwrap().success);
        }
        assert_eq!(folders().await, "", "{:?}", answer.error);
        let processes = async || in_box("cat /proc/[0-9]*/cmdline | grep -ac '[c]hromium'; true").await;
        seen("the end of its processes", async || (processes().await == "0\n").then_some(())).await;
    });
}
