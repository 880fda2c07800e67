//! All statuses with which an exec can end, with real boxes.

use ringwall_service::{ExecRequest, InvokeOptions, Status, Stream};
use serde_json::json;

use crate::fixture::{HELD, in_fixture, limited, reason, shell};

pub fn succeeded_and_failed_execs_report_exit_code() {
    in_fixture(async |fixture| {
        let view = fixture.run_shell("echo out; echo err >&2; pwd").await;
        assert_eq!((view.summary.status, view.summary.exit_code), (Status::Succeeded, Some(0)));
        assert_eq!(fixture.text(&view, Stream::Stdout).await, "out\n/workspace/work\n");
        assert_eq!(fixture.text(&view, Stream::Stderr).await, "err\n");
        assert_eq!(view.error_reason, None);
        assert!(view.summary.duration_ms.is_some() && view.usage.cpu_ms.is_some());
        assert!(view.protections.as_ref().unwrap().as_array().unwrap().len() > 5);
        let id = &view.summary.exec_id;
        assert_eq!(view.summary.artifacts_path, format!("projects/p/artifacts/{id}"));
        // The returned result equals the recorded one.
        assert_eq!(fixture.service.exec(&fixture.owner, id).await.unwrap(), view);

        let view = fixture.run_shell("exit 7").await;
        assert_eq!((view.summary.status, view.summary.exit_code), (Status::Failed, Some(7)));
        assert_eq!(view.error_reason, None);
        let view = fixture.run_shell("kill -9 $$").await;
        assert_eq!((view.summary.status, view.summary.exit_code), (Status::Failed, Some(137)));

        let seen = fixture.service.observation(&fixture.owner, id).await.unwrap();
        assert_eq!((seen.stdout.as_str(), seen.exit_code), ("out\n/workspace/work\n", Some(0)));
        let metrics = fixture.service.metrics();
        assert_eq!(metrics.ended[&(Status::Failed, "native".to_owned())], 2);
        assert_eq!((metrics.running, metrics.waiting, metrics.set_up.count), (0, 0, 3));
    });
}

pub fn timeout_ends_exec() {
    in_fixture(async |fixture| {
        // Retries with longer timeouts, in case the shell does not print in time.
        let mut said = String::new();
        for limit in [300, 3_000, 30_000] {
            let view = fixture.run(limited("echo before; sleep 100", json!({"timeout_ms": limit}))).await;
            assert_eq!((view.summary.status, view.summary.exit_code), (Status::Timeout, None));
            assert_eq!(reason(&view), "TIMEOUT");
            assert_eq!(view.policy_snapshot["limits"]["timeout_ms"], limit);
            assert_eq!(view.policy_snapshot["layers"]["timeout_ms"], "request");
            said = fixture.text(&view, Stream::Stdout).await;
            if !said.is_empty() {
                break;
            }
        }
        assert_eq!(said, "before\n");
    });
}

pub fn memory_limit_ends_exec() {
    in_fixture(async |fixture| {
        let greedy = "/usr/bin/python3 -c 'x = bytearray(300 << 20); print(len(x))'";
        let view = fixture.run(limited(greedy, json!({"memory_mb": 64}))).await;
        assert_eq!(view.summary.status, Status::Failed);
        let protections = view.protections.as_ref().unwrap().as_array().unwrap();
        let memory = protections.iter().find(|protection| protection["name"] == "memory_limit").unwrap();
        // Without root there is usually no cgroup; then Python gets a memory error.
        if memory["state"] == "enforced" || rustix::process::geteuid().is_root() {
            assert_eq!(reason(&view), "OOM", "{memory}");
        }
    });
}

pub fn cancelled_exec_ends() {
    in_fixture(async |fixture| {
        let submitted = fixture.service.submit(&fixture.owner, shell(HELD)).await.unwrap();
        assert_eq!((submitted.status, submitted.known), (Status::Running, false));
        let view = fixture.service.cancel(&fixture.owner, &submitted.exec_id).await.unwrap();
        assert_eq!((view.summary.status, view.summary.exit_code), (Status::Cancelled, None));
        let again = fixture.service.cancel(&fixture.owner, &submitted.exec_id).await.unwrap_err();
        assert_eq!(again.code(), "CONFLICT");
        let unknown = "e_0123456789abcdef".parse().unwrap();
        assert_eq!(fixture.service.cancel(&fixture.owner, &unknown).await.unwrap_err().code(), "NOT_FOUND");
    });
}

