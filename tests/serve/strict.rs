//! Unknown and misplaced keys return 400 on every route of the published OpenAPI document.
//!
//! Each request has only the unknown key, and the response must name it, because a missing field returns
//! 400 too.

use std::fs::File;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::server::{Answer, Server};

const UNKNOWN: &str = "no_such_key";

/// Routes with another rule, and that rule.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("/mcp", "JSON-RPC ignores members that it does not know"),
    ("/ws/", "a WebSocket; its messages are answered with {\"type\":\"error\"}"),
    ("/api/sessions/{id}/pty", "a WebSocket"),
    ("/skills/{id}/invoke", "keys beside the published ones are inputs; the skill's schema refuses unknown ones"),
    ("/", "a page of the console"),
    ("/login", "a page of the console"),
    ("/console", "pages of the console"),
    ("/assets/", "files of the console"),
];

struct Operation {
    method: String,
    route: String,
    path: String,
    details: Value,
}

impl Operation {
    fn name(&self) -> String {
        format!("{} {}", self.method, self.route)
    }

    /// Returns `true` if the route has a query parameter.
    fn reads_query(&self) -> bool {
        self.details["parameters"].as_array().into_iter().flatten().any(|parameter| parameter["in"] == "query")
    }

    /// The schema of its JSON body.
    fn schema(&self) -> Option<&Value> {
        self.details.pointer("/requestBody/content/application~1json/schema")
    }
}

fn is_exception(route: &str) -> bool {
    EXCEPTIONS.iter().any(|(prefix, _)| match *prefix {
        prefix if prefix.len() > 1 && prefix.ends_with('/') => route.starts_with(prefix),
        prefix => route == prefix || (prefix.len() > 1 && route.starts_with(&format!("{prefix}/"))),
    })
}

/// Every published operation except [`EXCEPTIONS`]. The names in its path are valid and do not exist. Tests
/// replace the path of a route that looks up the name before it reads the body.
fn operations(document: &Value) -> Vec<Operation> {
    let mut found = Vec::new();
    for (route, methods) in document["paths"].as_object().unwrap() {
        if is_exception(route) {
            continue;
        }
        let path: Vec<&str> = route
            .split('/')
            .map(|part| match part {
                "{pid}" => "e_0123456789abcdef",
                part if part.starts_with('{') => "x",
                part => part,
            })
            .collect();
        for (method, details) in methods.as_object().unwrap() {
            let (method, path) = (method.to_uppercase(), path.join("/"));
            found.push(Operation { method, route: route.clone(), path, details: details.clone() });
        }
    }
    found
}

/// Describes the fault if the response to a request with the unknown key is not a 400 that names it.
fn fault(what: &str, answer: &Answer) -> Option<String> {
    let text = String::from_utf8_lossy(&answer.bytes);
    let is_refused = answer.status == 400 && text.contains(UNKNOWN);
    (!is_refused).then(|| format!("{what}: {} {text}", answer.status))
}

/// The path of a pending approval.
fn open_approval(server: &Server) -> String {
    let code = json!({ "session_id": "s", "language": "python", "code": "import os\nos.system('ls')", "wait": false });
    server.ask("POST", "/api/run", Some(&code)).expect(202);
    let approvals = server.ask("GET", "/api/approvals?status=pending", None).expect(200);
    format!("/api/approvals/{}", approvals["approvals"][0]["id"].as_str().unwrap())
}

/// The properties of an object schema, through `$ref` and `oneOf`.
fn object<'d>(document: &'d Value, schema: &'d Value) -> Option<&'d Map<String, Value>> {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix('#')) {
        return object(document, document.pointer(name)?);
    }
    if let Some(alternatives) = schema["oneOf"].as_array() {
        return alternatives.iter().find_map(|one| object(document, one));
    }
    schema["properties"].as_object()
}

