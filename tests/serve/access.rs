//! Access to every published route without a token, with invalid tokens, and with a token of each role.

use serde_json::{Value, json};

use crate::server::Server;

/// Each published operation: method, path with its parameters filled in, and the required role (`x-access`).
fn operations(server: &Server) -> Vec<(String, String, String)> {
    let document = server.ask_with("GET", "/openapi.json", &[], None).expect(200);
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let path = path.replace("{id}", "e_0123456789abcdef").replace("{path}", "x");
            // The tokens of all roles in this file may use these names.
            let path = path.replace("{user}", "u").replace("{agent}", "a").replace("{skill}", "s");
            found.push((method.to_uppercase(), path, operation["x-access"].as_str().unwrap().to_owned()));
        }
    }
    found
}

#[test]
fn every_route_requires_a_valid_token() {
    let server = Server::start();
    let operations = operations(&server);
    assert!(operations.len() >= 25, "{operations:?}");
    let revoked = server.make_token(&["--role", "operator"]);
    let listed = server.ask("GET", "/api/tokens", None).expect(200);
    let id = listed[0]["id"].as_str().unwrap().to_owned();
    let gone = server.ask("DELETE", &format!("/api/tokens/{id}"), None);
    assert_eq!(gone.status, 204);
    let authorizations = [
        "",
        "Bearer wrong",
        "Bearer ",
        "Basic dTpw",
        &format!("Bearer {revoked}"),
        &format!("Bearer {}x", server.token),
    ]
    .map(str::to_owned);
    for (method, path, access) in &operations {
        for authorization in &authorizations {
            let headers = [("authorization", authorization.as_str())];
            let headers = if authorization.is_empty() { &[][..] } else { &headers[..] };
            let body = matches!(method.as_str(), "POST" | "PUT").then(|| json!({}));
            let answer = server.ask_with(method, path, headers, body.as_ref());
            if access == "open" {
                // No token is needed; the empty login is malformed and the file does not exist.
                let status = match path.as_str() {
                    "/api/login" => 400,
                    "/assets/x" => 404,
                    _ => 200,
                };
                assert_eq!(answer.status, status, "{method} {path}");
                continue;
            }
            assert_eq!(answer.status, 401, "{method} {path} with {authorization:?}");
            assert_eq!(answer.headers.get("www-authenticate").unwrap(), "Bearer");
            let body = answer.json();
            if path.starts_with("/v1/") {
                assert_eq!(body["status"], "error", "{body}");
                assert!(body["data"].is_string(), "{body}");
                continue;
            }
            if path.starts_with("/api/sandbox") || path.starts_with("/api/browser") {
                assert!(body["error"].is_string(), "{body}");
                continue;
            }
            let error = body.get("detail").or_else(|| body.get("error")).unwrap();
            assert_eq!(error["code"], "UNAUTHENTICATED", "{body}");
            let form = ["/sandbox", "/skills", "/settings"].iter().any(|prefix| path.starts_with(prefix));
            assert_eq!(body.get("detail").is_some(), form, "{path}: {body}");
        }
    }
}

#[test]
fn routes_follow_the_published_role() {
    let server = Server::start();
    let tokens = [
        ("agent", server.make_token(&["--role", "agent", "--user", "u", "--agent", "a"])),
        ("user", server.make_token(&["--role", "user", "--user", "u"])),
        ("operator", server.make_token(&["--role", "operator"])),
        ("owner", server.token.clone()),
    ];
    let rank = |role: &str| ["open", "agent", "user", "operator", "owner"].iter().position(|one| *one == role).unwrap();
    for (method, path, access) in operations(&server) {
        for (role, token) in &tokens {
            let body = matches!(method.as_str(), "POST" | "PUT").then(|| json!({}));
            let status = server.ask_as(token, &method, &path, body.as_ref()).status;
            assert_ne!(status, 401, "{method} {path} as {role}");
            if *role == "user" && path.starts_with("/api/sandbox/paths") {
                // A user may change only their own entries, and the request names none.
                assert!(matches!(status, 400 | 403), "{method} {path} as {role}: {status}");
                continue;
            }
            assert_eq!(status == 403, rank(role) < rank(&access), "{method} {path} as {role}: {status}");
        }
    }
}

