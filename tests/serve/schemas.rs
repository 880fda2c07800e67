//! Responses match the schemas in the published OpenAPI document.

use serde_json::{Value, json};

use crate::server::{Server, shell};

struct Published {
    server: Server,
    document: Value,
}

impl Published {
    /// Sends a request and checks the response against the schema of its route and status.
    fn ask(&self, method: &str, path: &str, route: &str, body: Option<&Value>) -> Value {
        let answer = self.server.ask(method, path, body);
        let responses = &self.document["paths"][route][method.to_ascii_lowercase()]["responses"];
        let response = responses.get(answer.status.to_string()).unwrap_or(&responses["default"]);
        let mut schema = response["content"]["application/json"]["schema"].clone();
        assert!(schema.is_object(), "{method} {route} {}: {responses}", answer.status);
        schema["components"] = self.document["components"].clone();
        let (validator, answer) = (jsonschema::validator_for(&schema).unwrap(), answer.json());
        let errors: Vec<String> = validator.iter_errors(&answer).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{method} {path}: {errors:?}\n{answer}");
        answer
    }

    fn get(&self, path: &str) -> Value {
        self.ask("GET", path, path.split('?').next().unwrap(), None)
    }
}

#[test]
fn responses_match_the_published_schema() {
    let server = Server::start();
    let document = server.ask("GET", "/openapi.json", None).expect(200);
    let published = Published { server, document };
    let execs = "/sandbox/execs";
    let ended = published.ask("POST", execs, execs, Some(&shell("id; echo x > /workspace/artifacts/x")));
    assert_eq!(ended["status"], "SUCCEEDED");
    let mut late = shell("sleep 60");
    late["policy_overrides"] = json!({ "timeout_ms": 100 });
    assert_eq!(published.ask("POST", execs, execs, Some(&late))["error_reason"]["code"], "TIMEOUT");
    let mut denied = shell("true");
    denied["exec"]["kind"] = json!("perl");
    assert_eq!(published.ask("POST", execs, execs, Some(&denied))["detail"]["code"], "POLICY_DENIED");
    let id = ended["exec_id"].as_str().unwrap();
    for part in ["", "/artifacts", "/stdout", "/stderr", "/observation"] {
        published.ask("GET", &format!("{execs}/{id}{part}"), &format!("{execs}/{{id}}{part}"), None);
    }
    let script = json!({ "project_id": "p", "script": "true" });
    published.ask("POST", "/skills/shell.run/invoke", "/skills/{id}/invoke", Some(&script));
    published.ask("PUT", "/settings", "/settings", Some(&json!({ "retention": { "execs_days": 3 } })));
    published.ask("POST", "/api/tokens", "/api/tokens", Some(&json!({ "role": "user", "user_id": "u" })));
    published.ask("POST", "/api/audit/verify", "/api/audit/verify", None);
    for path in [
        "/sandbox/execs",
        "/skills",
        "/skills?include=invalid",
        "/settings",
        "/api/tokens",
        "/api/audit",
        "/api/approvals",
        "/api/approvals?status=pending",
        "/api/approvals?exec_id=e_0123456789abcdef",
        "/api/sandbox",
        "/healthz",
        "/sandbox/health",
        "/sandbox/health?probe=1",
    ] {
        published.get(path);
    }
    // The execs above are counted for the owner and not for another user.
    let ended = |overview: &Value| {
        let minutes = overview["minutes"].as_array().unwrap();
        assert_eq!(minutes.len(), 60);
        let sum = |key: &str| minutes.iter().map(|minute| minute[key].as_u64().unwrap()).sum::<u64>();
        (sum("ended_well"), sum("went_wrong"))
    };
    let overview = published.get("/api/overview");
    assert_eq!(ended(&overview), (2, 2), "{overview}");
    assert!(overview["set_up_ms"].as_f64().unwrap() > 0.0, "{overview}");
    let ann = published.server.make_token(&["--role", "user", "--user", "ann"]);
    let own = published.server.ask_as(&ann, "GET", "/api/overview", None).expect(200);
    assert_eq!(ended(&own), (0, 0));
}
