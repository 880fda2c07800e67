//! Access control: every route of contracts 000 and 001 without a token, with wrong tokens and with
//! tokens of other users and agents.

use serde_json::{Value, json};
use tests::support::server::Server;

use crate::client::{Body, Client, file_part, form};
use crate::fixture::{Fixture, new_name, workspace_of};
use crate::zips;

/// All routes of both contracts: method, path, body.
fn routes(user: &str, agent: &str) -> Vec<(&'static str, String, Option<Value>)> {
    let file = json!({ "file_path": "files/x", "content": "hostile" });
    let edit = json!({ "file_path": "files/x", "old_string": "a", "new_string": "b" });
    let mut routes = vec![
        ("POST", format!("/v1/skills/{agent}/upload"), None),
        ("GET", format!("/v1/skills/{agent}/list"), None),
        ("DELETE", format!("/v1/skills/{agent}/delete?name=s"), None),
        ("POST", format!("/v1/files/{agent}/upload"), None),
        ("GET", format!("/v1/{agent}/files?path=files"), None),
        ("GET", format!("/v1/{agent}/content?path=files/x"), None),
        ("GET", format!("/v1/{agent}/download?path=files/x"), None),
        ("POST", format!("/v1/{agent}/write"), Some(file)),
        ("POST", format!("/v1/{agent}/edit"), Some(edit)),
        ("POST", format!("/v1/{agent}/execute"), Some(json!({ "command": "touch files/hostile" }))),
        ("DELETE", format!("/v1/{agent}/delete?path=files/x"), None),
    ];
    routes.extend(of_pair(user, agent));
    routes
}

/// The routes whose path names user and agent.
fn of_pair(user: &str, agent: &str) -> Vec<(&'static str, String, Option<Value>)> {
    let pair = format!("{user}/{agent}");
    vec![
        ("POST", format!("/v1/skills/{pair}/upload"), None),
        ("POST", format!("/v1/skills/{pair}/upload?scope=baseline"), None),
        ("GET", format!("/v1/skills/{pair}/list"), None),
        ("GET", format!("/v1/skills/{pair}/s/files"), None),
        ("GET", format!("/v1/skills/{pair}/s/content?path=x"), None),
        ("PUT", format!("/v1/skills/{pair}/s/edit?path=x"), None),
        ("POST", format!("/v1/skills/{pair}/s/execute?command=ls"), Some(json!([]))),
        ("PUT", format!("/v1/sandbox/{pair}/edit?path=hostile"), None),
        ("POST", format!("/v1/sandbox/{pair}/execute?command=touch"), Some(json!(["hostile"]))),
        ("GET", format!("/v1/sandbox/{pair}/files"), None),
        ("GET", format!("/v1/sandbox/{pair}/content?path=x"), None),
    ]
}

/// Sends a request whose body would be valid.
fn ask(client: &Client, method: &str, path: &str, body: Option<&Value>) -> crate::client::ApiResponse {
    let (kind, bytes) = form(&[&file_part(b"hostile", &zips::skill("hostile", "x"))]);
    let body = match body {
        Some(body) => Body::Json(body),
        None if path.contains("upload") => Body::Other { kind: &kind, bytes: &bytes },
        None if method == "PUT" => Body::Text("hostile"),
        None => Body::None,
    };
    client.ask(method, path, body)
}

pub(crate) fn request_without_valid_token_is_rejected(fixture: &Fixture) {
    let server = fixture.server();
    let agent = fixture.workspace();
    agent.put("files/x", "a");
    agent.push(&zips::of(&[("s/SKILL.md", ""), ("s/x", "1")])).success();
    let wrong = [None, Some("Bearer wrong"), Some("Bearer "), Some("Basic dTpw"), Some("wrong")];
    for authorization in wrong {
        let client = Client::with(&server, authorization.map(str::to_owned));
        for (method, path, body) in routes(&agent.user, &agent.agent) {
            let response = ask(&client, method, &path, body.as_ref());
            assert_eq!(response.status, 401, "{method} {path} with {authorization:?}: {response:?}");
        }
    }
    assert_eq!(agent.text("files/x"), "a");
    assert_eq!(agent.listed("files"), ["files/x"]);
    assert_eq!(agent.skill_names(), ["s"]);
}