/// Bodies with the unknown key at the top and in each published object and list of objects.
fn bodies(document: &Value, body_schema: &Value) -> Vec<Value> {
    let mut bodies = vec![json!({ UNKNOWN: 1 })];
    for (key, schema) in object(document, body_schema).into_iter().flatten() {
        if object(document, schema).is_some() {
            bodies.push(json!({ key: { UNKNOWN: 1 } }));
        } else if object(document, &schema["items"]).is_some() {
            bodies.push(json!({ key: [{ UNKNOWN: 1 }] }));
        }
    }
    bodies
}

#[test]
fn unknown_key_in_body_is_refused_on_every_route() {
    let server = Server::start();
    let document = server.ask("GET", "/openapi.json", None).expect(200);
    let approval = open_approval(&server);
    let (mut nested, mut faults) = (0, Vec::new());
    for mut operation in operations(&document) {
        if operation.route == "/api/approvals/{id}" {
            operation.path.clone_from(&approval);
        }
        let Some(schema) = operation.schema() else { continue };
        // A list of strings has no keys.
        if schema["items"]["type"] == "string" {
            continue;
        }
        for body in bodies(&document, schema) {
            nested += usize::from(body.get(UNKNOWN).is_none());
            let answer = server.ask(&operation.method, &operation.path, Some(&body));
            faults.extend(fault(&format!("{} {body}", operation.name()), &answer));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(nested >= 5, "only {nested} nested objects were found");
}

#[test]
fn body_is_refused_on_every_route_that_reads_none() {
    let server = Server::start();
    let document = server.ask("GET", "/openapi.json", None).expect(200);
    let mut count = 0;
    for operation in operations(&document).iter().filter(|one| one.details.get("requestBody").is_none()) {
        let answer = server.ask(&operation.method, &operation.path, Some(&json!({ UNKNOWN: 1 })));
        assert_eq!(answer.status, 400, "{}: {}", operation.name(), String::from_utf8_lossy(&answer.bytes));
        count += 1;
    }
    assert!(count >= 40, "{count}");
}

#[test]
fn unknown_query_parameter_is_refused_on_every_route_that_reads_a_query() {
    let server = Server::start();
    let document = server.ask("GET", "/openapi.json", None).expect(200);
    let (mut count, mut faults) = (0, Vec::new());
    for operation in operations(&document).iter().filter(|one| one.reads_query()) {
        let path = format!("{}?{UNKNOWN}=1", operation.path);
        faults.extend(fault(&operation.name(), &server.ask(&operation.method, &path, None)));
        count += 1;
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count >= 15, "{count}");
}

#[test]
fn published_path_parameters_are_part_of_their_path() {
    let server = Server::start();
    let document = server.ask("GET", "/openapi.json", None).expect(200);
    for operation in operations(&document) {
        for parameter in operation.details["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            let is_in_path = operation.route.contains(&format!("{{{name}}}"));
            assert_eq!(parameter["in"] == "path", is_in_path, "{}: {parameter}", operation.name());
        }
    }
}

/// The last request is the control: without `dry_run` it deletes the session.
#[test]
fn misplaced_dry_run_deletes_nothing() {
    let server = Server::start();
    server.ask("POST", "/api/sessions", Some(&json!({ "session_id": "idle" }))).expect(201);
    let session = server.data().join("workspaces/default/default/sessions/idle");
    let long_ago = SystemTime::now() - Duration::from_secs(30 * 60 * 60);
    for aged in [session.join(".used"), session.clone()] {
        File::open(aged).unwrap().set_modified(long_ago).unwrap();
    }
    let collect = |path: &str, body: Option<&Value>| server.ask("POST", path, body);
    let refused = collect("/api/gc", Some(&json!({ "dry_run": true }))).expect(400);
    assert!(refused["error"]["hint"].as_str().unwrap().contains("dry_run"), "{refused}");
    assert!(session.exists(), "a refused request deleted the session");
    assert_eq!(collect("/api/gc?dry_run=true", None).expect(200)["sessions"], 1);
    assert!(session.exists(), "a dry run deleted the session");
    assert_eq!(collect("/api/gc", Some(&json!({}))).expect(200)["sessions"], 1);
    assert!(!session.exists(), "control: gc did not delete the session");
}
