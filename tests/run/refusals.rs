//! Invalid input: exit code 2, an error that names the input, and nothing runs or is left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tests::support::actor::{Identity, Mode};
use tests::support::scratch::Scratch;

use crate::modes::in_both_modes;
use crate::product::{assert_refused, boxed, run_ringwall};

in_both_modes!(
    invalid_limits_are_refused,
    limits_above_the_machine_are_refused,
    unsuitable_directories_are_refused,
    system_directory_as_workspace_is_refused,
    unreadable_directory_is_refused,
    missing_and_invalid_image_names_are_refused,
    invalid_environment_variables_are_refused,
    invalid_command_lines_are_refused,
    required_protection_that_is_missing_refuses_the_run,
    refused_run_leaves_nothing_behind,
);

/// Flags and invalid values. The error must name the flag.
const ABSURD: [(&str, &[&str]); 4] = [
    ("--timeout", &["0", "-1", "-0", "abc", "", "1e300", "nan", "inf", "1s", "99999999999"]),
    ("--memory-mb", &["0", "-5", "1.5", "abc", "99999999999", "18446744073709551616", "1e300"]),
    ("--cpus", &["0", "-1", "abc", "nan", "inf", "0.0001", "1e300"]),
    ("--pids", &["0", "-1", "1.5", "abc", "99999999", "18446744073709551617"]),
];

