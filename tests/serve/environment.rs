//! Environment variables and other start-up configuration of a server, and the greeting that it prints.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::json;

use crate::server::{Server, command};

const MEMORY_VARIABLE: &str = "RINGWALL_SANDBOX_LIMITS_MEMORY_MB";

/// Starts a server that must refuse this variable, and returns its standard error.
fn start_error(data: &Path, name: &str, value: &str) -> String {
    let mut serve = command(data);
    let Output { status, stderr, .. } =
        serve.args(["serve", "--listen", "127.0.0.1:0"]).env(name, value).output().unwrap();
    assert_eq!(status.code(), Some(2), "{name}={value}");
    String::from_utf8(stderr).unwrap()
}

#[test]
fn environment_variable_overrides_stored_setting() {
    let mut server = Server::start();
    server.ask("PUT", "/settings", Some(&json!({"sandbox": {"limits": {"memory_mb": 512}}}))).expect(200);
    server.signal(rustix::process::Signal::TERM);
    server.ended();
    let server = Server::start_under(server.leave(), &[], &[(MEMORY_VARIABLE, "64")]);
    let shown = server.ask("GET", "/settings", None).expect(200);
    assert_eq!(
        (&shown["sandbox"]["limits"]["memory_mb"], &shown["fixed"]),
        (&json!(64), &json!(["sandbox.limits.memory_mb"]))
    );
    let other = json!({"sandbox": {"limits": {"memory_mb": 128}}});
    assert_eq!(server.ask("PUT", "/settings", Some(&other)).refused(409), "CONFLICT");
    assert_eq!(server.ask("PUT", "/settings", Some(&shown)).expect(200), shown);
    let exec = server.shell("true");
    let view = server.exec(exec["exec_id"].as_str().unwrap());
    assert_eq!(view["policy_snapshot"]["limits"]["memory_mb"], 64);
    assert_eq!(view["policy_snapshot"]["layers"]["memory_mb"], "settings");
}

#[test]
fn start_up_only_keys_are_shown_with_their_source() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("ringwall.toml"), "[docker]\ncontext = 'from-file'\n").unwrap();
    let client = data.path().join("docker").display().to_string();
    let root = data.path().join("own-skills").display().to_string();
    let server = Server::start_under(data, &["--docker-cli-path", &client], &[("RINGWALL_SKILLS_ROOT", &root)]);
    let shown = server.ask("GET", "/settings", None).expect(200);
    let expected = [
        ("sandbox.docker.cli_path", "flag", json!(client)),
        ("sandbox.docker.context", "file", json!("from-file")),
        ("skills.root", "environment", json!(root)),
        ("sandbox.workspace_root_wsl", "default", json!(null)),
    ];
    for (key, source, value) in expected {
        assert_eq!(shown["sources"][key], source, "{key}");
        assert_eq!(shown.pointer(&format!("/{}", key.replace('.', "/"))), Some(&value), "{key}");
    }
    assert_eq!(server.ask("PUT", "/settings", Some(&shown)).expect(200), shown);
}

#[test]
fn start_up_only_keys_cannot_be_changed_over_http() {
    let server = Server::start();
    let shown = server.ask("GET", "/settings", None).expect(200);
    let keys: Vec<&String> = shown["sources"].as_object().unwrap().keys().collect();
    assert!(keys.len() >= 11, "{keys:?}");
    for key in keys {
        let change = key.rsplit('.').fold(json!("/tmp/x"), |inner, name| json!({ name: inner }));
        let refused = server.ask("PUT", "/settings", Some(&change)).expect(409);
        let variable = format!("RINGWALL_{}", key.to_ascii_uppercase().replace('.', "_"));
        assert!(refused["detail"]["hint"].as_str().unwrap().contains(&variable), "{refused}");
    }
    assert_eq!(server.ask("GET", "/settings", None).expect(200), shown);
}

#[test]
fn misspelt_variable_is_refused_with_a_suggestion() {
    let data = tempfile::tempdir().unwrap();
    let misspelt = start_error(data.path(), "RINGWALL_SANDBOX_LIMIT_MEMORY_MB", "64");
    assert!(misspelt.contains(&format!("did you mean {MEMORY_VARIABLE}?")), "{misspelt}");
    let wrong = start_error(data.path(), MEMORY_VARIABLE, "99999999");
    assert!(wrong.contains(MEMORY_VARIABLE) && wrong.contains("4096 MB"), "{wrong}");
    assert!(!data.path().join("db.sqlite").exists(), "a refused start created the database");
}

/// The commands that `serve` prints at the start run unchanged in a shell.
#[test]
fn commands_of_the_greeting_work() {
    let data = tempfile::tempdir().unwrap();
    let mut serve = command(data.path());
    let mut server =
        serve.args(["serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let greeting: Vec<String> = lines.by_ref().take_while(|line| !line.starts_with("Ctrl-C")).collect();
    let commands: Vec<&str> = greeting.iter().filter_map(|line| line.strip_prefix("  ")).collect();
    let mut shown = Vec::new();
    for command in &commands {
        let mut shell = Command::new("bash");
        let output = shell.args(["-c", command]).output().unwrap();
        shown.push(serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap());
    }
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(shown[0]["status"], "SUCCEEDED", "{greeting:?}");
    let (stdout, stderr) = (shown[1]["stdout"].as_str().unwrap(), shown[1]["stderr"].as_str().unwrap());
    assert!(stdout.contains("uid=1000(sandbox)") && stdout.ends_with("done\n"), "{stdout}");
    assert!(stderr.contains("/etc/shadow: No such file"), "{stderr}");
}