#[test]
fn token_is_shown_once_and_revocable() {
    let server = Server::start();
    let make = |by: &str, body: Value| server.ask_as(by, "POST", "/api/tokens", Some(&body));
    let made =
        make(&server.token, json!({ "role": "agent", "user_id": "u", "agent_id": "a", "label": "l" })).expect(201);
    let text = made["token"].as_str().unwrap();
    assert_eq!(server.ask_as(text, "GET", "/sandbox/execs", None).status, 200);
    let listed = server.ask("GET", "/api/tokens", None).expect(200);
    assert!(!listed.to_string().contains(text) && listed.to_string().contains("\"l\""), "{listed}");
    let operator = server.make_token(&["--role", "operator"]);
    let refused = make(&operator, json!({ "role": "owner" })).expect(403);
    assert_eq!(refused["error"]["code"], "FORBIDDEN");
    assert!(refused["error"]["request_id"].is_string());
    for bad in [
        json!({ "role": "king" }),
        json!({ "role": "user" }),
        json!({ "role": "user", "user_id": "../x" }),
        json!({ "role": "owner", "extra": 1 }),
    ] {
        assert_eq!(make(&server.token, bad.clone()).expect(400)["error"]["code"], "INVALID_ARGUMENT", "{bad}");
    }
    assert_eq!(server.ask("DELETE", &format!("/api/tokens/{}", made["id"].as_str().unwrap()), None).status, 204);
    assert_eq!(server.ask_as(text, "GET", "/sandbox/execs", None).status, 401);
    let expired = make(&server.token, json!({ "role": "operator", "expires_at": 1 })).expect(201);
    assert_eq!(server.ask_as(expired["token"].as_str().unwrap(), "GET", "/settings", None).status, 401);
    let log = server.log();
    assert!(!log.contains(text) && !log.contains(&operator));
}

#[test]
fn no_auth_makes_every_local_client_the_owner() {
    let server = Server::start_with(&["--no-auth"]);
    assert_eq!(server.ask_with("GET", "/settings", &[], None).status, 200);
    let afar =
        crate::server::command(server.data()).args(["serve", "--no-auth", "--listen", "0.0.0.0:0"]).output().unwrap();
    assert_eq!(afar.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&afar.stderr).contains("loopback"), "{afar:?}");
}

#[test]
fn last_owner_token_cannot_be_revoked() {
    let server = Server::start();
    let own = server.ask("GET", "/api/tokens", None).expect(200)[0]["id"].as_str().unwrap().to_owned();
    let revoke = |id: &str| server.ask("DELETE", &format!("/api/tokens/{id}"), None);
    let refused = revoke(&own).expect(409);
    assert!(refused["error"]["hint"].as_str().unwrap().contains("create another owner token"), "{refused}");
    assert_eq!(server.ask("GET", "/api/tokens", None).status, 200);
    // The command line refuses it too.
    let output = server.command().args(["token", "revoke", &own]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("ringwall token create --role owner"));
    // Control: with a second owner token, the first one can be revoked.
    let second = server.make_token(&["--role", "owner"]);
    assert_eq!(revoke(&own).status, 204);
    assert_eq!(server.ask("GET", "/api/tokens", None).status, 401);
    assert_eq!(server.ask_as(&second, "GET", "/api/tokens", None).status, 200);
}

/// Two owners revoke each other's token at the same time. One token must remain valid.
#[test]
fn concurrent_revocations_keep_one_owner_token() {
    let server = Server::start();
    let first = server.ask("GET", "/api/tokens", None).expect(200)[0]["id"].as_str().unwrap().to_owned();
    let made = server.ask("POST", "/api/tokens", Some(&json!({ "role": "owner" }))).expect(201);
    let (second, second_id) = (made["token"].as_str().unwrap(), made["id"].as_str().unwrap());
    let barrier = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for (token, id) in [(server.token.as_str(), second_id), (second, first.as_str())] {
            let (server, barrier) = (&server, &barrier);
            scope.spawn(move || {
                barrier.wait();
                server.ask_as(token, "DELETE", &format!("/api/tokens/{id}"), None).status
            });
        }
    });
    let still = [server.token.as_str(), second].map(|token| server.ask_as(token, "GET", "/api/tokens", None).status);
    assert!(still == [200, 401] || still == [401, 200], "{still:?}");
}