fn invalid_limits_are_refused(mode: Mode) {
    let mut faults = Vec::new();
    for (flag, values) in ABSURD {
        for value in values {
            let outcome = run_ringwall(mode, &["run", flag, value, "--", "sh", "-c", "echo ran"]);
            let errors = outcome.errors();
            let sentences = errors.lines().filter(|line| line.starts_with("ringwall: ")).count();
            let refused = outcome.code() == Some(2) && outcome.text().is_empty();
            if !refused || sentences != 1 || !errors.contains(flag) {
                faults.push(format!("{flag} {value:?}: {}", outcome.describe()));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

fn limits_above_the_machine_are_refused(mode: Mode) {
    for (flag, value) in [("--cpus", "1000"), ("--memory-mb", "1000000000"), ("--pids", "4194304")] {
        let outcome = run_ringwall(mode, &["run", flag, value, "--", "true"]);
        // 4194304 is the largest pid_max of Linux, so a machine may allow that many processes.
        if flag == "--pids" && outcome.code() == Some(0) {
            let most = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap();
            assert_eq!(most.trim(), "4194304");
            continue;
        }
        assert_refused(&outcome, "allowed by this machine");
        assert!(outcome.errors().contains("\n  hint: ask for "), "{}", outcome.describe());
    }
}

fn unsuitable_directories_are_refused(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let file = scratch.file("file", b"", 0o644).unwrap();
    let missing = scratch.join("missing");
    std::os::unix::fs::symlink("nowhere", scratch.join("dangling")).unwrap();
    std::os::unix::fs::symlink("/proc", scratch.join("to-proc")).unwrap();
    std::os::unix::fs::symlink("endless", scratch.join("endless")).unwrap();
    let machine = "would expose system directories of the host to the box";
    let link = "is a symbolic link";
    let cases: [(&Path, &str); 12] = [
        (&missing, "does not exist"),
        (&scratch.join("dangling"), link),
        (&file, "is not a directory"),
        (&scratch.join("endless"), link),
        (&scratch.join("to-proc"), link),
        ("/".as_ref(), machine),
        ("/proc".as_ref(), machine),
        ("/proc/self/root".as_ref(), link),
        ("/etc".as_ref(), machine),
        ("/tmp/../etc".as_ref(), machine),
        ("/sys".as_ref(), machine),
        ("/dev/shm".as_ref(), machine),
    ];
    for flag in ["--workspace", "--ro"] {
        for (path, sentence) in cases {
            let outcome = boxed(mode).option(flag, path).run(&["sh", "-c", "echo ran"]).unwrap();
            assert_refused(&outcome, sentence);
        }
    }
    for path in ["/tmp", "/usr"] {
        let outcome = boxed(mode).option("--ro", path).run(&["sh", "-c", "echo ran"]).unwrap();
        assert_refused(&outcome, "hint: ");
    }
}

/// A writable system directory would let a box replace programs of the host.
fn system_directory_as_workspace_is_refused(mode: Mode) {
    for path in ["/usr", "/usr/bin", "/bin", "/lib", "/boot"] {
        let outcome = boxed(mode).option("--workspace", path).run(&["sh", "-c", "echo ran"]).unwrap();
        let is_link = Path::new(path).is_symlink();
        assert_refused(
            &outcome,
            if is_link { "is a symbolic link" } else { "would expose system directories of the host to the box" },
        );
    }
}

/// Root can read the directory, so as root the run may succeed.
fn unreadable_directory_is_refused(mode: Mode) {
    let scratch = Scratch::new(Identity::Tester).unwrap();
    let closed = scratch.directory("closed").unwrap();
    let inner = scratch.directory("closed/inner").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    for (flag, path) in [("--workspace", &closed), ("--workspace", &inner), ("--ro", &closed), ("--ro", &inner)] {
        let outcome = boxed(mode).option(flag, path).run(&["sh", "-c", "echo ran"]).unwrap();
        match mode {
            Mode::Rootless => {
                assert_refused(&outcome, "cannot be read by this user");
                assert!(outcome.errors().contains("\n  hint: "), "{}", outcome.describe());
            }
            Mode::Root => assert!(matches!(outcome.code(), Some(0 | 2)), "{}", outcome.describe()),
        }
    }
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
}

fn missing_and_invalid_image_names_are_refused(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let data = scratch.join("data");
    for (name, sentence) in [
        ("missing", "there is no image named `missing`"),
        ("../escape", "is not an image name"),
        ("UPPER", "is not an image name"),
        ("", "is not an image name"),
        (".hidden", "is not an image name"),
    ] {
        for words in [vec!["run", "--image", name, "--", "true"], vec!["image", "rm", name]] {
            let outcome = run_ringwall(mode, &[&["--data", data.to_str().unwrap()], words.as_slice()].concat());
            assert_refused(&outcome, sentence);
        }
    }
    assert!(!data.exists(), "a missing image created the data directory");
}

fn invalid_environment_variables_are_refused(mode: Mode) {
    for pair in ["NAME", "", "=value"] {
        let outcome = boxed(mode).option("--env", pair).run(&["sh", "-c", "echo ran"]).unwrap();
        assert_refused(&outcome, "ringwall: ");
    }
}

fn invalid_command_lines_are_refused(mode: Mode) {
    let cases: [&[&str]; 10] = [
        &["run"],
        &["run", "--"],
        &["run", "--", ""],
        &["run", "--no-such-flag", "--", "true"],
        &["run", "--tty", "--json", "--", "true"],
        &["run", "--timeout"],
        &["run", "--require", "luck", "--", "true"],
        &["run", "--hold-at", "never", "--", "true"],
        &["no-such-verb"],
        &["image", "import", "name"],
    ];
    for words in cases {
        let outcome = run_ringwall(mode, words);
        assert_eq!(outcome.code(), Some(2), "{words:?}: {}", outcome.describe());
        assert_eq!(outcome.text(), "", "{words:?}");
        assert!(!outcome.errors().is_empty(), "{words:?}");
        assert!(!outcome.errors().contains("panicked"), "{words:?}: {}", outcome.describe());
    }
}

fn required_protection_that_is_missing_refuses_the_run(mode: Mode) {
    let report = boxed(mode).report(&["true"]).unwrap();
    for (requirement, protection) in [
        ("landlock", "landlock"),
        ("memory", "memory_limit"),
        ("pids", "pids_limit"),
        ("cpu", "cpu_limit"),
        ("io", "io_limit"),
        ("open_files", "open_files"),
    ] {
        let (_, state, _) = report.protections(protection).remove(0);
        let outcome = boxed(mode).option("--require", requirement).run(&["sh", "-c", "echo ran"]).unwrap();
        match (state.as_str(), protection) {
            ("enforced", _) | ("partial", "landlock") => assert_eq!(outcome.text(), "ran\n", "{}", outcome.describe()),
            _ => assert_refused(&outcome, "(required by the policy)"),
        }
    }
}

fn refused_run_leaves_nothing_behind(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let run = boxed(mode).workspace(scratch.path()).option("--memory-mb", "0");
    let outcome = crate::product::Marked::start(run, &["sh", "-c", "echo ran > ran"]).finish();
    assert_eq!(outcome.code(), Some(2));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0);
}
