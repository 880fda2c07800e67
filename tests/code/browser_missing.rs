//! A machine without Chromium: whoever asks for a browser is told how to get one, and everything else works.
//!
//! This machine has one, so the server is started where an empty directory lies over each place at which it is looked for.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::actor::Identity;
use tests::support::boxed::binary;
use tests::support::server::{Server, Starter};

use crate::site::Site;

const HIDDEN: &str = "for place in /usr/lib/chromium /usr/lib/chromium-browser /usr/lib64/chromium-browser /usr/lib64/chromium; do \
                      if [ -d $place ]; then mount -t tmpfs none $place || exit 1; fi; done; exec \"$@\"";
const ADVICE: &str = "apt-get install chromium";

#[test]
fn without_chromium_it_is_said_how_to_get_it() {
    let place = TempDir::with_prefix("rw-missing-").unwrap();
    let script = place.path().join("ringwall");
    let words =
        format!("#!/bin/sh\nexec unshare --mount -- sh -c '{HIDDEN}' sh {} \"$@\"\n", binary().unwrap().display());
    std::fs::write(&script, words).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let starter = Starter { identity: Identity::Tester, binary: script };
    let data = TempDir::with_prefix("rw-code-").unwrap();
    let site = Site { server: Arc::new(Server::start_as(&starter, data, &[])) };
    for context in [json!({}), json!({ "needs_file_access": true })] {
        for action in
            [json!({ "action": "navigate", "params": { "url": "about:blank" } }), json!({ "action": "get_content" })]
        {
            let mut body = action;
            body["context"] = context.clone();
            let told = site.server.ask("POST", "/api/browser/s", Some(&body)).expect(503);
            assert_eq!(
                (&told["success"], &told["data"], &told["screenshot"]),
                (&json!(false), &Value::Null, &Value::Null)
            );
            assert!(told["error"].as_str().unwrap().contains(ADVICE), "{told}");
        }
    }
    // Where there is none, closing it is no trouble, and nothing was on its way to be done.
    let closed = site.server.ask("POST", "/api/browser/s", Some(&json!({ "action": "close" }))).expect(200);
    assert_eq!(closed["success"], true, "{closed}");
    assert_eq!(site.last_action()["action"], "close");
    assert_eq!(site.shell("echo works")["stdout"], "works\n");
}
