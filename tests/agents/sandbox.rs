//! The sandbox routes of contract 001: files by line ranges, and commands as argument lists.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::client::{Body, encode};
use crate::fixture::Fixture;
use crate::workspace::{CommandResult, Workspace};

fn edit(agent: &Workspace, query: &str, text: &str) -> crate::client::ApiResponse {
    agent.client.put(&agent.sandbox_route(&format!("edit?path=x{query}")), text)
}

fn content(agent: &Workspace, query: &str) -> Value {
    agent.client.get(&agent.sandbox_route(&format!("content?path=x{query}"))).success()["content"].clone()
}

pub(crate) fn sandbox_files_are_agent_files(fixture: &Fixture) {
    let agent = fixture.workspace();
    assert_eq!(agent.client.get(&agent.sandbox_route("files")).success(), json!([]));
    let response = agent.client.put(&agent.sandbox_route("edit?path=d%2Fx.txt"), "Hello General Sandbox").success();
    assert_eq!(response, "Sandbox file updated successfully.");
    assert_eq!(agent.text("files/d/x.txt"), "Hello General Sandbox");
    agent.put("files/a", "1");
    assert_eq!(agent.client.get(&agent.sandbox_route("files")).success(), json!(["a", "d/x.txt"]));
    let response = agent.client.get(&agent.sandbox_route("content?path=a")).success();
    assert_eq!(response, json!({ "content": "1" }));
    agent.client.get(&agent.sandbox_route("content?path=none")).expect_error(404);
    agent.client.get(&agent.sandbox_route("content?path=none&start=1&end=2")).expect_error(404);
    agent.client.put(&agent.sandbox_route("edit?path=d"), "x").expect_error_of(&[400, 409]);
    let empty = agent.client.put(&agent.sandbox_route("edit?path=empty"), "");
    empty.success();
    assert_eq!(agent.text("files/empty"), "");
}

pub(crate) fn line_ranges_include_both_ends(fixture: &Fixture) {
    let agent = fixture.workspace();
    edit(&agent, "", "a\nb\nc\n").success();
    for (query, lines) in [
        ("&start=1&end=2", json!(["a", "b"])),
        ("&start=2&end=2", json!(["b"])),
        ("&start=2", json!(["b", "c"])),
        ("&end=2", json!(["a", "b"])),
        ("&start=3&end=99", json!(["c"])),
        ("&start=4", json!([])),
        ("&start=99&end=100", json!([])),
    ] {
        assert_eq!(content(&agent, query), lines, "{query}");
    }
    for query in ["&start=0", "&end=0", "&start=2&end=1", "&start=-1", "&start=x", "&start=1&end=x", "&start="] {
        agent.client.get(&agent.sandbox_route(&format!("content?path=x{query}"))).expect_error(400);
    }
}

pub(crate) fn range_edit_changes_only_its_lines(fixture: &Fixture) {
    let agent = fixture.workspace();
    for (before, query, body, after) in [
        ("a\nb\nc\n", "&start=2&end=2", "B", "a\nB\nc\n"),
        ("a\nb\nc\n", "&start=2&end=2", "B\n", "a\nB\nc\n"),
        ("a\nb\nc\n", "&start=2&end=3", "X", "a\nX\n"),
        ("a\nb\nc\n", "&start=2", "X\nY", "a\nX\nY\n"),
        ("a\nb\nc\n", "&end=2", "X", "X\nc\n"),
        ("a\nb\nc", "&start=3&end=3", "C", "a\nb\nC"),
        ("a\nb\nc", "&start=2", "X", "a\nX"),
        ("a\nb\nc", "&start=1&end=1", "X\nY\n", "X\nY\nb\nc"),
        ("a\r\nb\r\nc\r\n", "&start=2&end=2", "B\r\n", "a\r\nB\r\nc\r\n"),
        ("a\nb\nc\n", "&start=2&end=2", "", "a\nc\n"),
        ("a\nb\nc\n", "&start=3", "", "a\nb\n"),
        ("a\nb\nc\n", "&start=1&end=99", "X", "X\n"),
        ("a\nb\n", "&start=3", "c", "a\nb\nc\n"),
        ("a\n\n\nb\n", "&start=2&end=3", "x", "a\nx\nb\n"),
    ] {
        edit(&agent, "", before).success();
        assert_eq!(edit(&agent, query, body).success(), "Sandbox file updated successfully.");
        assert_eq!(agent.text("files/x"), after, "{before:?} {query} {body:?}");
    }
    edit(&agent, "", "a\nb\n").success();
    for query in ["&start=2&end=1", "&start=0", "&end=0", "&start=4", "&start=4&end=9", "&start=x", "&start=-1"] {
        edit(&agent, query, "X").expect_error(400);
        assert_eq!(agent.text("files/x"), "a\nb\n", "{query}");
    }
}

fn run(agent: &Workspace, command: &str, arguments: &[&str]) -> crate::client::ApiResponse {
    agent.argv(&agent.sandbox(), command, arguments)
}

