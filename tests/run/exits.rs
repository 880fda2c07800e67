//! The exit code is the command's, or what a shell would say of its end; what never ran is told apart by 126 and 127.

use tests::support::actor::Mode;
use tests::support::scratch::Scratch;

use crate::modes::in_both_modes;
use crate::product::{Marked, boxed, say};

in_both_modes!(
    the_code_is_the_commands,
    a_signal_adds_128,
    a_signal_from_inside_to_the_first_process_means_nothing,
    an_unknown_command_is_127,
    a_name_longer_than_any_path_is_no_crash,
    what_is_not_executable_is_126,
    what_is_no_program_is_126,
    the_search_goes_on_past_what_may_not_run,
    the_end_of_the_command_is_the_end_of_its_children,
);

fn the_code_is_the_commands(mode: Mode) {
    for code in [0, 1, 2, 42, 124, 126, 127, 255] {
        let outcome = boxed(mode).run(&["sh", "-c", &format!("exit {code}")]).unwrap();
        assert_eq!(outcome.code(), Some(code));
        assert_eq!((outcome.text(), outcome.errors()), (String::new(), String::new()));
    }
}

fn a_signal_adds_128(mode: Mode) {
    for (signal, code) in [(1, 129), (6, 134), (9, 137), (11, 139), (15, 143)] {
        let outcome = boxed(mode).run(&["sh", "-c", &format!("kill -{signal} $$")]).unwrap();
        assert_eq!(outcome.code(), Some(code), "{}", outcome.describe());
    }
}

fn a_signal_from_inside_to_the_first_process_means_nothing(mode: Mode) {
    let script = "for signal in TERM INT HUP KILL; do kill -$signal 1; done; exit 5";
    let outcome = boxed(mode).run(&["sh", "-c", script]).unwrap();
    assert_eq!(outcome.code(), Some(5), "{}", outcome.describe());
}

fn an_unknown_command_is_127(mode: Mode) {
    for command in ["no-such-program", "/no/such/program", "./missing"] {
        let outcome = say(mode, &["run", "--", command]);
        assert_eq!(outcome.code(), Some(127), "{}", outcome.describe());
        assert_eq!(outcome.text(), "");
        assert!(outcome.errors().starts_with(&format!("ringwall: {command}: ")), "{}", outcome.describe());
        assert!(outcome.errors().contains("\n  hint: "), "{}", outcome.describe());
    }
}

/// What was tried goes into a message of bounded length.
fn a_name_longer_than_any_path_is_no_crash(mode: Mode) {
    for name in ["a".repeat(20_000), format!("/{}", "a".repeat(20_000))] {
        let outcome = boxed(mode).run(&[name.as_str()]).unwrap();
        assert!(matches!(outcome.code(), Some(126 | 127)), "exit {:?}", outcome.code());
        assert!(outcome.errors().starts_with("ringwall: ") && outcome.errors().contains("in the box"));
    }
}

fn what_is_not_executable_is_126(mode: Mode) {
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

fn what_is_no_program_is_126(mode: Mode) {
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

fn the_search_goes_on_past_what_may_not_run(mode: Mode) {
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

fn the_end_of_the_command_is_the_end_of_its_children(mode: Mode) {
    // The second one has left the session and the process group; a loop ignores every polite signal.
    let script = "sleep 1000 & setsid sleep 1000 & (trap '' TERM INT HUP; while :; do sleep 1000; done) & exit 6";
    let outcome = Marked::start(boxed(mode), &["sh", "-c", script]).finish();
    assert_eq!(outcome.code(), Some(6), "{}", outcome.describe());
}
