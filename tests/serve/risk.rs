//! `POST /api/risk`: levels, findings with lines, messages in two languages, and invalid requests.

use serde_json::json;

use crate::server::Server;

#[test]
fn code_is_assessed_with_findings_and_lines() {
    let server = Server::start();
    let ask = |body| server.ask("POST", "/api/risk", Some(&body));
    let critical = ask(json!({ "type": "python", "content": "import os\nos.system('ls')" })).expect(200);
    assert_eq!(critical["level"], "critical");
    assert_eq!(critical["requires_confirmation"], true);
    assert_eq!(critical["detected_patterns"][1]["id"], "py.process.shell");
    assert_eq!(critical["detected_patterns"][1]["line"], 2);
    let safe = ask(json!({ "type": "shell", "content": "ls 2>/dev/null" })).expect(200);
    assert_eq!((&safe["level"], &safe["detected_patterns"]), (&json!("safe"), &json!([])));
    assert_eq!((&safe["requires_isolation"], &safe["suggested_sandbox"]), (&json!(false), &json!("native")));
    let body = json!({ "type": "javascript", "content": "eval('1')" });
    let owner = format!("Bearer {}", server.token);
    let headers = [("accept-language", "zh-CN,zh;q=0.9"), ("authorization", owner.as_str())];
    let chinese = server.ask_with("POST", "/api/risk", &headers, Some(&body)).expect(200);
    assert_eq!(chinese["reason"], "将文本作为代码求值（eval）。（第 1 行）");
}

#[test]
fn malformed_or_too_long_request_is_refused() {
    let server = Server::start();
    for body in [json!({ "type": "cobol", "content": "" }), json!({ "type": "shell" }), json!({ "content": "ls" })] {
        let problem = server.ask("POST", "/api/risk", Some(&body)).expect(400);
        assert_eq!(problem["error"]["code"], "INVALID_ARGUMENT", "{body}");
    }
    let long = json!({ "type": "shell", "content": "x".repeat(1024 * 1024 + 1) });
    assert_eq!(server.ask("POST", "/api/risk", Some(&long)).expect(413)["error"]["code"], "BODY_TOO_LARGE");
    let body = json!({ "type": "shell", "content": "ls" });
    assert_eq!(server.ask_with("POST", "/api/risk", &[("authorization", "Bearer x")], Some(&body)).status, 401);
}
