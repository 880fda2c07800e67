//! Execs on an agent's files in real boxes: visible files, writable files, results and records.

use ringwall_service::{Address, Error, ExecFilter, ExecView, Executed, Execution, Limit, ProblemKind, Status, Stream};
use serde_json::json;

use crate::fixture::{Fixture, in_fixture};

fn agent() -> Address {
    Address { user: Some("u".to_owned()), agent: "a".to_owned() }
}

async fn execute(fixture: &Fixture, line: &str) -> Result<Executed, Error> {
    fixture.service.execute(&fixture.owner, &agent(), Execution::Line(line.to_owned())).await
}

async fn run(fixture: &Fixture, line: &str) -> Executed {
    execute(fixture, line).await.unwrap_or_else(|error| panic!("{line}: {error}"))
}

async fn argv(fixture: &Fixture, skill: Option<&str>, words: &[&str]) -> Result<Executed, Error> {
    let command = words[0].to_owned();
    let arguments = words[1..].iter().map(|&word| word.to_owned()).collect();
    let what = match skill {
        Some(skill) => Execution::Skill { skill: skill.to_owned(), command, arguments },
        None => Execution::Sandbox { command, arguments },
    };
    fixture.service.execute(&fixture.owner, &agent(), what).await
}

/// Returns the newest exec.
async fn last(fixture: &Fixture) -> ExecView {
    let page = fixture.service.execs(&fixture.owner, ExecFilter::default(), Limit::nearest(1), None).await.unwrap();
    fixture.service.exec(&fixture.owner, &page.items[0].exec_id).await.unwrap()
}

pub fn line_runs_on_agent_files() {
    in_fixture(async |fixture| {
        let ran = run(fixture, "echo hello > files/x; echo err >&2; exit 7").await;
        assert_eq!(ran, Executed { stdout: String::new(), stderr: "err\n".to_owned(), exit_code: 7 });
        let path = fixture.directory.path().join("workspaces/u/a/files/x");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "hello\n");
        for (line, stdout) in [
            ("ls -A; pwd", "files\nskills\n/workspace\n"),
            ("cat files/x | tr h H", "Hello\n"),
            ("python -c 'print(1)'", "1\n"),
            ("touch y; mkdir z; rm -rf skills; ls -A", "files\nskills\n"),
            ("mkdir skills/s; mv files/x skills/s/x; ls skills/s", "x\n"),
        ] {
            assert_eq!(run(fixture, line).await.stdout, stdout, "{line}");
        }
        let view = last(fixture).await;
        assert_eq!((view.summary.status, view.summary.project_id.as_str()), (Status::Succeeded, "workspace"));
        assert_eq!((view.cmd.as_str(), view.args[0].as_str(), view.cwd.as_str()), ("bash", "-c", "/workspace"));
        assert_eq!(view.policy_snapshot["limits"]["timeout_ms"], 300_000);
        assert_eq!(view.policy_snapshot["limits"]["max_stdout_bytes"], 10 << 20);
        assert_eq!(fixture.text(&view, Stream::Stdout).await, "x\n", "it is an exec as all are");
    });
}

pub fn program_runs_in_its_directory() {
    in_fixture(async |fixture| {
        run(fixture, "mkdir -p skills/技能; echo 'import os; print(os.getcwd())' > skills/技能/main.py").await;
        assert_eq!(
            argv(fixture, Some("技能"), &["python3", "main.py"]).await.unwrap().stdout,
            "/workspace/skills/技能\n"
        );
        assert_eq!(last(fixture).await.summary.skill_id.as_deref(), Some("技能"));
        assert_eq!(
            argv(fixture, None, &["bash", "-c", "pwd; echo $1", "_", "a b"]).await.unwrap().stdout,
            "/workspace/files\na b\n"
        );
        let environment =
            argv(fixture, None, &["python3", "-c", "import os; print(sorted(os.environ), os.environ['PWD'])"]);
        assert_eq!(environment.await.unwrap().stdout, "['HOME', 'LANG', 'PATH', 'PWD', 'USER'] /workspace/files\n");
        let missing = argv(fixture, Some("none"), &["ls"]).await.unwrap_err();
        assert_eq!(missing.code(), "NOT_FOUND", "{missing}");
        fixture.set(json!({"commands": {"allowed_argv": ["no-such-program"]}})).await;
        let ran = argv(fixture, None, &["no-such-program"]).await.unwrap();
        assert_eq!(ran.exit_code, 127);
        assert!(ran.stderr.contains("no-such-program: command not found"), "{ran:?}");
    });
}

