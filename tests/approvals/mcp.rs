//! The MCP door, by the official client: on standard streams, over HTTP and through the bridge, with sessions and without;
//! and what a hostile caller of `/mcp` gets.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};
use tests::support::boxed::binary;

use crate::server::{Answer, Server};
use crate::site::{Site, deny};

/// Where the scripts are, which assert what must hold for a client.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/approvals/");
const BOTH: &str = "application/json, text/event-stream";

/// Where `scripts/setup test` has put the official client.
fn python() -> PathBuf {
    let home = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/mcp-client/bin/python");
    let python = std::env::var_os("RINGWALL_MCP_PYTHON").map_or_else(|| home.into(), PathBuf::from);
    assert!(python.exists(), "{} is missing; run scripts/setup test", python.display());
    python
}

/// Runs the whole task, and gives what it has to tell.
fn client(site: &Value) -> Value {
    script("mcp_client.py", site)
}

/// Runs one of the scripts, and gives the last that it says.
pub fn script(name: &str, site: &Value) -> Value {
    let output =
        Command::new(python()).arg("-B").arg(format!("{SCRIPTS}{name}")).arg(site.to_string()).output().unwrap();
    let (told, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{log}");
    serde_json::from_str(told.lines().last().unwrap()).unwrap()
}

fn served(transport: &str, mode: &str) {
    let site = Site::start();
    let server = &site.server;
    let agent = server.make_token(&["--role", "agent", "--user", "default", "--agent", "default"]);
    let told = client(&json!({
        "transport": transport, "mode": mode, "url": format!("http://{}", server.address), "data": server.data(),
        "binary": binary().unwrap(), "owner": server.token, "agent": agent, "asks": site.command(),
    }));
    assert_eq!(site.ended(&told["cancelled"])["status"], "CANCELLED");
    assert_eq!(site.ended(&told["approved"])["status"], "SUCCEEDED");
    // Whose token it was, whose agent, through which door, and what the client says of itself.
    let path = format!("/api/audit?exec_id={}&action=exec.intent", told["approved"].as_str().unwrap());
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
    // Whoever looked away has answered nothing: somebody else still can.
    site.answer(&server.token, &told["left_open"], &deny("too late")).expect(200);
    let audit = server.ask("GET", "/api/audit?limit=500", None).expect(200).to_string();
    assert!(audit.contains(r#""door":"mcp""#), "who answered through which door is on record");
}

#[test]
fn over_http_with_a_session() {
    served("http", "legacy");
}

#[test]
fn over_http_without_one() {
    served("http", "2026-07-28");
}

#[test]
fn through_the_bridge_with_a_session() {
    served("bridge", "legacy");
}

#[test]
fn through_the_bridge_without_one() {
    served("bridge", "2026-07-28");
}

fn on_standard_streams(mode: &str) {
    // A server makes the data directory, the list and the file; then the verb has the directory to itself.
    let site = Site::start();
    site.server.signal(rustix::process::Signal::TERM);
    let asks = site.command();
    let (server, _place) = site.part();
    let data = std::sync::Arc::into_inner(server).unwrap().leave();
    let owner = std::fs::read_to_string(data.path().join("owner.token")).unwrap();
    let told = client(&json!({
        "transport": "stdio", "mode": mode, "data": data.path(), "binary": binary().unwrap(), "owner": owner.trim(),
        "asks": asks,
    }));
    assert!(told["left_open"].is_string(), "{told}");
    // What was taken back had ended before anybody ended the server.
    let server = Server::start_in(data, &[]);
    let execs = server.ask("GET", "/sandbox/execs?limit=100", None).expect(200);
    let execs = execs.as_array().unwrap().iter().map(|exec| server.exec(exec["exec_id"].as_str().unwrap()));
    let taken_back: Vec<Value> = execs.filter(|exec| exec["args"].to_string().contains("sleep 1000")).collect();
    assert_eq!(taken_back.len(), 1, "{taken_back:?}");
    assert_eq!(taken_back[0]["status"], "CANCELLED", "{taken_back:?}");
    assert_ne!(taken_back[0]["error_reason"]["code"], "SERVER_STOPPED", "{taken_back:?}");
}

#[test]
fn on_standard_streams_with_a_session() {
    on_standard_streams("legacy");
}

#[test]
fn on_standard_streams_without_one() {
    on_standard_streams("2026-07-28");
}

/// Whoever sits before a client is asked about what its browser would do, in both ways of the protocol.
#[test]
fn a_browser_asks_the_person_behind_the_client() {
    let site = Site::start();
    let server = &site.server;
    for mode in ["legacy", "2026-07-28"] {
        let told = client(&json!({
            "transport": "http", "mode": mode, "url": format!("http://{}", server.address), "owner": server.token,
            "browser": true,
        }));
        assert_eq!(told["asked"].as_array().map(Vec::len), Some(5), "{mode}: {told}");
    }
}

/// And about the hosts that their agent's boxes want to reach; an agent's own client is told that they are.
#[test]
fn a_host_is_asked_about_in_both_ways_of_the_protocol() {
    let site = Site::start();
    let server = &site.server;
    let agent = server.make_token(&["--role", "agent", "--user", "default", "--agent", "default"]);
    for mode in ["legacy", "2026-07-28"] {
        let told = client(&json!({
            "transport": "http", "mode": mode, "url": format!("http://{}", server.address), "owner": server.token,
            "agent": agent, "network": true,
        }));
        assert_eq!(told["asked"].as_array().map(Vec::len), Some(3), "{mode}: {told}");
    }
}

/// One message with these headers.
fn post(site: &Site, headers: &[(&str, &str)], message: &Value) -> Answer {
    let headers = [&[("accept", BOTH)], headers].concat();
    site.server.ask_with("POST", "/mcp", &headers, Some(message))
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

/// One message without a session, as somebody.
fn send_as(site: &Site, token: &str, message: &Value) -> Value {
    let authorization = format!("Bearer {token}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", message["params"]["name"].as_str().unwrap()),
    ];
    post(site, &headers, message).expect(200)
}

/// A call without a session, as somebody.
fn call_as(site: &Site, token: &str, name: &str, arguments: Value) -> Value {
    send_as(site, token, &call(name, arguments))["result"].clone()
}

/// A call by a client that can ask its person.
fn asking(name: &str, arguments: Value) -> Value {
    let mut asking = call(name, arguments);
    asking["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({ "elicitation": { "form": {} } });
    asking
}

/// The same again, with a state and what the person said.
fn again(name: &str, state: &Value, answer: Option<&str>) -> Value {
    let mut again = asking(name, json!({ "command": "true" }));
    again["params"]["requestState"] = state.clone();
    if let Some(answer) = answer {
        let said = json!({ "action": "accept", "content": { "answer": answer } });
        again["params"]["inputResponses"] = json!({ "approval": said });
    }
    again
}

#[test]
fn only_those_who_may_are_answered() {
    let site = Site::start();
    let owner = format!("Bearer {}", site.server.token);
    assert_eq!(post(&site, &[], &initialize()).status, 401);
    assert_eq!(post(&site, &[("authorization", "Bearer rw_0")], &initialize()).status, 401);
    for origin in ["null", "http://evil.example", "http://localhost.evil.example"] {
        assert_eq!(
            post(&site, &[("authorization", &owner), ("origin", origin)], &initialize()).status,
            403,
            "{origin}"
        );
    }
    let foreign = [("authorization", owner.as_str()), ("host", "attacker.example")];
    assert_eq!(post(&site, &foreign, &initialize()).status, 421);
    let own = post(&site, &[("authorization", &owner)], &initialize());
    assert_eq!(own.status, 200, "{own:?}");
    let words = site.server.ask_with("POST", "/mcp?agnt=x", &[("authorization", &owner)], Some(&initialize()));
    assert_eq!(words.status, 400, "a misspelt agent is not the default one");
}

#[test]
fn what_is_no_message_is_told_as_all_problems_are() {
    let site = Site::start();
    let owner = format!("Bearer {}", site.server.token);
    let headers = [("authorization", owner.as_str()), ("accept", BOTH)];
    let refused = |headers: &[(&str, &str)], message: &Value| {
        let answer = site.server.ask_with("POST", "/mcp", headers, Some(message));
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
fn a_session_opens_nothing() {
    let site = Site::start();
    let [ann, bob] = ["ann", "bob"].map(|user| site.server.make_token(&["--role", "user", "--user", user]));
    let bearer = |token: &str| format!("Bearer {token}");
    let begun = post(&site, &[("authorization", &bearer(&ann))], &initialize());
    let session = begun.headers["mcp-session-id"].to_str().unwrap().to_owned();
    let list = json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/list" });
    let with = |token: &str, message: &Value| {
        let authorization = bearer(token);
        post(&site, &[("authorization", &authorization), ("mcp-session-id", &session)], message).status
    };
    assert_eq!(with(&ann, &list), 200);
    assert_eq!(with(&bob, &list), 404);
    // Nor can anybody else answer what was asked in it, listen to it, or end it.
    assert_eq!(with(&bob, &json!({ "jsonrpc": "2.0", "id": 0, "result": { "action": "accept" } })), 404);
    for method in ["GET", "DELETE"] {
        let authorization = bearer(&bob);
        let headers = [("authorization", authorization.as_str()), ("mcp-session-id", &session), ("accept", BOTH)];
        assert_eq!(site.server.ask_with(method, "/mcp", &headers, None).status, 404, "{method}");
    }
    assert_eq!(with(&ann, &list), 200, "it is still there");
}

#[test]
fn nobody_reaches_what_is_anothers() {
    let site = Site::start();
    let [ann, bob] = ["ann", "bob"].map(|user| site.server.make_token(&["--role", "user", "--user", user]));
    let agent = site.server.make_token(&["--role", "agent", "--user", "ann", "--agent", "a"]);
    let wrote = call_as(&site, &ann, "write_file", json!({ "path": "files/x", "content": "ann's" }));
    assert_eq!(wrote["isError"], false, "{wrote}");
    let read = |token: &str| call_as(&site, token, "read_file", json!({ "path": "files/x" }));
    assert_eq!(read(&ann)["structuredContent"]["content"], "ann's");
    assert_eq!(read(&bob)["isError"], true);
    assert_eq!(read(&agent)["isError"], true, "another agent of the same user");
    let pending = call_as(&site, &ann, "run_command", json!({ "command": site.command() }));
    let (exec, approval) =
        (&pending["structuredContent"]["exec_id"], &pending["structuredContent"]["approval"]["approval_id"]);
    assert_eq!(pending["structuredContent"]["status"], "approval_pending", "{pending}");
    for stranger in [&bob, &agent] {
        let status = call_as(&site, stranger, "approval_status", json!({ "approval_id": approval }));
        assert_eq!(status["isError"], true, "{status}");
    }
    assert_eq!(site.approval(approval)["status"], "pending");
    assert!(exec.is_string(), "{pending}");
}

/// A state goes on with what it was given for, for whoever it was given to, and with nothing else.
#[test]
fn a_state_is_of_use_to_nobody_else() {
    let site = Site::start();
    let [ann, bob] = ["ann", "bob"].map(|user| site.server.make_token(&["--role", "user", "--user", user]));
    let other_of_hers = site.server.make_token(&["--role", "user", "--user", "ann"]);
    let agent = site.server.make_token(&["--role", "agent", "--user", "ann", "--agent", "default"]);
    let asked = send_as(&site, &ann, &asking("run_command", json!({ "command": site.command() })))["result"].clone();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let (state, question) = (&asked["requestState"], &asked["inputRequests"]["approval"]["params"]["message"]);
    assert!(question.as_str().unwrap().contains(&site.command()), "{asked}");
    let is_rejected = |token: &str, message: &Value| {
        let answer = send_as(&site, token, message);
        assert_eq!(answer["error"]["code"], -32602, "{message}: {answer}");
    };
    for stranger in [&bob, &agent, &other_of_hers] {
        is_rejected(stranger, &again("run_command", state, Some("once")));
    }
    is_rejected(&ann, &again("run_code", state, Some("once")));
    let text = state.as_str().unwrap();
    for forged in [text.to_owned() + "x", text.replacen('.', "..", 1), "e_0/a_0".to_owned(), String::new()] {
        is_rejected(&ann, &again("run_command", &forged.into(), Some("once")));
    }
    // Whoever brings no answer is asked again; whoever brings one goes on, whatever else is sent along.
    let unanswered = send_as(&site, &ann, &again("run_command", state, None))["result"].clone();
    assert_eq!(
        (&unanswered["resultType"], &unanswered["inputRequests"]),
        (&json!("input_required"), &asked["inputRequests"])
    );
    let ran = send_as(&site, &ann, &again("run_command", state, Some("once")))["result"].clone();
    assert_eq!(ran["structuredContent"]["stdout"], crate::site::TEXT, "{ran}");
}

#[test]
fn an_agent_never_answers_itself() {
    let site = Site::start();
    let agent = site.server.make_token(&["--role", "agent", "--user", "default", "--agent", "default"]);
    let words = json!({ "command": site.command() });
    let pending = send_as(&site, &agent, &asking("run_command", words))["result"].clone();
    let asked = &pending["structuredContent"];
    assert_eq!((&asked["status"], &pending["requestState"]), (&json!("approval_pending"), &Value::Null), "{pending}");
    let approval = &asked["approval"]["approval_id"];
    let state = format!("{}/{}", asked["exec_id"].as_str().unwrap(), approval.as_str().unwrap());
    let forged = send_as(&site, &agent, &again("run_command", &state.into(), Some("once")));
    assert_eq!(forged["error"]["code"], -32602, "{forged}");
    assert_eq!(site.approval(approval)["status"], "pending");
}

fn list_tools(site: &Site) -> Vec<Value> {
    let mut list = call("", json!({}));
    list["method"] = "tools/list".into();
    let authorization = format!("Bearer {}", site.server.token);
    let headers = [
        ("authorization", authorization.as_str()),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    post(site, &headers, &list).expect(200)["result"]["tools"].as_array().unwrap().clone()
}

fn run_command_description(site: &Site) -> String {
    let tools = list_tools(site);
    let tool = tools.iter().find(|tool| tool["name"] == "run_command").unwrap();
    tool["description"].as_str().unwrap().to_owned()
}

#[test]
fn run_command_description_follows_path_control() {
    let site = Site::start();
    let on = run_command_description(&site);
    assert!(on.contains("waits for a person's approval") && !on.contains("/srv"), "{on}");
    site.control("PUT", "", &json!({ "enabled": false })).expect(200);
    let off = run_command_description(&site);
    assert!(off.contains("/etc, /opt and /srv") && !off.contains("approval"), "{off}");
    let full = Site::start_under(&[("RINGWALL_SANDBOX_WHEN_DISABLED", "full")]);
    full.control("PUT", "", &json!({ "enabled": false })).expect(200);
    let full = run_command_description(&full);
    assert!(full.contains("all paths of the host") && !full.contains("approval"), "{full}");
}

#[test]
fn names_can_be_without_dots() {
    let site = Site::start();
    let plain = json!({ "mcp": { "skill_names": "plain" } });
    site.server.ask("PUT", "/settings", Some(&plain)).expect(200);
    // The published list is that of a new server, whose path control is off.
    site.control("PUT", "", &json!({ "enabled": false })).expect(200);
    let listed = list_tools(&site);
    let names: Vec<&str> = listed.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    let published: Vec<Value> = serde_json::from_str(include_str!("../../docs/mcp-tools.json")).unwrap();
    assert_eq!(listed[..published.len()], published);
    assert!(names.contains(&"skill_shell_run") && names.iter().all(|name| !name.contains('.')), "{names:?}");
    for name in ["skill_shell_run", "skill.shell.run"] {
        let ran = call_as(&site, &site.server.token, name, json!({ "script": "echo hello" }));
        assert_eq!(ran["structuredContent"]["stdout"], "hello\n", "{ran}");
    }
}
