//! Common tools of agents work in a box with the default limits.

use std::path::{Path, PathBuf};

use tests::support::actor::Mode;
use tests::support::boxed::BoxRun;
use tests::support::payload::PYTHON;
use tests::support::process::run;
use tests::support::scratch::Scratch;

use crate::modes::{in_both_modes, print_skipped};
use crate::product::{boxed, shell};

in_both_modes!(
    numpy_runs_in_python_threads,
    node_runs_worker_threads,
    git_commits_and_clones,
    gcc_builds_a_working_program,
    java_runs_a_source_file,
    cargo_builds_a_working_program
);

fn numpy_runs_in_python_threads(mode: Mode) {
    let program = "
import numpy, threading
sums = []
def work(): sums.append(int(numpy.arange(100_000).sum()))
threads = [threading.Thread(target=work) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(sums), set(sums))
";
    let outcome = boxed(mode).run(&[PYTHON, "-c", program]).unwrap();
    assert_eq!(outcome.text(), "16 {4999950000}\n", "{}", outcome.describe());
}

fn node_runs_worker_threads(mode: Mode) {
    let program = "const {Worker} = require('worker_threads');
const worker = new Worker(\"require('worker_threads').parentPort.postMessage(6 * 7)\", {eval: true});
worker.on('message', (value) => console.log('answer', value));";
    let outcome = boxed(mode).run(&["node", "-e", program]).unwrap();
    assert_eq!((outcome.code(), outcome.text().as_str()), (Some(0), "answer 42\n"), "{}", outcome.describe());
}

fn git_commits_and_clones(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let script = "git init -q . && git config user.name me && git config user.email me@example.invalid && \
                  echo text > file && git add file && git commit -q -m first && git clone -q . /tmp/copy && \
                  git -C /tmp/copy log --format=%s && git status --porcelain";
    assert_eq!(shell(&boxed(mode).workspace(scratch.path()), script), "first\n");
    assert!(scratch.join(".git/HEAD").exists());
}

fn gcc_builds_a_working_program(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    scratch.file("program.c", b"#include <stdio.h>\nint main(void) { puts(\"built\"); return 0; }\n", 0o644).unwrap();
    let run = boxed(mode).workspace(scratch.path());
    assert_eq!(shell(&run, "gcc -O2 -o program program.c && ./program"), "built\n");
}

fn java_runs_a_source_file(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let source =
        b"public class Main { public static void main(String[] words) { System.out.println(\"ran \" + words[0]); } }";
    scratch.file("Main.java", source, 0o644).unwrap();
    let outcome = boxed(mode).workspace(scratch.path()).run(&["java", "Main.java", "here"]).unwrap();
    assert_eq!(outcome.text(), "ran here\n", "{}", outcome.describe());
}

fn cargo_builds_a_working_program(mode: Mode) {
    let Some((cargo, rustup)) = homes(mode) else {
        print_skipped(&format!("cargo in a box ({})", mode.name()), "its homes cannot be read by this user");
        return;
    };
    let scratch = Scratch::new(mode.identity()).unwrap();
    scratch.directory("src").unwrap();
    scratch.file("Cargo.toml", b"[package]\nname = \"test\"\nedition = \"2021\"\n", 0o644).unwrap();
    scratch.file("src/main.rs", b"fn main() { println!(\"built\"); }\n", 0o644).unwrap();
    let run = boxed(mode)
        .workspace(scratch.path())
        .read_only(&cargo)
        .read_only(&rustup)
        .option("--env", format!("RUSTUP_HOME={}", rustup.display()))
        .option("--env", format!("PATH={}/bin:/usr/bin:/bin", cargo.display()))
        .option("--env", "CARGO_HOME=/tmp/cargo");
    let outcome = cargo_run(&run);
    assert_eq!(outcome.text(), "built\n", "{}", outcome.describe());
}

fn cargo_run(run: &BoxRun) -> tests::support::process::Outcome {
    run.run(&["cargo", "run", "--quiet", "--offline"]).unwrap()
}

/// `CARGO_HOME` and `RUSTUP_HOME`, if the user of this mode can read them.
fn homes(mode: Mode) -> Option<(PathBuf, PathBuf)> {
    let home = PathBuf::from(std::env::var_os("HOME")?);
    let path_of =
        |variable: &str, name: &str| std::env::var_os(variable).map_or_else(|| home.join(name), PathBuf::from);
    let (cargo, rustup) = (path_of("CARGO_HOME", ".cargo"), path_of("RUSTUP_HOME", ".rustup"));
    let readable = |path: &Path| {
        let mut command = mode.identity().command("test");
        command.arg("-r").arg(path);
        run(command, None).is_ok_and(|outcome| outcome.code() == Some(0))
    };
    (readable(&cargo.join("bin/cargo")) && readable(&rustup.join("toolchains"))).then_some((cargo, rustup))
}
