//! MCP with the official client on standard streams, over HTTP and through the bridge, with
//! sessions and without; and hostile requests to `/mcp`.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tests::support::boxed::binary;

use crate::fixture::{Fixture, deny};
use crate::server::{Answer, Server};

/// The directory of the Python scripts, which contain assertions of their own.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/approvals/");
const BOTH: &str = "application/json, text/event-stream";

/// The Python with the official client, which `scripts/setup test` has installed.
fn python() -> PathBuf {
    let home = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/mcp-client/bin/python");
    let python = std::env::var_os("RINGWALL_MCP_PYTHON").map_or_else(|| home.into(), PathBuf::from);
    assert!(python.exists(), "{} is missing; run scripts/setup test", python.display());
    python
}

/// Runs `mcp_client.py` and returns its result.
fn client(fixture: &Value) -> Value {
    script("mcp_client.py", fixture)
}

/// Runs a script and returns the JSON of its last line.
pub fn script(name: &str, fixture: &Value) -> Value {
    let output =
        Command::new(python()).arg("-B").arg(format!("{SCRIPTS}{name}")).arg(fixture.to_string()).output().unwrap();
    let (result, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{result}{log}");
    serde_json::from_str(result.lines().last().unwrap()).unwrap()
}

fn served(transport: &str, mode: &str) {
    let fixture = Fixture::start();
    let server = &fixture.server;
    let agent = server.make_token(&["--role", "agent", "--user", "default", "--agent", "default"]);
    let result = client(&json!({
        "transport": transport, "mode": mode, "url": format!("http://{}", server.address), "data": server.data(),
        "binary": binary().unwrap(), "owner": server.token, "agent": agent, "asks": fixture.blocked_command(),
    }));
    assert_eq!(fixture.wait_for_exec(result["cancelled"].as_str().unwrap())["status"], "CANCELLED");
    assert_eq!(fixture.wait_for_exec(result["approved"].as_str().unwrap())["status"], "SUCCEEDED");
    // The record has the token, the agent, the door and the name that the client claims.
    let path = format!("/api/audit?exec_id={}&action=exec.intent", result["approved"].as_str().unwrap());
    let intent = server.ask("GET", &path, None).expect(200)["entries"][0].clone();
    let own = server.ask_as(&agent, "GET", "/api/me", None).expect(200);
    assert_eq!((&intent["actor"], &own["role"]), (&own["token_id"], &json!("agent")), "{intent}");
    assert_eq!((&intent["user_id"], &intent["agent_id"]), (&json!("default"), &json!("default")), "{intent}");
    let client = json!({ "name": "whole-task", "version": "1.2" });
    let from = &intent["details"]["from"];
    assert_eq!(
        (&from["door"], &from["role"], &from["client_says"]),
        (&json!("mcp"), &json!("agent"), &client),
        "{intent}"
    );
    // A question that the user closed without an answer can still be answered.
    fixture.answer_by_id(result["left_open"].as_str().unwrap(), &deny("too late")).expect(200);
    let audit = server.ask("GET", "/api/audit?limit=500", None).expect(200).to_string();
    assert!(audit.contains(r#""door":"mcp""#), "the record lacks the door of the answer");
}

#[test]
fn client_completes_task_over_http_with_session() {
    served("http", "legacy");
}

#[test]
fn client_completes_task_over_http_without_session() {
    served("http", "2026-07-28");
}

#[test]
fn client_completes_task_through_bridge_with_session() {
    served("bridge", "legacy");
}

#[test]
fn client_completes_task_through_bridge_without_session() {
    served("bridge", "2026-07-28");
}

fn on_standard_streams(mode: &str) {
    // A server creates the data directory and the path list; then `ringwall mcp` opens the
    // directory itself.
    let fixture = Fixture::start();
    fixture.server.signal(rustix::process::Signal::TERM);
    let asks = fixture.blocked_command();
    let (server, _place) = fixture.into_parts();
    let data = std::sync::Arc::into_inner(server).unwrap().leave();
    let owner = std::fs::read_to_string(data.path().join("owner.token")).unwrap();
    let result = client(&json!({
        "transport": "stdio", "mode": mode, "data": data.path(), "binary": binary().unwrap(), "owner": owner.trim(),
        "asks": asks,
    }));
    assert!(result["left_open"].is_string(), "{result}");
    // The cancelled exec had ended before the server was stopped.
    let server = Server::start_in(data, &[]);
    let execs = server.ask("GET", "/sandbox/execs?limit=100", None).expect(200);
    let execs = execs.as_array().unwrap().iter().map(|exec| server.exec(exec["exec_id"].as_str().unwrap()));
    let taken_back: Vec<Value> = execs.filter(|exec| exec["args"].to_string().contains("sleep 1000")).collect();
    assert_eq!(taken_back.len(), 1, "{taken_back:?}");
    assert_eq!(taken_back[0]["status"], "CANCELLED", "{taken_back:?}");
    assert_ne!(taken_back[0]["error_reason"]["code"], "SERVER_STOPPED", "{taken_back:?}");
}

#[test]
fn client_completes_task_on_standard_streams_with_session() {
    on_standard_streams("legacy");
}

#[test]
fn client_completes_task_on_standard_streams_without_session() {
    on_standard_streams("2026-07-28");
}

#[test]
fn browser_action_asks_the_clients_user_in_both_protocol_versions() {
    let fixture = Fixture::start();
    let server = &fixture.server;
    for mode in ["legacy", "2026-07-28"] {
        let result = client(&json!({
            "transport": "http", "mode": mode, "url": format!("http://{}", server.address), "owner": server.token,
            "browser": true,
        }));
        assert_eq!(result["asked"].as_array().map(Vec::len), Some(5), "{mode}: {result}");
    }
}

/// A user's client is asked about blocked hosts; an agent's client gets `approval_pending`.
#[test]
fn blocked_host_asks_the_clients_user_in_both_protocol_versions() {
    let fixture = Fixture::start();
    let server = &fixture.server;
    let agent = server.make_token(&["--role", "agent", "--user", "default", "--agent", "default"]);
    for mode in ["legacy", "2026-07-28"] {
        let result = client(&json!({
            "transport": "http", "mode": mode, "url": format!("http://{}", server.address), "owner": server.token,
            "agent": agent, "network": true,
        }));
        assert_eq!(result["asked"].as_array().map(Vec::len), Some(3), "{mode}: {result}");
    }
}

/// Posts one message with these headers.
fn post(fixture: &Fixture, headers: &[(&str, &str)], message: &Value) -> Answer {
    let headers = [&[("accept", BOTH)], headers].concat();
    fixture.server.ask_with("POST", "/mcp", &headers, Some(message))
}

fn initialize() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "x", "version": "0" },
    }})
}