pub(crate) fn workspace_of_other_user_is_not_found(fixture: &Fixture) {
    let server = fixture.server();
    let ann = workspace_of(&server, &new_name("ann"), &new_name("agent"));
    ann.put("files/x", "a");
    ann.push(&zips::of(&[("s/SKILL.md", ""), ("s/x", "1")])).success();
    let bob_name = new_name("bob");
    let bob = Client::of(&server, &server.make_token(&["--role", "user", "--user", &bob_name]));
    let of_other_agent =
        Client::of(&server, &server.make_token(&["--role", "agent", "--user", &ann.user, "--agent", "other"]));
    let of_bob =
        Client::of(&server, &server.make_token(&["--role", "agent", "--user", &bob_name, "--agent", &ann.agent]));
    for client in [&bob, &of_other_agent, &of_bob] {
        for (method, path, body) in of_pair(&ann.user, &ann.agent) {
            let response = ask(client, method, &path, body.as_ref());
            assert_eq!(response.status, 404, "{method} {path}: {response:?}");
        }
    }
    // Routes without a user in the path: an agent token is limited to its agent, and the `user`
    // parameter to the token's user.
    for (method, path, body) in routes(&ann.user, &ann.agent).into_iter().take(11) {
        let response = ask(&of_other_agent, method, &path, body.as_ref());
        assert_eq!(response.status, 404, "{method} {path}: {response:?}");
        let query =
            if path.contains('?') { format!("{path}&user={}", ann.user) } else { format!("{path}?user={}", ann.user) };
        for client in [&bob, &of_bob] {
            let response = ask(client, method, &query, body.as_ref());
            assert_eq!(response.status, 404, "{method} {query}: {response:?}");
        }
    }
    // Bob's own workspace of the same agent is empty.
    assert_eq!(ann.of(bob, &bob_name).listed("files"), [""; 0]);
    assert_eq!(ann.text("files/x"), "a");
    assert_eq!(ann.listed("files"), ["files/x"]);
    assert_eq!(ann.listed("skills"), ["skills/s/SKILL.md", "skills/s/x"]);
}

pub(crate) fn roles_reach_their_workspaces(fixture: &Fixture) {
    let server = fixture.server();
    let ann = workspace_of(&server, &new_name("ann"), &new_name("agent"));
    ann.put("files/x", "of ann");
    let (user, agent) = (&ann.user, &ann.agent);
    let own = Client::of(&server, &server.make_token(&["--role", "agent", "--user", user, "--agent", agent]));
    assert_eq!(own.get(&format!("/v1/{agent}/content?path=files/x")).success()["content"], "of ann");
    assert_eq!(own.get(&format!("/v1/sandbox/{user}/{agent}/content?path=x")).success()["content"], "of ann");
    for role in ["operator", "owner"] {
        let token = if role == "owner" { server.token.clone() } else { server.make_token(&["--role", "operator"]) };
        let client = Client::of(&server, &token);
        let by_pair = client.get(&format!("/v1/sandbox/{user}/{agent}/content?path=x")).success();
        assert_eq!(by_pair["content"], "of ann", "{role}");
        let by_word = client.get(&format!("/v1/{agent}/content?path=files/x&user={user}")).success();
        assert_eq!(by_word["content"], "of ann", "{role}");
        // Without the `user` parameter the user is `default`.
        client.get(&format!("/v1/{agent}/content?path=files/x")).expect_error(404);
        client.post(&format!("/v1/{agent}/write"), &json!({ "file_path": "files/x", "content": role })).success();
        let default = client.get(&format!("/v1/sandbox/default/{agent}/content?path=x")).success();
        assert_eq!(default["content"], role);
        let write = json!({ "file_path": "files/of", "content": role });
        client.post(&format!("/v1/{agent}/write?user={user}"), &write).success();
        assert_eq!(ann.text("files/of"), role);
        client.delete(&format!("/v1/{agent}/delete?path=files/x")).success();
        client.get(&format!("/v1/{agent}/files?path=files&user=..")).expect_error(400);
    }
}

pub(crate) fn user_without_authentication_is_default(fixture: &Fixture) {
    let data = tempfile::TempDir::with_prefix("rw-agents-").unwrap();
    let server = Server::start_as(&fixture.starter(), data, &["--no-auth"]);
    let anyone = Client::with(&server, None);
    anyone.post("/v1/a/write", &json!({ "file_path": "files/x", "content": "1" })).success();
    assert_eq!(anyone.get("/v1/sandbox/default/a/content?path=x").success()["content"], "1");
    assert!(server.data().join("workspaces/default/a/files/x").exists());
}

/// `/openapi.json` contains every route of the contracts.
pub(crate) fn openapi_contains_every_route(fixture: &Fixture) {
    let server = fixture.server();
    let document = server.ask_with("GET", "/openapi.json", &[], None).expect(200);
    let published: Vec<(String, Vec<String>)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .filter(|(path, _)| path.starts_with("/v1/"))
        .map(|(path, methods)| (path.clone(), methods.as_object().unwrap().keys().cloned().collect()))
        .collect();
    let is_same = |published: &str, path: &str| {
        let (mut one, mut other) = (published.split('/'), path.split('/'));
        loop {
            match (one.next(), other.next()) {
                (None, None) => return true,
                (Some(one), Some(other)) if one == other || one.starts_with('{') => {}
                _ => return false,
            }
        }
    };
    for (method, path, _) in routes("someone", "something") {
        let path = path.split('?').next().unwrap().to_owned();
        let is_there = published
            .iter()
            .any(|(one, methods)| is_same(one, &path) && methods.iter().any(|one| one.eq_ignore_ascii_case(method)));
        assert!(is_there, "{method} {path} is not in /openapi.json");
    }
}
