//! The third backend: docker with gVisor's runtime, whose kernel says its own name.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;
use tests::support::docker_image::{LITTLE, launch};

use crate::site::start_on;

const RUNSC: &str = "/usr/bin/runsc";

/// As root `scripts/setup test` installs it, so one that is missing is a failure here and no skip.
pub(crate) fn an_exec_behind_gvisor() {
    assert!(Path::new(RUNSC).exists(), "{RUNSC} is missing: scripts/setup test");
    let data = TempDir::with_prefix("rw-serve-").unwrap();
    let settings = data.path().join("daemon.json");
    // The platform that needs neither hardware virtualisation nor a newer kernel interface.
    let arguments = ["--platform=ptrace", "--network=none"];
    let runtimes = json!({ "runtimes": { "runsc": { "path": RUNSC, "runtimeArgs": arguments } } });
    std::fs::write(&settings, runtimes.to_string()).unwrap();
    let daemon = launch(&[format!("--config-file={}", settings.display())], LITTLE);
    let server = start_on(&daemon, data, "gvisor");
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
    // The control: the same words on the usual runtime know nothing of gVisor.
    let mut usual = server.request("dmesg; cat made");
    usual["backend"] = "docker".into();
    let usual = server.stdout(&server.run(&usual));
    assert!(!usual.contains("gVisor") && usual.ends_with("made\n"), "{usual}");
    let mut slow = server.request("sleep 600");
    slow["policy_overrides"] = json!({ "timeout_ms": 3000 });
    assert_eq!(server.run(&slow)["status"], "TIMEOUT");
    let health = server.ask("GET", "/sandbox/health?probe=1", None).expect(200);
    assert_eq!(health["backends"]["gvisor"], json!({ "available": true, "why": null }), "{health}");
}

pub(crate) fn without_gvisor() {
    let daemon = launch(&[], LITTLE);
    let server = start_on(&daemon, TempDir::with_prefix("rw-serve-").unwrap(), "gvisor");
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