fn call(name: &str, arguments: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": name, "arguments": arguments, "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "x", "version": "0" },
    }}})
}

/// Sends one message without a session.
fn send_as(fixture: &Fixture, token: &str, message: &Value) -> Value {
    let authorization = format!("Bearer {token}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", message["params"]["name"].as_str().unwrap()),
    ];
    post(fixture, &headers, message).expect(200)
}

/// Calls a tool without a session and returns the result.
fn call_as(fixture: &Fixture, token: &str, name: &str, arguments: Value) -> Value {
    send_as(fixture, token, &call(name, arguments))["result"].clone()
}

/// A call by a client that supports elicitation.
fn call_with_elicitation(name: &str, arguments: Value) -> Value {
    let mut call_with_elicitation = call(name, arguments);
    call_with_elicitation["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
        json!({ "elicitation": { "form": {} } });
    call_with_elicitation
}

/// The repeated call, with the request state and the user's answer.
fn repeated_call(name: &str, state: &Value, answer: Option<&str>) -> Value {
    let mut repeated_call = call_with_elicitation(name, json!({ "command": "true" }));
    repeated_call["params"]["requestState"] = state.clone();
    if let Some(answer) = answer {
        let said = json!({ "action": "accept", "content": { "answer": answer } });
        repeated_call["params"]["inputResponses"] = json!({ "approval": said });
    }
    repeated_call
}

#[test]
fn mcp_requires_token_host_and_origin() {
    let fixture = Fixture::start();
    let owner = format!("Bearer {}", fixture.server.token);
    assert_eq!(post(&fixture, &[], &initialize()).status, 401);
    assert_eq!(post(&fixture, &[("authorization", "Bearer rw_0")], &initialize()).status, 401);
    for origin in ["null", "http://evil.example", "http://localhost.evil.example"] {
        assert_eq!(
            post(&fixture, &[("authorization", &owner), ("origin", origin)], &initialize()).status,
            403,
            "{origin}"
        );
    }
    let foreign = [("authorization", owner.as_str()), ("host", "attacker.example")];
    assert_eq!(post(&fixture, &foreign, &initialize()).status, 421);
    let own = post(&fixture, &[("authorization", &owner)], &initialize());
    assert_eq!(own.status, 200, "{own:?}");
    let words = fixture.server.ask_with("POST", "/mcp?agnt=x", &[("authorization", &owner)], Some(&initialize()));
    assert_eq!(words.status, 400, "an unknown parameter was ignored");
}

#[test]
fn malformed_message_gets_an_error_body() {
    let fixture = Fixture::start();
    let owner = format!("Bearer {}", fixture.server.token);
    let headers = [("authorization", owner.as_str()), ("accept", BOTH)];
    let refused = |headers: &[(&str, &str)], message: &Value| {
        let answer = fixture.server.ask_with("POST", "/mcp", headers, Some(message));
        (answer.status, answer.json()["error"]["code"].as_str().unwrap().to_owned())
    };
    for message in [json!([]), json!(1), json!({ "jsonrpc": "2.0" }), json!([initialize()])] {
        assert_eq!(refused(&headers, &message), (400, "INVALID_ARGUMENT".to_owned()), "{message}");
    }
    assert_eq!(refused(&headers[..1], &initialize()), (406, "NOT_ACCEPTABLE".to_owned()));
    let large = json!({ "jsonrpc": "2.0", "id": 1, "method": "x".repeat(9 << 20) });
    assert_eq!(refused(&headers, &large), (413, "BODY_TOO_LARGE".to_owned()));
}

#[test]
fn session_of_another_token_is_not_found() {
    let fixture = Fixture::start();
    let [ann, bob] = ["ann", "bob"].map(|user| fixture.server.make_token(&["--role", "user", "--user", user]));
    let bearer = |token: &str| format!("Bearer {token}");
    let begun = post(&fixture, &[("authorization", &bearer(&ann))], &initialize());
    let session = begun.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let list = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" });
    let with = |token: &str, message: &Value| {
        let authorization = bearer(token);
        post(&fixture, &[("authorization", &authorization), ("mcp-session-id", &session)], message).status
    };
    assert_eq!(with(&ann, &list), 200);
    assert_eq!(with(&bob, &list), 404);
    // Another user can neither answer its requests nor listen to it nor end it.
    assert_eq!(with(&bob, &json!({ "jsonrpc": "2.0", "id": 0, "result": { "action": "accept" } })), 404);
    for method in ["GET", "DELETE"] {
        let authorization = bearer(&bob);
        let headers = [("authorization", authorization.as_str()), ("mcp-session-id", &session), ("accept", BOTH)];
        assert_eq!(fixture.server.ask_with(method, "/mcp", &headers, None).status, 404, "{method}");
    }
    assert_eq!(with(&ann, &list), 200, "the session has ended");
}

#[test]
fn files_and_approvals_of_others_are_not_accessible() {
    let fixture = Fixture::start();
    let [ann, bob] = ["ann", "bob"].map(|user| fixture.server.make_token(&["--role", "user", "--user", user]));
    let agent = fixture.server.make_token(&["--role", "agent", "--user", "ann", "--agent", "a"]);
    let wrote = call_as(&fixture, &ann, "write_file", json!({ "path": "files/x", "content": "ann's" }));
    assert_eq!(wrote["isError"], false, "{wrote}");
    let read = |token: &str| call_as(&fixture, token, "read_file", json!({ "path": "files/x" }));
    assert_eq!(read(&ann)["structuredContent"]["content"], "ann's");
    assert_eq!(read(&bob)["isError"], true);
    assert_eq!(read(&agent)["isError"], true, "another agent of the same user");
    let pending = call_as(&fixture, &ann, "run_command", json!({ "command": fixture.blocked_command() }));
    let (exec, approval) =
        (&pending["structuredContent"]["exec_id"], &pending["structuredContent"]["approval"]["approval_id"]);
    assert_eq!(pending["structuredContent"]["status"], "approval_pending", "{pending}");
    for stranger in [&bob, &agent] {
        let status = call_as(&fixture, stranger, "approval_status", json!({ "approval_id": approval }));
        assert_eq!(status["isError"], true, "{status}");
    }
    assert_eq!(fixture.approval_by_id(approval.as_str().unwrap())["status"], "pending");
    assert!(exec.is_string(), "{pending}");
}

#[test]
fn request_state_is_valid_for_its_caller_and_tool_only() {
    let fixture = Fixture::start();
    let [ann, bob] = ["ann", "bob"].map(|user| fixture.server.make_token(&["--role", "user", "--user", user]));
    let other_of_hers = fixture.server.make_token(&["--role", "user", "--user", "ann"]);
    let agent = fixture.server.make_token(&["--role", "agent", "--user", "ann", "--agent", "default"]);
    let first =
        send_as(&fixture, &ann, &call_with_elicitation("run_command", json!({ "command": fixture.blocked_command() })))
            ["result"]
            .clone();
    assert_eq!(first["resultType"], "input_required", "{first}");
    let (state, question) = (&first["requestState"], &first["inputRequests"]["approval"]["params"]["message"]);
    assert!(question.as_str().unwrap().contains(&fixture.blocked_command()), "{first}");
    let is_rejected = |token: &str, message: &Value| {
        let answer = send_as(&fixture, token, message);
        assert_eq!(answer["error"]["code"], -32602, "{message}: {answer}");
    };
    for stranger in [&bob, &agent, &other_of_hers] {
        is_rejected(stranger, &repeated_call("run_command", state, Some("once")));
    }
    is_rejected(&ann, &repeated_call("run_code", state, Some("once")));
    let text = state.as_str().unwrap();
    for forged in [text.to_owned() + "x", text.replacen('.', "..", 1), "e_0/a_0".to_owned(), String::new()] {
        is_rejected(&ann, &repeated_call("run_command", &forged.into(), Some("once")));
    }
    // Without an answer the question is repeated. With one the exec runs, and the arguments of the
    // repeated call do not matter.
    let unanswered = send_as(&fixture, &ann, &repeated_call("run_command", state, None))["result"].clone();
    assert_eq!(
        (&unanswered["resultType"], &unanswered["inputRequests"]),
        (&json!("input_required"), &first["inputRequests"])
    );
    let ran = send_as(&fixture, &ann, &repeated_call("run_command", state, Some("once")))["result"].clone();
    assert_eq!(ran["structuredContent"]["stdout"], crate::fixture::FILE_CONTENT, "{ran}");
}

#[test]
fn agent_cannot_answer_its_own_approval() {
    let fixture = Fixture::start();
    let agent = fixture.server.make_token(&["--role", "agent", "--user", "default", "--agent", "default"]);
    let arguments = json!({ "command": fixture.blocked_command() });
    let pending = send_as(&fixture, &agent, &call_with_elicitation("run_command", arguments))["result"].clone();
    let result = &pending["structuredContent"];
    assert_eq!((&result["status"], &pending["requestState"]), (&json!("approval_pending"), &Value::Null), "{pending}");
    let approval = &result["approval"]["approval_id"];
    let state = format!("{}/{}", result["exec_id"].as_str().unwrap(), approval.as_str().unwrap());
    let forged = send_as(&fixture, &agent, &repeated_call("run_command", &state.into(), Some("once")));
    assert_eq!(forged["error"]["code"], -32602, "{forged}");
    assert_eq!(fixture.approval_by_id(approval.as_str().unwrap())["status"], "pending");
}

fn list_tools(fixture: &Fixture) -> Vec<Value> {
    let mut list = call("", json!({}));
    list["method"] = "tools/list".into();
    let authorization = format!("Bearer {}", fixture.server.token);
    let headers = [
        ("authorization", authorization.as_str()),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    post(fixture, &headers, &list).expect(200)["result"]["tools"].as_array().unwrap().clone()
}

fn run_command_description(fixture: &Fixture) -> String {
    let tools = list_tools(fixture);
    let tool = tools.iter().find(|tool| tool["name"] == "run_command").unwrap();
    tool["description"].as_str().unwrap().to_owned()
}

#[test]
fn run_command_description_follows_path_control() {
    let fixture = Fixture::start();
    let on = run_command_description(&fixture);
    assert!(on.contains("waits for a person's approval") && !on.contains("/srv"), "{on}");
    fixture.server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": false }))).expect(200);
    let off = run_command_description(&fixture);
    assert!(off.contains("/etc, /opt and /srv") && !off.contains("approval"), "{off}");
    let full = Fixture::start_with_env(&[("RINGWALL_SANDBOX_WHEN_DISABLED", "full")]);
    full.server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": false }))).expect(200);
    let full = run_command_description(&full);
    assert!(full.contains("all paths of the host") && !full.contains("approval"), "{full}");
}

#[test]
fn plain_skill_names_have_no_dots() {
    let fixture = Fixture::start();
    let plain = json!({ "mcp": { "skill_names": "plain" } });
    fixture.server.ask("PUT", "/settings", Some(&plain)).expect(200);
    // The published list is that of a new server, whose path control is off.
    fixture.server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": false }))).expect(200);
    let listed = list_tools(&fixture);
    let names: Vec<&str> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let published: Vec<Value> = serde_json::from_str(include_str!("../../docs/mcp-tools.json")).unwrap();
    assert_eq!(listed[..published.len()], published);
    assert!(names.contains(&"skill_shell_run") && names.iter().all(|name| !name.contains('.')), "{names:?}");
    for name in ["skill_shell_run", "skill.shell.run"] {
        let ran = call_as(&fixture, &fixture.server.token, name, json!({ "script": "echo hello" }));
        assert_eq!(ran["structuredContent"]["stdout"], "hello\n", "{ran}");
    }
}
