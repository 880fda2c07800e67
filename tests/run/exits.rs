//! Exit codes: the command's own, 128 + N for signal N, 126 and 127 for a command that did not start.

use tests::support::actor::Mode;
use tests::support::scratch::Scratch;

use crate::modes::in_both_modes;
use crate::product::{Marked, boxed, run_ringwall};

in_both_modes!(
    exit_code_of_the_command_is_passed_on,
    signal_exits_with_128_plus_its_number,
    signals_from_the_box_to_pid_1_are_ignored,
    unknown_command_exits_with_127,
    too_long_command_name_is_refused,
    file_without_execute_permission_exits_with_126,
    invalid_program_exits_with_126_or_127,
    path_search_skips_files_that_are_not_executable,
    children_are_killed_when_the_command_ends,
);

fn exit_code_of_the_command_is_passed_on(mode: Mode) {
    for code in [0, 1, 2, 42, 124, 126, 127, 255] {
        let outcome = boxed(mode).run(&["sh", "-c", &format!("exit {code}")]).unwrap();
        assert_eq!(outcome.code(), Some(code));
        assert_eq!((outcome.text(), outcome.errors()), (String::new(), String::new()));
    }
}

fn signal_exits_with_128_plus_its_number(mode: Mode) {
    for (signal, code) in [(1, 129), (6, 134), (9, 137), (11, 139), (15, 143)] {
        let outcome = boxed(mode).run(&["sh", "-c", &format!("kill -{signal} $$")]).unwrap();
        assert_eq!(outcome.code(), Some(code), "{}", outcome.describe());
    }
}

fn signals_from_the_box_to_pid_1_are_ignored(mode: Mode) {
    let script = "for signal in TERM INT HUP KILL; do kill -$signal 1; done; exit 5";
    let outcome = boxed(mode).run(&["sh", "-c", script]).unwrap();
    assert_eq!(outcome.code(), Some(5), "{}", outcome.describe());
}

fn unknown_command_exits_with_127(mode: Mode) {
    for command in ["no-such-program", "/no/such/program", "./missing"] {
        let outcome = run_ringwall(mode, &["run", "--", command]);
        assert_eq!(outcome.code(), Some(127), "{}", outcome.describe());
        assert_eq!(outcome.text(), "");
        assert!(outcome.errors().starts_with(&format!("ringwall: {command}: ")), "{}", outcome.describe());
        assert!(outcome.errors().contains("\n  hint: "), "{}", outcome.describe());
    }
}

/// PID 1 reports the path that it tried in a message of limited length.
fn too_long_command_name_is_refused(mode: Mode) {
    for name in ["a".repeat(20_000), format!("/{}", "a".repeat(20_000))] {
        let outcome = boxed(mode).run(&[name.as_str()]).unwrap();
        assert!(matches!(outcome.code(), Some(126 | 127)), "exit {:?}", outcome.code());
        assert!(outcome.errors().starts_with("ringwall: ") && outcome.errors().contains("in the box"));
    }
}

fn file_without_execute_permission_exits_with_126(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    scratch.file("script", b"#!/bin/sh\necho ran\n", 0o644).unwrap();
    scratch.directory("directory").unwrap();
    for command in ["./script", "./directory", "/etc/passwd"] {
        let outcome = boxed(mode).workspace(scratch.path()).run(&[command]).unwrap();
        assert_eq!(outcome.code(), Some(126), "{}", outcome.describe());
        assert!(outcome.errors().contains("Permission denied"), "{}", outcome.describe());
        assert!(outcome.errors().contains("\n  hint: "), "{}", outcome.describe());
    }
}

fn invalid_program_exits_with_126_or_127(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    scratch.file("garbage", &[0x13; 64], 0o755).unwrap();
    scratch.file("empty", b"", 0o755).unwrap();
    scratch.file("no-interpreter", b"#!/no/such/shell\n", 0o755).unwrap();
    for (command, code) in [("./garbage", 126), ("./empty", 126), ("./no-interpreter", 127)] {
        let outcome = boxed(mode).workspace(scratch.path()).run(&[command]).unwrap();
        assert_eq!(outcome.code(), Some(code), "{}", outcome.describe());
        assert!(outcome.errors().contains("\n  hint: "), "{}", outcome.describe());
    }
}

fn path_search_skips_files_that_are_not_executable(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    for directory in ["first", "second"] {
        scratch.directory(directory).unwrap();
    }
    scratch.file("first/tool", b"#!/bin/sh\necho first\n", 0o644).unwrap();
    let path = "PATH=/workspace/missing:/workspace/first:/workspace/second:/usr/bin:/bin";
    let run = boxed(mode).workspace(scratch.path()).option("--env", path);
    assert_eq!(run.run(&["tool"]).unwrap().code(), Some(126));
    scratch.file("second/tool", b"#!/bin/sh\necho second\n", 0o755).unwrap();
    assert_eq!(run.run(&["tool"]).unwrap().text(), "second\n");
}

fn children_are_killed_when_the_command_ends(mode: Mode) {
    // The second one has another session and process group; the third ignores TERM, INT and HUP.
    let script = "sleep 1000 & setsid sleep 1000 & (trap '' TERM INT HUP; while :; do sleep 1000; done) & exit 6";
    let outcome = Marked::start(boxed(mode), &["sh", "-c", script]).finish();
    assert_eq!(outcome.code(), Some(6), "{}", outcome.describe());
}
