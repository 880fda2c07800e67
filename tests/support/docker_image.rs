//! An image for the containers of tests, made of programs of this machine.

#![expect(clippy::unwrap_used, reason = "a failed assumption is a failed test")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use super::docker_daemon::Daemon;

/// The default image of execs.
pub const DEFAULT: &str = "ringwall/sandbox:latest";
/// The programs for a shell that waits.
pub const LITTLE: &[&str] = &["bash", "cat", "dmesg", "head", "sleep", "true"];
/// Programs that the contract's scripts use. As on most machines there is `python3` and no
/// `python`.
pub const EVERYTHING: &[&str] = &[
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

/// Starts a daemon whose default image contains these programs of this machine.
pub fn launch(options: &[String], programs: &[&str]) -> Daemon {
    let daemon = Daemon::launch(options);
    let archive = daemon.path("image.tar");
    let mut tar = Command::new("tar");
    // Follows links, so that the image needs no links of this machine's layout.
    tar.args(["--create", "--dereference", "--directory=/", "--exclude=dist-packages", "--exclude=test"]);
    tar.args(["--exclude=__pycache__", "--file"]).arg(&archive).args(files(programs));
    assert!(tar.stdin(Stdio::null()).status().unwrap().success());
    daemon.ask(&["import", archive.to_str().unwrap(), DEFAULT]);
    daemon
}

/// The programs with all files that they load, relative to the root.
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
