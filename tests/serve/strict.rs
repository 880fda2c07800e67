//! Unknown and misplaced keys are 400 on every route, read from the published document, so that a new route is covered when
//! it is published. A test request has one key that no route knows and nothing else, and the answer has to name it: a
//! missing field alone would be 400 as well.

use std::fs::File;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use crate::server::{Answer, Server};

const UNKNOWN: &str = "no_such_key";

/// Routes with a rule of their own, and that rule.
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

    /// Whether the route reads a query.
    fn reads_query(&self) -> bool {
        self.details["parameters"].as_array().into_iter().flatten().any(|parameter| parameter["in"] == "query")
    }

    /// The form of its JSON body.
    fn form(&self) -> Option<&Value> {
        self.details.pointer("/requestBody/content/application~1json/schema")
    }
}

fn is_exception(route: &str) -> bool {
    EXCEPTIONS.iter().any(|(prefix, _)| match *prefix {
        prefix if prefix.len() > 1 && prefix.ends_with('/') => route.starts_with(prefix),
        prefix => route == prefix || (prefix.len() > 1 && route.starts_with(&format!("{prefix}/"))),
    })
}

/// Every published operation that is no exception. The names in its path are well-formed and exist nowhere; a route that
/// looks for the name before it reads the body gets one from its test.
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

/// What is wrong with the answer to a request with the unknown key.
fn fault(what: &str, answer: &Answer) -> Option<String> {
    let text = String::from_utf8_lossy(&answer.bytes);
    let is_refused = answer.status == 400 && text.contains(UNKNOWN);
    (!is_refused).then(|| format!("{what}: {} {text}", answer.status))
}

/// The path of an approval that waits for its answer.
fn open_approval(server: &Server) -> String {
    let code = json!({ "session_id": "s", "language": "python", "code": "import os\nos.system('ls')", "wait": false });
    server.ask("POST", "/api/run", Some(&code)).expect(202);
    let approvals = server.ask("GET", "/api/approvals?status=pending", None).expect(200);
    format!("/api/approvals/{}", approvals["approvals"][0]["id"].as_str().unwrap())
}

/// The object behind a schema, if it has published keys.
fn object<'d>(document: &'d Value, schema: &'d Value) -> Option<&'d Map<String, Value>> {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.strip_prefix('#')) {
        return object(document, document.pointer(name)?);
    }
    if let Some(alternatives) = schema["oneOf"].as_array() {
        return alternatives.iter().find_map(|one| object(document, one));
    }
    schema["properties"].as_object()
}

/// Bodies with the unknown key at the top and inside of each published object or list of objects.
fn bodies(document: &Value, form: &Value) -> Vec<Value> {
    let mut bodies = vec![json!({ UNKNOWN: 1 })];
    for (key, schema) in object(document, form).into_iter().flatten() {
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
        let Some(form) = operation.form() else { continue };
        // A list of words has no keys.
        if form["items"]["type"] == "string" {
            continue;
        }
        for body in bodies(&document, form) {
            nested += usize::from(body.get(UNKNOWN).is_none());
            let answer = server.ask(&operation.method, &operation.path, Some(&body));
            faults.extend(fault(&format!("{} {body}", operation.name()), &answer));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(nested >= 5, "only {nested} objects inside of bodies were found");
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

/// The control is the last request, which removes the session that the refused one left.
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
    assert!(!session.exists(), "gc does not remove this session");
}
