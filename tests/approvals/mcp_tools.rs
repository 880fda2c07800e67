//! The MCP door's tools and resources one by one, by the official client over HTTP, with a session and without: what each
//! does, what is told of it while it runs, and that it ends when it is taken back.

use serde_json::{Value, json};

use crate::mcp::script;
use crate::site::Site;

const MODES: [&str; 2] = ["legacy", "2026-07-28"];

/// What is the same for each way of the protocol.
fn told(site: &Site, name: &str, mode: &str, more: &Value) -> Value {
    let server = &site.server;
    let mut said = json!({
        "transport": "http", "mode": mode, "url": format!("http://{}", server.address), "owner": server.token,
        "data": server.data(),
    });
    said.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    script(name, &said)
}

#[test]
fn every_tool_of_the_browser_has_its_effect() {
    let site = Site::start();
    for mode in MODES {
        let told = told(&site, "mcp_browser.py", mode, &json!({}));
        assert!(told["told"].as_array().is_some_and(|told| told[0] == "close"), "{mode}: {told}");
    }
}

#[test]
fn resources_news_and_progress() {
    let site = Site::start();
    for mode in MODES {
        // Somebody who has nothing yet.
        let other = site.server.make_token(&["--role", "user", "--user", &format!("other-{mode}")]);
        let told = told(&site, "mcp_shelf.py", mode, &json!({ "other": other }));
        assert!(told["place"].is_string(), "{mode}: {told}");
        std::fs::remove_dir_all(site.server.data().join("skills/mcp.leaves")).unwrap();
    }
}
