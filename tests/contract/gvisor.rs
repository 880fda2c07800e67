//! The gVisor backend, with `runsc` directly and as a runtime of Docker. `dmesg` in a box shows
//! gVisor's kernel.
//!
//! Execs without an image use `runsc` directly if the server finds it in its PATH; so the server
//! that must use Docker gets a PATH without it.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use tests::support::docker_daemon::Daemon;
use tests::support::docker_image::{LITTLE, launch};
use tests::support::server::Server;

const RUNSC: &str = "/usr/bin/runsc";

/// Starts a server whose PATH contains Docker's client only.
fn start_on_docker(daemon: &Daemon, data: TempDir) -> Server {
    let programs = data.path().join("programs");
    std::fs::create_dir(&programs).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let docker = std::env::split_paths(&path).map(|directory| directory.join("docker")).find(|file| file.exists());
    std::os::unix::fs::symlink(docker.unwrap(), programs.join("docker")).unwrap();
    let (client, path) = (daemon.client(), programs.to_str().unwrap().to_owned());
    Server::start_under(data, &["--docker-cli-path", client.to_str().unwrap()], &[("PATH", &path)]).on(Some("gvisor"))
}

/// `scripts/setup test` installs `runsc` as root, so its absence is a failure and no skip.
pub(crate) fn runsc_runs_exec_without_docker() {
    assert!(Path::new(RUNSC).exists(), "{RUNSC} is missing: scripts/setup test");
    let flags = ["--docker-cli-path", "/nonexistent/docker"];
    let server = Server::start_with(&flags).on(Some("gvisor"));
    let script = "dmesg; cat ../inputs/given; id -u; id -un; echo made > made; echo left > ../artifacts/left; \
                  echo x > ../inputs/no || echo refused; echo x > /usr/no || echo refused; cat /proc/net/dev | wc -l; exit 4";
    let mut body = server.request(script);
    body["inputs"] = json!([{ "path": "given", "content": "given\n" }]);
    let done = server.run(&body);
    assert_eq!((&done["status"], &done["exit_code"]), (&json!("FAILED"), &json!(4)), "{done}");
    let output = server.stdout(&done);
    assert!(output.contains("gVisor"), "{output}");
    let after = output.split_once("given\n").unwrap().1;
    let lines: Vec<&str> = after.lines().collect();
    assert_eq!(lines[1..4], ["sandbox", "refused", "refused"], "{output}");
    // Two header lines and the loopback.
    assert_eq!(lines[4].trim(), "3", "{output}");
    let view = server.exec(done["exec_id"].as_str().unwrap());
    assert_eq!((&view["backend"], &view["image"]), (&json!("gvisor"), &json!(null)), "{view}");
    assert_eq!(view["protections"].as_array().unwrap().len(), 24, "{view}");
    assert!(view["usage"]["max_rss_bytes"].is_u64() && view["usage"]["cpu_ms"].is_u64(), "{view}");
    // The control: in a native box `dmesg` does not mention gVisor, and the files belong to the
    // same user.
    let mut native = server.request("dmesg; cat made; stat -c %U made");
    native["backend"] = "native".into();
    let native = server.stdout(&server.run(&native));
    assert!(!native.contains("gVisor") && native.ends_with("made\nsandbox\n"), "{native}");
    let health = server.ask("GET", "/sandbox/health?probe=1", None).expect(200);
    assert_eq!(health["backends"]["gvisor"], json!({ "available": true, "why": null }), "{health}");
    assert_eq!(health["backends"]["docker"]["available"], false, "{health}");
    let missing = server.ask("POST", "/sandbox/execs", Some(&server.request("exec /nonexistent/program"))).expect(200);
    assert_eq!(missing["exit_code"], 127, "{missing}");
}

pub(crate) fn docker_runs_exec_with_gvisor_runtime() {
    assert!(Path::new(RUNSC).exists(), "{RUNSC} is missing: scripts/setup test");
    let data = TempDir::with_prefix("rw-serve-").unwrap();
    let settings = data.path().join("daemon.json");
    // The platform that needs neither KVM nor a recent kernel.
    let arguments = ["--platform=ptrace", "--network=none"];
    let runtimes = json!({ "runtimes": { "runsc": { "path": RUNSC, "runtimeArgs": arguments } } });
    std::fs::write(&settings, runtimes.to_string()).unwrap();
    let daemon = launch(&[format!("--config-file={}", settings.display())], LITTLE);
    let server = start_on_docker(&daemon, data);
    let mut body =
        server.request("dmesg; cat ../inputs/given; echo made > made; echo left > ../artifacts/left; exit 4");
    body["inputs"] = json!([{ "path": "given", "content": "given\n" }]);
    let done = server.run(&body);
    assert_eq!((&done["status"], &done["exit_code"]), (&json!("FAILED"), &json!(4)), "{done}");
    let output = server.stdout(&done);
    assert!(output.contains("gVisor") && output.ends_with("given\n"), "{output}");
    let view = server.exec(done["exec_id"].as_str().unwrap());
    assert_eq!((&view["backend"], &view["image"]), (&json!("gvisor"), &json!("ringwall/sandbox:latest")), "{view}");
    let files = server.ask("GET", &format!("/sandbox/execs/{}/artifacts", done["exec_id"].as_str().unwrap()), None);
    assert!(files.expect(200)["files"].as_array().unwrap().iter().any(|file| file["path"] == "left"));
    // The control: with Docker's default runtime `dmesg` does not mention gVisor.
    let mut default_runtime = server.request("dmesg; cat made");
    default_runtime["backend"] = "docker".into();
    let default_runtime = server.stdout(&server.run(&default_runtime));
    assert!(!default_runtime.contains("gVisor") && default_runtime.ends_with("made\n"), "{default_runtime}");
    let mut slow = server.request("sleep 600");
    slow["policy_overrides"] = json!({ "timeout_ms": 3000 });
    assert_eq!(server.run(&slow)["status"], "TIMEOUT");
    let health = server.ask("GET", "/sandbox/health?probe=1", None).expect(200);
    assert_eq!(health["backends"]["gvisor"], json!({ "available": true, "why": null }), "{health}");
}

pub(crate) fn missing_gvisor_is_reported() {
    let daemon = launch(&[], LITTLE);
    let server = start_on_docker(&daemon, TempDir::with_prefix("rw-serve-").unwrap());
    let refused = server.ask("POST", "/sandbox/execs", Some(&server.request("true")));
    assert_eq!(refused.refused(503), "BACKEND_UNAVAILABLE");
    let health = server.ask("GET", "/sandbox/health?probe=1", None).expect(200);
    assert_eq!(
        (&health["backends"]["gvisor"]["available"], &health["backends"]["docker"]["available"]),
        (&json!(false), &json!(true)),
        "{health}"
    );
    assert!(health["backends"]["gvisor"]["why"].as_str().unwrap().contains("runsc"), "{health}");
}
