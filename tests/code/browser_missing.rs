//! A machine without Chromium: browser actions fail with advice how to install it, and everything
//! else works.
//!
//! The server is started in a mount namespace with an empty tmpfs over each directory in which it
//! looks for Chromium.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::actor::Identity;
use tests::support::boxed::binary;
use tests::support::server::{Server, Starter};

use crate::fixture::Fixture;

const HIDDEN: &str = "for place in /usr/lib/chromium /usr/lib/chromium-browser /usr/lib64/chromium-browser /usr/lib64/chromium; do \
                      if [ -d $place ]; then mount -t tmpfs none $place || exit 1; fi; done; exec \"$@\"";
const ADVICE: &str = "apt-get install chromium";

#[test]
fn browser_action_without_chromium_names_the_package() {
    let place = TempDir::with_prefix("rw-missing-").unwrap();
    let script = place.path().join("ringwall");
    let words =
        format!("#!/bin/sh\nexec unshare --mount -- sh -c '{HIDDEN}' sh {} \"$@\"\n", binary().unwrap().display());
    std::fs::write(&script, words).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let starter = Starter { identity: Identity::Tester, binary: script };
    let data = TempDir::with_prefix("rw-code-").unwrap();
    let fixture = Fixture { server: Arc::new(Server::start_as(&starter, data, &[])) };
    for context in [json!({}), json!({ "needs_file_access": true })] {
        for action in
            [json!({ "action": "navigate", "params": { "url": "about:blank" } }), json!({ "action": "get_content" })]
        {
            let mut body = action;
            body["context"] = context.clone();
            let response = fixture.server.ask("POST", "/api/browser/s", Some(&body)).expect(503);
            assert_eq!(
                (&response["success"], &response["data"], &response["screenshot"]),
                (&json!(false), &Value::Null, &Value::Null)
            );
            assert!(response["error"].as_str().unwrap().contains(ADVICE), "{response}");
        }
    }
    // Closing a browser that does not exist succeeds, and the failed actions are not listed.
    let closed = fixture.server.ask("POST", "/api/browser/s", Some(&json!({ "action": "close" }))).expect(200);
    assert_eq!(closed["success"], true, "{closed}");
    assert_eq!(fixture.last_action()["action"], "close");
    assert_eq!(fixture.shell("echo works")["stdout"], "works\n");
}