pub fn denied_line_is_recorded() {
    in_fixture(async |fixture| {
        for (line, message) in [
            ("ls; nc x", "Security Error: Command 'nc' is not allowed."),
            ("echo x > skills/a/b/SKILL.md", "Security Error: 'SKILL.md' is a system reserved file."),
        ] {
            let Err(Error::Denied { denial, exec_id }) = execute(fixture, line).await else { panic!("{line}") };
            assert!(denial.message.starts_with(message) && denial.hint.is_none(), "{denial}");
            let view = fixture.service.exec(&fixture.owner, &exec_id).await.unwrap();
            assert_eq!((view.summary.status, view.args[1].as_str()), (Status::PolicyDenied, line));
        }
        let refused = argv(fixture, None, &["cat", "/etc/passwd"]).await.unwrap_err();
        assert_eq!(refused.to_string(), "Security Error: Forbidden access to system paths in arguments.");
        let recorded =
            fixture.service.execs(&fixture.owner, ExecFilter::default(), Limit::nearest(10), None).await.unwrap();
        assert_eq!(recorded.items.len(), 3);
        for malformed in ["", " \n", "ls )", "echo a\0b"] {
            assert_eq!(execute(fixture, malformed).await.unwrap_err().code(), "INVALID_ARGUMENT", "{malformed:?}");
        }
        assert_eq!(execute(fixture, "").await.unwrap_err().to_string(), "Command cannot be empty.");
        let again =
            fixture.service.execs(&fixture.owner, ExecFilter::default(), Limit::nearest(10), None).await.unwrap();
        assert_eq!(again.items.len(), 3, "what is malformed leaves no trace");
        fixture.set(json!({"commands": {"allowed": []}})).await;
        assert!(matches!(execute(fixture, "true").await, Err(Error::Denied { .. })));
    });
}

pub fn timeout_message_follows_contract() {
    in_fixture(async |fixture| {
        run(fixture, "mkdir -p skills/s").await;
        fixture.set(json!({"sandbox": {"limits": {"timeout_ms": 1000}}})).await;
        let up = |outcome: Result<Executed, Error>| match outcome {
            Err(Error::Agent(problem)) if problem.kind == ProblemKind::Timeout => problem.message,
            other => panic!("{other:?}"),
        };
        let line = up(execute(fixture, "bash -c 'while :; do :; done'").await);
        assert_eq!(line, "Execution Timeout: Process killed after 1 seconds.");
        for skill in [None, Some("s")] {
            let program = up(argv(fixture, skill, &["python3", "-c", "while True: pass"]).await);
            assert_eq!(program, "Execution timed out after 1 seconds.", "{skill:?}");
            let view = last(fixture).await;
            assert_eq!((view.summary.status, view.summary.skill_id.as_deref()), (Status::Timeout, skill));
        }
    });
}

pub fn truncated_output_ends_at_character() {
    in_fixture(async |fixture| {
        fixture.set(json!({"sandbox": {"limits": {"max_stdout_bytes": 4096}}})).await;
        let ran = run(fixture, "python3 -c \"print('x' + 'é' * 4096)\"").await;
        assert_eq!((ran.stdout.len(), ran.exit_code), (4095, 0));
        assert!(ran.stdout.chars().skip(1).all(|letter| letter == 'é'));
        assert!(last(fixture).await.stdout_truncated);
    });
}

pub fn exec_heals_skills_and_explains_missing_network() {
    in_fixture(async |fixture| {
        run(fixture, "python3 -c \"import os; os.makedirs('skills/s/deep'); open('skills/s/deep/skill.md', 'w').write('name: s')\"").await;
        assert_eq!(run(fixture, "ls skills/s; cat skills/s/SKILL.md").await.stdout, "SKILL.md\ndeep\nname: s");
        assert_ne!(run(fixture, "curl -s http://127.0.0.1:9/").await.exit_code, 0);
        assert_eq!(last(fixture).await.error_reason.unwrap().code, "NO_NETWORK");
        assert_ne!(run(fixture, "cat files/none").await.exit_code, 0);
        assert_eq!(last(fixture).await.error_reason, None);
    });
}
