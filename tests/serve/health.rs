//! `GET /sandbox/health`, which starts programs and boxes outside of the exec queue.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;

use serde_json::Value;

use crate::server::Server;

#[test]
fn only_operators_see_paths_in_health() {
    let directory = tempfile::tempdir().unwrap();
    // An empty file with execute permission, which the kernel cannot execute.
    let client = directory.path().join("docker");
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
        let health = ask(token);
        assert_eq!(keys(&health), keys(&all));
        assert!(!health.to_string().contains('/'), "{health}");
        assert!(health["workspace_root_native"].is_null() && health["docker_cli_path"].is_null());
        assert_eq!(health["backends"]["native"]["available"], true);
    }
}

#[test]
fn concurrent_health_requests_run_one_check() {
    let directory = tempfile::tempdir().unwrap();
    // A docker client that writes to `overlaps` if it runs while another one with the same argument runs.
    let client = directory.path().join("docker");
    let script = format!(
        "#!/bin/sh\ncd {}\necho \"$*\" >>asked\nmkdir \"busy-$1\" || {{ echo \"$*\" >>overlaps; exit 1; }}\n\
         sleep 0.05\nrmdir \"busy-$1\"\nexit 1\n",
        directory.path().display()
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
    let asked = fs::read_to_string(directory.path().join("asked")).unwrap_or_default();
    assert!(!asked.is_empty(), "control: the check did not start the client");
    let overlaps = fs::read_to_string(directory.path().join("overlaps")).unwrap_or_default();
    assert_eq!(overlaps, "", "all calls: {asked}");
}
