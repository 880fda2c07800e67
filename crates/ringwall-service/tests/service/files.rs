//! Inputs and artifacts of execs: accepted, stored and rejected files.

use std::path::Path;

use ringwall_policy::Secret;
use ringwall_service::{ExecRequest, Status, Stream};
use serde_json::json;

use crate::fixture::{in_fixture, limited, reason, shell};

pub fn invalid_inputs_write_nothing() {
    in_fixture(async |fixture| {
        let inputs = |paths: &[&str]| paths.iter().map(|path| ((*path).to_owned(), b"data".to_vec())).collect();
        for bad in ["../x", "/x", "", "a/../../b", "a\0b"] {
            let request = ExecRequest { inputs: inputs(&["good", bad]), ..shell("true") };
            assert_eq!(fixture.refused(request).await.code(), "INVALID_ARGUMENT", "{bad:?}");
        }
        // Conflicting input paths are found only when they are written.
        for pair in [["a", "a/b"], ["a", "a"]] {
            let view = fixture.run(ExecRequest { inputs: inputs(&pair), ..shell("true") }).await;
            assert_eq!((view.summary.status, reason(&view)), (Status::Failed, "INVALID_ARGUMENT"));
        }
        assert_eq!(std::fs::read_dir(fixture.project("default", "inputs")).unwrap().count(), 0);

        let request = ExecRequest { inputs: inputs(&["in/a..b"]), ..shell("cat /workspace/inputs/in/a..b") };
        let view = fixture.run(request).await;
        assert_eq!(fixture.text(&view, Stream::Stdout).await, "data");
        let view = fixture.run_shell("echo no > /workspace/inputs/in/a..b").await;
        assert_eq!(view.summary.status, Status::Failed);
    });
}

pub fn artifacts_are_listed_and_limited() {
    in_fixture(async |fixture| {
        let script =
            "cd /workspace/artifacts; mkdir d; echo one > d/one; echo mine > meta.json; ln -s /etc/passwd link";
        let view = fixture.run_shell(script).await;
        assert_eq!(view.summary.status, Status::Succeeded);
        let id = &view.summary.exec_id;
        let artifacts = fixture.service.artifacts(&fixture.owner, id).await.unwrap();
        let paths: Vec<&str> = artifacts.files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["d/one", "meta.json", "stderr.txt", "stdout.txt"]);
        let read = async |path: &str| {
            let (file, size) = fixture.service.artifact(&fixture.owner, id, path).await?;
            let text = std::io::read_to_string(file).unwrap();
            assert_eq!(text.len() as u64, size);
            Ok::<_, ringwall_service::Error>(text)
        };
        assert_eq!(read("d/one").await.unwrap(), "one\n");
        let meta: serde_json::Value = serde_json::from_str(&read("meta.json").await.unwrap()).unwrap();
        assert_eq!((&meta["status"], &meta["backend"]), (&json!("SUCCEEDED"), &json!("native")));
        assert_eq!(meta["docker_mounts"][0]["mode"], "ro");
        assert_eq!(meta["policy_snapshot"], view.policy_snapshot);
        for (path, code) in [("link", "NOT_FOUND"), ("nothing", "NOT_FOUND"), ("../x", "INVALID_ARGUMENT")] {
            assert_eq!(read(path).await.unwrap_err().code(), code);
        }

        let large = "head -c 4000 /dev/zero > /workspace/artifacts/a; head -c 4000 /dev/zero > /workspace/artifacts/b";
        let view = fixture.run(limited(large, json!({"max_artifacts_bytes_total": 5000}))).await;
        assert_eq!((view.summary.status, reason(&view)), (Status::Failed, "ARTIFACTS_LIMIT"));
        let artifacts = fixture.service.artifacts(&fixture.owner, &view.summary.exec_id).await.unwrap();
        let total: u64 = artifacts.files.iter().filter(|file| file.path.as_str().len() == 1).map(|f| f.size).sum();
        assert!(total > 0 && total <= 5000, "{total}");
    });
}

pub fn environment_values_are_not_stored() {
    in_fixture(async |fixture| {
        let value = "hunter2-9d1c7e55";
        let env = [("PASSWORD".to_owned(), Secret::new(value))].into();
        let view = fixture.run(ExecRequest { env, ..shell("printf %s \"$PASSWORD\" | wc -c") }).await;
        assert_eq!(fixture.text(&view, Stream::Stdout).await.trim(), value.len().to_string());
        assert_eq!(view.env_keys, ["PASSWORD"]);
        fixture.service.drain(std::time::Duration::from_secs(5)).await;
        let mut looked_at = 0;
        search(fixture.directory.path(), value.as_bytes(), &mut looked_at);
        assert!(looked_at > 5, "{looked_at}");
    });
}

fn search(directory: &Path, value: &[u8], looked_at: &mut u32) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            search(&entry.path(), value, looked_at);
        } else if kind.is_file() {
            *looked_at += 1;
            let bytes = std::fs::read(entry.path()).unwrap();
            assert!(!bytes.windows(value.len()).any(|window| window == value), "{}", entry.path().display());
        }
    }
}
