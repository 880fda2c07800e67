//! MCP with third-party clients: the protocol's conformance suite for both revisions (over HTTP,
//! the only transport it has), and its inspector over HTTP and on standard streams. The files in
//! `conformance` list the checks that need tools of the suite's own test server.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;
use tests::support::boxed::binary;
use tests::support::server::Server;

const HOME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/approvals/conformance");

/// The path of a program that `scripts/setup test` has installed.
fn program(name: &str) -> PathBuf {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/mcp-conformance/node_modules/.bin").join(name);
    assert!(directory.exists(), "{} is missing; run scripts/setup test", directory.display());
    directory.canonicalize().unwrap()
}

fn run(name: &str, arguments: &[&str]) -> Output {
    // The programs write reports into their working directory.
    let directory = TempDir::with_prefix("rw-conformance-").unwrap();
    let shim = format!("{HOME}/old_node.mjs");
    Command::new("node")
        .args(["--import", &shim])
        .arg(program(name))
        .args(arguments)
        .current_dir(directory.path())
        .output()
        .unwrap()
}

fn inspect(arguments: &[&str]) -> Value {
    let output = run("mcp-inspector", &[&["--cli"], arguments].concat());
    let (output_text, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{output_text}{log}");
    serde_json::from_str(&output_text).unwrap_or_else(|error| panic!("{error}: {output_text}{log}"))
}

/// Lists and calls tools and resources with the inspector.
fn check_with_inspector(way: &[&str]) {
    let listed = inspect(&[way, &["--method", "tools/list"]].concat());
    let tools = listed["tools"].as_array().unwrap();
    for name in ["run_code", "run_command", "read_file", "write_file", "approval_status"] {
        let tool = tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name}: {listed}"));
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
    }
    let call = ["--method", "tools/call", "--tool-name", "run_code"];
    let code = ["--tool-arg", "session_id=s", "--tool-arg", "language=python", "--tool-arg", "code=print(6 * 7)"];
    let ran = inspect(&[way, &call, &code].concat());
    assert_eq!((&ran["isError"], &ran["content"][0]["text"]), (&false.into(), &"42\n".into()), "{ran}");
    assert_eq!(ran["structuredContent"]["status"], "SUCCEEDED", "{ran}");
    let directory = ["--tool-arg", "path=files/kept.txt", "--tool-arg", "content=kept by an inspector"];
    let wrote = inspect(&[way, &["--method", "tools/call", "--tool-name", "write_file"], &directory].concat());
    assert_eq!(wrote["isError"], false, "{wrote}");
    let listed = inspect(&[way, &["--method", "resources/list"]].concat());
    let uris: Vec<&Value> = listed["resources"].as_array().unwrap().iter().map(|resource| &resource["uri"]).collect();
    assert!(uris.contains(&&"ringwall://files/kept.txt".into()), "{listed}");
    let read = inspect(&[way, &["--method", "resources/read", "--uri", "ringwall://files/kept.txt"]].concat());
    assert_eq!(read["contents"][0]["text"], "kept by an inspector", "{read}");
}

#[test]
fn conformance_suite_passes_except_for_the_listed_checks() {
    // The suite cannot send a token.
    let server = Server::start_with(&["--no-auth"]);
    let url = format!("http://{}/mcp", server.address);
    // The least number of checks per scenario. A scenario that is skipped also reports success,
    // with zero checks.
    let first: &[(&str, u32)] = &[
        ("server-initialize", 3),
        ("ping", 2),
        ("tools-list", 3),
        ("resources-list", 2),
        ("server-session-lifecycle", 3),
        ("server-sse-polling", 2),
        ("server-sse-multiple-streams", 1),
        ("dns-rebinding-protection", 2),
    ];
    let second: &[(&str, u32)] = &[
        ("tools-list", 4),
        ("resources-list", 2),
        ("sep-2164-resource-not-found", 4),
        ("caching", 7),
        ("input-required-result-unsupported-methods", 2),
        ("input-required-result-validate-input", 3),
        ("http-header-validation", 14),
        ("server-sse-multiple-streams", 1),
        ("dns-rebinding-protection", 2),
    ];
    for (revision, own) in [("2025-11-25", first), ("2026-07-28", second)] {
        let baseline = format!("{HOME}/{revision}.yml");
        let arguments = ["server", "--url", &url, "--requirements", revision, "--expected-failures", &baseline];
        let output = run("conformance", &arguments);
        let output_text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{revision}: {output_text}{}", String::from_utf8_lossy(&output.stderr));
        for (scenario, count) in own {
            let begins = format!("✓ {scenario}: ");
            let ended =
                output_text.lines().find_map(|line| line.strip_prefix(&begins)?.strip_suffix(" passed, 0 failed"));
            let held: Option<u32> = ended.and_then(|held| held.parse().ok());
            assert!(held >= Some(*count), "{revision}, {scenario}: {held:?} of {count} hold: {output_text}");
        }
    }
}

#[test]
fn inspector_works_over_http() {
    let server = Server::start();
    let (url, header) = (format!("http://{}/mcp", server.address), format!("Authorization: Bearer {}", server.token));
    check_with_inspector(&[&url, "--transport", "http", "--header", &header]);
    let refused = run("mcp-inspector", &["--cli", &url, "--transport", "http", "--method", "tools/list"]);
    assert!(!refused.status.success(), "a request without a token was accepted");
}

#[test]
fn inspector_works_on_standard_streams() {
    let data = TempDir::with_prefix("rw-conformance-").unwrap();
    let (program, directory) = (binary().unwrap(), data.path().to_str().unwrap().to_owned());
    check_with_inspector(&[program.to_str().unwrap(), "--data", &directory, "mcp"]);
}

#[test]
fn configuration_snippets_of_the_guide_are_valid() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guides/mcp.md")).unwrap();
    let blocks = |kind: &str| {
        let fence = format!("```{kind}\n");
        guide.split(&fence).skip(1).map(|block| block.split("\n```").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let read: Vec<Value> = blocks("json").iter().map(|block| serde_json::from_str(block).unwrap()).collect();
    assert_eq!(read.len(), 4);
    for (snippet, directory) in read.iter().zip(["/mcpServers", "/mcpServers", "/servers", "/servers"]) {
        let server = &snippet.pointer(directory).unwrap()["ringwall"];
        assert!(
            server["args"] == serde_json::json!(["mcp"]) || server["url"].as_str().unwrap().ends_with("/mcp"),
            "{server}"
        );
    }
    let script = "import sys, tomllib\nfor block in sys.argv[1:]:\n    print(sorted(tomllib.loads(block)['mcp_servers']['ringwall']))";
    let output_text = Command::new("/usr/bin/python3").args(["-c", script]).args(blocks("toml")).output().unwrap();
    let output_text = String::from_utf8_lossy(&output_text.stdout).into_owned();
    assert_eq!(output_text, "['args', 'command']\n['bearer_token_env_var', 'url']\n");
    let lines = blocks("sh");
    assert_eq!(lines.len(), 2);
    for block in lines {
        let syntax = Command::new("bash").args(["-n", "-c", &block]).status().unwrap();
        assert!(syntax.success() && block.starts_with("claude mcp add "), "{block}");
    }
}
