//! `ringwall image build-docker` builds the default image.

use tempfile::TempDir;
use tests::support::docker_daemon::Daemon;
use tests::support::docker_image::DEFAULT;
use tests::support::server::command;

use crate::fixture::start_on;

/// Uses the host's package archive and takes a minute or more.
pub(crate) fn image_is_built_from_packages() {
    let daemon = Daemon::launch(&[]);
    let data = TempDir::with_prefix("rw-serve-").unwrap();
    let build = || {
        let mut build = command(data.path());
        build.args(["image", "build-docker"]).env("DOCKER_HOST", format!("unix://{}", daemon.path("socket").display()));
        let built = build.output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let answer = String::from_utf8(built.stdout).unwrap();
        assert!(answer.starts_with(&format!("built {DEFAULT} (sha256:")), "{answer}");
    };
    build();
    let left: Vec<_> = std::fs::read_dir(data.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("docker-image.")), "{left:?}");
    let server = start_on(&daemon, data, "docker");
    let done = server.shell("for one in bash ls find jq git python3 python; do command -v $one >/dev/null || echo no $one; done; grep -c ^sandbox: /etc/passwd");
    assert_eq!((server.stdout(&done).as_str(), &done["status"]), ("1\n", &"SUCCEEDED".into()), "{done}");
    let health = server.ask("GET", "/sandbox/health?probe=1", None).expect(200);
    assert_eq!(health["backends"]["docker"]["available"], true, "{health}");
}