pub(crate) fn arguments_are_passed_unchanged(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("files/main.py", "import os, sys; print(os.getcwd(), sys.argv[1:])");
    let response = run(&agent, "python3", &["main.py", "--city", "Beijing & 'x' $HOME"]).success();
    let expected = "/workspace/files ['--city', \"Beijing & 'x' $HOME\"]\n";
    assert_eq!(response, json!({ "stdout": expected, "stderror": "", "exit_code": 0 }));
    assert_eq!(
        CommandResult::read(&run(&agent, "echo", &["a;", "b", "|", "c", "> d"]).success()).stdout,
        "a; b | c > d\n"
    );
    assert_eq!(CommandResult::read(&run(&agent, "ls", &["none"]).success()).code, 2);
    assert_eq!(
        CommandResult::read(&run(&agent, "bash", &["-c", "echo $0 $1", "zero", "one"]).success()).stdout,
        "zero one\n"
    );
    let without = agent.client.ask("POST", &agent.sandbox_route("execute?command=ls"), Body::None).success();
    assert_eq!(CommandResult::read(&without).stdout, "main.py\n");
    let result =
        CommandResult::read(&run(&agent, "python3", &["-c", "import os; print(os.environ['PATH'])"]).success());
    assert_eq!(result.stdout, "/usr/local/bin:/usr/bin:/bin\n");
    assert_eq!(agent.listed("files"), ["files/main.py"]);
}

/// Programs in a skill or the sandbox have the same limits as shell commands: an environment
/// without the server's variables, and a timeout of five minutes.
pub(crate) fn programs_have_limits_of_commands(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.push(&crate::zips::skill("s", "")).success();
    let show = "import json, os; print(json.dumps(dict(os.environ)))";
    for (route, directory) in [(agent.skill_route("s"), "/workspace/skills/s"), (agent.sandbox(), "/workspace/files")] {
        let result = CommandResult::read(&agent.argv(&route, "python3", &["-c", show]).success());
        let shown: BTreeMap<String, String> = serde_json::from_str(&result.stdout).unwrap();
        let keys: Vec<&str> = shown.keys().map(String::as_str).filter(|key| *key != "LC_CTYPE").collect();
        assert_eq!(keys, ["HOME", "LANG", "PATH", "PWD", "USER"], "{route}");
        assert_eq!((shown["PATH"].as_str(), shown["PWD"].as_str()), ("/usr/local/bin:/usr/bin:/bin", directory));
        let (_, _, newest) = agent.client.raw("GET", "/sandbox/execs?limit=1");
        let newest: Value = serde_json::from_slice(&newest).unwrap();
        let view = fixture.server().exec(newest[0]["exec_id"].as_str().unwrap());
        assert_eq!(view["policy_snapshot"]["limits"]["timeout_ms"], 300_000, "{route}: {view}");
    }
}

pub(crate) fn forbidden_arguments_are_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    for command in ["perl", "wget", "sudo", "/bin/ls", "./x", "ls -la", "LS", "env", "sort"] {
        let message = run(&agent, command, &[]).expect_error(403);
        assert_eq!(message, format!("Security Error: Command '{command}' is not allowed."));
    }
    for command in ["", " "] {
        run(&agent, command, &[]).expect_error(400);
    }
    for argument in ["..", "../x", "a/../b", "a/..", "--file=../x", "/workspace/../etc/passwd"] {
        let message = run(&agent, "cat", &["ok", argument]).expect_error(403);
        assert_eq!(message, "Security Error: Path traversal '..' is strictly forbidden.", "{argument}");
    }
    for argument in
        ["/etc/passwd", "/", "/proc/self/environ", "--file=/etc/passwd", "/workspacex/y", "/dev/sda", "/tmpx"]
    {
        let message = run(&agent, "cat", &[argument]).expect_error(403);
        assert_eq!(message, "Security Error: Forbidden access to system paths in arguments.", "{argument}");
    }
    for argument in [
        "a..b",
        "...",
        "x..",
        "/workspace/files/none",
        "/tmp/none",
        "/dev/null",
        "--file=/tmp/x",
        "1..2",
        "a=b",
        "s/a/b/",
    ] {
        let result = CommandResult::read(&run(&agent, "echo", &[argument]).success());
        assert_eq!((result.stdout, result.code), (format!("{argument}\n"), 0));
    }
    run(&agent, "echo", &["a\0b"]).expect_error(400);
}

pub(crate) fn skill_id_may_be_any_name(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent
        .push(&crate::zips::of(&[("天气 查询/SKILL.md", "name: x\n"), ("天气 查询/main.py", "print('ok')")]))
        .success();
    let route = agent.skill_route(&encode("天气 查询"));
    assert_eq!(agent.client.get(&format!("{route}/files")).success(), json!(["SKILL.md", "main.py"]));
    assert_eq!(CommandResult::read(&agent.argv(&route, "python3", &["main.py"]).success()).stdout, "ok\n");
    agent.client.put(&format!("{route}/edit?path=main.py"), "print('new')").success();
    let result = CommandResult::read(&agent.argv(&route, "bash", &["-c", "pwd; python3 main.py"]).success());
    assert_eq!(result.stdout, "/workspace/skills/天气 查询\nnew\n");
    let none = agent.skill_route("none");
    agent.client.get(&format!("{none}/files")).expect_error(404);
    agent.client.get(&format!("{none}/content?path=x")).expect_error(404);
    agent.argv(&none, "ls", &[]).expect_error(404);
}