pub fn missing_directory_or_backend_fails_exec() {
    in_fixture(async |fixture| {
        let view = fixture.run(ExecRequest { cwd: Some("work/nowhere".to_owned()), ..shell("true") }).await;
        assert_eq!(view.summary.status, Status::Failed);
        let failure = view.failure().unwrap();
        assert_eq!(failure.code(), "INVALID_ARGUMENT", "{failure}");
        assert!(failure.to_string().contains("/workspace/work/nowhere"), "{failure}");

        let request = ExecRequest { backend: Some("podman".to_owned()), ..shell("true") };
        assert_eq!(fixture.refused(request).await.code(), "INVALID_ARGUMENT");
    });
}

pub fn truncated_output_does_not_end_exec() {
    in_fixture(async |fixture| {
        let limits = json!({"max_stdout_bytes": 1000, "max_stderr_bytes": 10});
        let script = "head -c 300000 /dev/zero | tr '\\0' x; printf 0123456789 >&2; echo done > /workspace/work/done";
        let view = fixture.run(limited(script, limits)).await;
        assert_eq!(
            (view.summary.status, view.stdout_truncated, view.stderr_truncated),
            (Status::Succeeded, true, false)
        );
        assert_eq!(fixture.text(&view, Stream::Stdout).await, "x".repeat(1000));
        assert_eq!(fixture.text(&view, Stream::Stderr).await, "0123456789");
        assert_eq!(std::fs::read_to_string(fixture.project("default", "work").join("done")).unwrap(), "done\n");
        let part =
            fixture.service.output(&fixture.owner, &view.summary.exec_id, Stream::Stdout, 990, 100).await.unwrap();
        assert_eq!((part.bytes.len(), part.total, part.truncated), (10, 1000, true));
    });
}

pub fn background_output_does_not_delay_end() {
    in_fixture(async |fixture| {
        let view = fixture.run_shell("echo first; sleep 1000 & echo last").await;
        assert_eq!(view.summary.status, Status::Succeeded);
        assert_eq!(fixture.text(&view, Stream::Stdout).await, "first\nlast\n");
    });
}

pub fn skill_runs_as_exec() {
    in_fixture(async |fixture| {
        let invoke =
            async |id: &str, body| fixture.service.invoke(&fixture.owner, id, body, InvokeOptions::default()).await;
        let submitted = invoke("shell.run", json!({"project_id": "p", "script": "echo hi", "timeout_ms": 5000})).await;
        let view = fixture.service.finished(&fixture.owner, &submitted.unwrap().exec_id).await.unwrap();
        assert_eq!(fixture.text(&view, Stream::Stdout).await, "hi\n");
        assert_eq!(view.summary.skill_id.as_deref(), Some("shell.run"));
        assert_eq!(view.policy_snapshot["limits"]["timeout_ms"], 5000);
        let submitted = invoke("python.run", json!({"conversation_id": "c", "code": "print(6 * 7)"})).await.unwrap();
        let view = fixture.service.finished(&fixture.owner, &submitted.exec_id).await.unwrap();
        assert_eq!((view.summary.project_id.as_str(), view.summary.status), ("c", Status::Succeeded), "{view:?}");
        assert_eq!(fixture.text(&view, Stream::Stdout).await, "42\n");

        let code = |result: Result<_, ringwall_service::Error>| {
            result.map(|_: ringwall_service::Submitted| ()).unwrap_err().code()
        };
        assert_eq!(code(invoke("no.skill", json!({"project_id": "p"})).await), "NOT_FOUND");
        assert_eq!(code(invoke("shell.run", json!({"project_id": "p"})).await), "INVALID_INPUT");
        assert_eq!(code(invoke("shell.run", json!({"script": ""})).await), "INVALID_ARGUMENT");
        let more = json!({"project_id": "p", "script": "", "timeout_ms": 300_000});
        assert_eq!(code(invoke("shell.run", more).await), "POLICY_DENIED");
        let broken = fixture.directory.path().join("skills/my.skill");
        std::fs::create_dir(&broken).unwrap();
        std::fs::write(broken.join("manifest.json"), "{}").unwrap();
        assert_eq!(code(invoke("my.skill", json!({"project_id": "p"})).await), "INVALID_MANIFEST");
        assert_eq!(fixture.service.skills().await.unwrap().skills.len(), 2);
    });
}
