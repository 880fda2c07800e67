//! Checks a running container from outside: `docker inspect` and the host's `/proc`.

use std::path::Path;

use ringwall_executor::docker::Runtime;
use serde_json::{Value, json};

use super::daemon::{Daemon, IMAGE, wait_until};
use super::project::{GID, Project, RunRequest, UID, block_on, exec_id, read};

/// Runs `look` while a container waits on its stdin.
fn look(daemon: &Daemon, project: &Project, run_request: &RunRequest, look: impl FnOnce(&str)) {
    let docker = daemon.docker(project.data());
    let grant = project.grant(run_request, &["cat"]);
    let name = exec_id();
    block_on(async {
        let mut container = docker.start(grant, &name, Runtime::Default).await.unwrap();
        let streams = container.take_streams();
        look(&format!("ringwall-{name}"));
        let output = read(streams);
        container.wait().await.unwrap();
        output.await.unwrap();
    });
    assert!(!daemon.containers().contains(&format!("ringwall-{name}")), "the container is removed with its exec");
}

pub(crate) fn docker_inspect_shows_every_restriction(daemon: &Daemon) {
    let project = Project::new();
    look(daemon, &project, &RunRequest::default(), |name| {
        let found: Value = serde_json::from_str(&daemon.ask(&["inspect", name])).unwrap();
        let (host, config) = (&found[0]["HostConfig"], &found[0]["Config"]);
        let mib = 1024 * 1024;
        let expected = [
            ("Privileged", json!(false)),
            ("CapAdd", Value::Null),
            ("CapDrop", json!(["ALL"])),
            ("SecurityOpt", json!(["no-new-privileges"])),
            ("ReadonlyRootfs", json!(true)),
            ("PidsLimit", json!(65)),
            ("Memory", json!(64 * mib)),
            ("MemorySwap", json!(64 * mib)),
            ("NanoCpus", json!(1_000_000_000)),
            ("NetworkMode", json!("none")),
            ("IpcMode", json!("private")),
            ("PidMode", json!("")),
            ("UTSMode", json!("")),
            ("UsernsMode", json!("")),
            ("CgroupnsMode", json!("private")),
            ("AutoRemove", json!(true)),
            ("Init", json!(true)),
            ("Binds", Value::Null),
            ("VolumesFrom", Value::Null),
            ("Devices", json!([])),
            ("PublishAllPorts", json!(false)),
        ];
        for (key, value) in expected {
            assert_eq!(host[key], value, "{key}");
        }
        assert_eq!(host["LogConfig"]["Type"], "none");
        assert_eq!(host["Ulimits"][0], json!({"Name": "core", "Hard": 1, "Soft": 1}));
        assert_eq!(config["User"], format!("{UID}:{GID}"));
        assert_eq!(config["WorkingDir"], "/workspace/work");
        assert_eq!(config["Image"], IMAGE);
        let mounts = found[0]["Mounts"].as_array().unwrap();
        let shown: Vec<_> = mounts
            .iter()
            .map(|mount| (mount["Destination"].as_str().unwrap(), mount["Source"].as_str().unwrap(), &mount["RW"]))
            .collect();
        assert_eq!(shown.len(), 3, "{shown:?}");
        for (place, writable) in [("inputs", false), ("work", true), ("artifacts", true)] {
            let at = format!("/workspace/{place}");
            let (_, source, access) = shown.iter().find(|(destination, ..)| *destination == at).unwrap();
            assert_eq!((Path::new(source), *access), (project.path(place).as_path(), &json!(writable)), "{place}");
        }
    });
}

pub(crate) fn secret_variable_is_in_no_process_table(daemon: &Daemon) {
    let secret = "hunter2-in-the-environment";
    let run_request = RunRequest { env: vec![("PASSWORD", secret.to_owned())], ..RunRequest::default() };
    let project = Project::new();
    // The container's init may not have started the command yet.
    look(daemon, &project, &run_request, |name| wait_until("the command has the secret", || has_secret(name, secret)));
}

/// True if one `cat` has the secret in its environment. Panics if a docker client has it in its
/// environment, or any process in its arguments.
fn has_secret(name: &str, secret: &str) -> bool {
    let mut clients = 0;
    let mut boxed = 0;
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let read = |file: &str| std::fs::read(process.path().join(file)).unwrap_or_default();
        let (argv, environment) = (read("cmdline"), read("environ"));
        let holds = |text: &[u8], word: &str| text.windows(word.len()).any(|window| window == word.as_bytes());
        if holds(&argv, name) {
            clients += 1;
            assert!(!holds(&environment, secret), "a docker client has the secret in its environment");
        }
        assert!(!holds(&argv, secret), "{}", String::from_utf8_lossy(&argv));
        boxed += usize::from(argv == b"cat\0" && holds(&environment, secret));
    }
    assert!(clients > 0, "no docker client was found");
    boxed == 1
}

pub(crate) fn probe_reports_client_context_and_daemon(daemon: &Daemon) {
    let project = Project::new();
    let state = block_on(daemon.docker(project.data()).probe());
    assert_eq!(state.client.as_deref(), Some(daemon.client().as_path()));
    assert_eq!(state.context.as_deref(), Some("default"));
    assert!(state.client_version.is_some());
    let version = daemon.ask(&["version", "--format={{.Server.Version}}"]);
    assert_eq!(state.available(Runtime::Default).unwrap().version, version.trim());
    assert!(state.available(Runtime::Gvisor).unwrap_err().contains("runsc"));
}
