//! Asking after a server's health, which starts programs and boxes beside the line that execs stand in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use serde_json::Value;

use crate::server::Server;

#[test]
fn only_operators_are_told_where_things_are() {
    let place = tempfile::tempdir().unwrap();
    // A client that is there and cannot be started.
    let client = place.path().join("docker");
    fs::write(&client, "").unwrap();
    fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_with(&["--docker-cli-path", client.to_str().unwrap()]);
    let agent = server.make_token(&["--role", "agent", "--user", "u", "--agent", "a"]);
    let user = server.make_token(&["--role", "user", "--user", "u"]);
    let operator = server.make_token(&["--role", "operator"]);
    let ask = |token: &str| server.ask_as(token, "GET", "/sandbox/health?probe=1", None).expect(200);
    let keys = |health: &Value| health.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let all = ask(&operator);
    let root = server.data().join("workspaces");
    assert_eq!(all["workspace_root_native"], root.to_str().unwrap());
    assert_eq!(all["docker_cli_path"], client.to_str().unwrap());
    for token in [&agent, &user] {
        let told = ask(token);
        assert_eq!(keys(&told), keys(&all));
        assert!(!told.to_string().contains('/'), "{told}");
        assert!(told["workspace_root_native"].is_null() && told["docker_cli_path"].is_null());
        assert_eq!(told["backends"]["native"]["available"], true);
    }
}

#[test]
fn however_many_ask_for_health_one_looks() {
    let place = tempfile::tempdir().unwrap();
    // A client that notes whenever another one, asked the same, has not ended yet.
    let client = place.path().join("docker");
    let script = format!(
        "#!/bin/sh\ncd {}\necho \"$*\" >>asked\nmkdir \"busy-$1\" || {{ echo \"$*\" >>overlaps; exit 1; }}\n\
         sleep 0.05\nrmdir \"busy-$1\"\nexit 1\n",
        place.path().display()
    );
    fs::write(&client, script).unwrap();
    fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
    let server = Server::start_with(&["--docker-cli-path", client.to_str().unwrap()]);
    let agent = server.make_token(&["--role", "agent", "--user", "u", "--agent", "a"]);
    thread::scope(|scope| {
        for number in 0..20 {
            let (server, agent) = (&server, &agent);
            let path = if number % 2 == 0 { "/sandbox/health" } else { "/sandbox/health?probe=1" };
            scope.spawn(move || {
                let health = server.ask_as(agent, "GET", path, None).expect(200);
                assert_eq!(health["backends"]["native"]["available"], true, "{health}");
                assert_eq!(health["backends"]["docker"]["available"], false, "{health}");
            });
        }
    });
    let asked = fs::read_to_string(place.path().join("asked")).unwrap_or_default();
    assert!(!asked.is_empty(), "the control: looking starts the client");
    let overlaps = fs::read_to_string(place.path().join("overlaps")).unwrap_or_default();
    assert_eq!(overlaps, "", "of all these: {asked}");
}
