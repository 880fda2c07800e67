//! Images for the trials' containers, from programs of this machine and nothing else; and the product's own image.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tests::support::docker_daemon::Daemon;
use tests::support::server::command;

use crate::site::start_on;

/// What execs run on unless somebody says otherwise.
const DEFAULT: &str = "ringwall/sandbox:latest";
/// Enough for a shell that waits.
pub(crate) const LITTLE: &[&str] = &["bash", "cat", "dmesg", "sleep", "true"];
/// What the contract's scripts use. There is a `python3` and no `python`, as on most machines.
pub(crate) const EVERYTHING: &[&str] = &[
    "bash",
    "cat",
    "chmod",
    "env",
    "head",
    "id",
    "ln",
    "ls",
    "mkdir",
    "mkfifo",
    "python3",
    "rm",
    "setsid",
    "sha256sum",
    "sleep",
    "touch",
    "tr",
    "true",
    "wc",
];

/// A daemon whose default image holds these programs of the machine's.
pub(crate) fn launch(options: &[String], programs: &[&str]) -> Daemon {
    let daemon = Daemon::launch(options);
    let archive = daemon.path("image.tar");
    let mut tar = Command::new("tar");
    // Followed, so that no link of the machine's own layout has to be there as well.
    tar.args(["--create", "--dereference", "--directory=/", "--exclude=dist-packages", "--exclude=test"]);
    tar.args(["--exclude=__pycache__", "--file"]).arg(&archive).args(files(programs));
    assert!(tar.stdin(Stdio::null()).status().unwrap().success());
    daemon.ask(&["import", archive.to_str().unwrap(), DEFAULT]);
    daemon
}

/// The programs with everything that they load, relative to the root.
fn files(programs: &[&str]) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for program in programs {
        let program = format!("/usr/bin/{program}");
        let loaded = Command::new("ldd").arg(&program).output().unwrap();
        let loaded = String::from_utf8(loaded.stdout).unwrap();
        files.extend(loaded.split_ascii_whitespace().filter(|word| word.starts_with('/')).map(relative));
        files.insert(relative(&program));
    }
    if programs.contains(&"python3") {
        let output = Command::new("/usr/bin/python3").args(["-c", "import os; print(os.__file__)"]).output().unwrap();
        let library = String::from_utf8(output.stdout).unwrap();
        files.insert(relative(Path::new(library.trim()).parent().unwrap().to_str().unwrap()));
    }
    files
}

fn relative(path: &str) -> String {
    path.trim_start_matches('/').to_owned()
}

/// From this machine's own package archive, which takes a minute or more.
pub(crate) fn the_default_image_is_built() {
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
