//! Browser tools and resources of MCP with the official client over HTTP, with a session and
//! without: effects, progress notifications and cancellation.

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::mcp::script;

const MODES: [&str; 2] = ["legacy", "2026-07-28"];

/// Runs a script in one mode of the protocol and returns its result.
fn run_script(fixture: &Fixture, name: &str, mode: &str, more: &Value) -> Value {
    let server = &fixture.server;
    let mut input = json!({
        "transport": "http", "mode": mode, "url": format!("http://{}", server.address), "owner": server.token,
        "data": server.data(),
    });
    input.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    script(name, &input)
}

#[test]
fn browser_tools_have_their_effect() {
    let fixture = Fixture::start();
    for mode in MODES {
        let result = run_script(&fixture, "mcp_browser.py", mode, &json!({}));
        assert!(result["actions"].as_array().is_some_and(|result| result[0] == "close"), "{mode}: {result}");
    }
}

#[test]
fn resources_list_changes_and_progress_are_reported() {
    let fixture = Fixture::start();
    for mode in MODES {
        // A user without any files.
        let other = fixture.server.make_token(&["--role", "user", "--user", &format!("other-{mode}")]);
        let result = run_script(&fixture, "mcp_resources.py", mode, &json!({ "other": other }));
        assert!(result["prefix"].is_string(), "{mode}: {result}");
        std::fs::remove_dir_all(fixture.server.data().join("skills/mcp.leaves")).unwrap();
    }
}
