//! `--tty`: the command gets its own terminal, which forwards keys, size and output of the outer one. The
//! outer terminal is restored at the end. A Python script drives the outer terminal.

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::actor::Mode;
use tests::support::payload::PYTHON;
use tests::support::process::run;

use crate::modes::in_both_modes;
use crate::product::boxed;

in_both_modes!(
    all_three_streams_are_one_terminal,
    terminal_size_follows_the_outer_terminal,
    ctrl_c_interrupts_the_command,
    keys_are_echoed_once_and_lines_can_be_edited,
    exit_code_is_passed_on_with_a_terminal,
    signal_to_ringwall_ends_a_box_with_a_terminal,
    timeout_ends_a_box_with_a_terminal,
    terminal_is_restored_after_an_unknown_command,
    tty_flag_works_without_an_outer_terminal,
    command_has_no_terminal_without_the_flag,
);

const DRIVER: &str = include_str!("terminal_driver.py");

/// Runs the steps, checks that the outer terminal was restored, and returns the screen and the exit code.
fn drive(mode: Mode, flags: &[&str], command: &[&str], steps: &Value) -> (String, i64) {
    let mut driver = mode.identity().command(PYTHON);
    driver.args(["-I", "-c", DRIVER, &steps.to_string()]).arg(tests::support::boxed::binary().unwrap());
    driver.arg("run").args(flags).arg("--").args(command);
    let outcome = run(driver, None).unwrap();
    let seen: Value = serde_json::from_slice(&outcome.stdout).unwrap_or_else(|_| panic!("{}", outcome.describe()));
    assert_eq!(seen["missing"], json!(null), "a text did not appear on the screen: {seen}");
    assert_eq!(seen["restored"], json!(true), "the terminal was not restored: {seen}");
    let code = seen["code"].as_i64().unwrap_or_else(|| panic!("the program did not end: {seen}"));
    (seen["screen"].as_str().unwrap().to_owned(), code)
}

fn all_three_streams_are_one_terminal(mode: Mode) {
    let script = "tty; for n in 0 1 2; do test -t $n && readlink /proc/self/fd/$n; done; ls -1 /dev/pts; echo $TERM";
    let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", script], &json!([]));
    assert_eq!(code, 0, "{screen}");
    assert_eq!(screen.replace("\r\n", "\n"), format!("{}0\nptmx\nxterm-256color\n", "/dev/pts/0\n".repeat(4)));
}

fn terminal_size_follows_the_outer_terminal(mode: Mode) {
    let program = "
import os, signal, sys
def tell(*_): os.write(1, b'size %d %d\\n' % tuple(reversed(os.get_terminal_size(0))))
signal.signal(signal.SIGWINCH, tell)
tell()
sys.stdin.readline()
";
    let steps = json!([
        ["see", "size 31 97"],
        ["resize", 50, 133],
        ["see", "size 50 133"],
        ["resize", 9, 20],
        ["see", "size 9 20"],
        ["type", "\n"],
    ]);
    let (screen, code) = drive(mode, &["--tty"], &[PYTHON, "-c", program], &steps);
    assert_eq!(code, 0, "{screen}");
}

fn ctrl_c_interrupts_the_command(mode: Mode) {
    // The shell runs its trap after each short sleep, so it catches the signal at any time.
    let inner = "trap 'echo caught; exit 8' INT; echo ready; while :; do sleep 0.1; done";
    let steps = json!([["see", "ready"], ["type", "\u{3}"], ["see", "caught"]]);
    let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", inner], &steps);
    assert_eq!(code, 8, "{screen}");
    let steps = json!([["see", "ready"], ["type", "\u{3}"]]);
    let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", "echo ready; exec sleep 1000"], &steps);
    assert_eq!(code, 130, "{screen}");
}

/// Only the box's terminal echoes; the outer one is in raw mode.
fn keys_are_echoed_once_and_lines_can_be_edited(mode: Mode) {
    let steps = json!([["see", "ready"], ["type", "wrong\u{15}right\n"], ["see", "got right"]]);
    let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", "echo ready; read line; echo got $line"], &steps);
    assert_eq!(code, 0, "{screen}");
    assert_eq!(screen.matches("right").count(), 2, "{screen}");
    let steps = json!([["see", "ready"], ["type", "\u{4}"], ["see", "ended"]]);
    drive(mode, &["--tty"], &["sh", "-c", "echo ready; cat; echo ended"], &steps);
}

fn exit_code_is_passed_on_with_a_terminal(mode: Mode) {
    for (script, expected) in [("exit 0", 0), ("exit 42", 42), ("exit 255", 255), ("kill -9 $$", 137)] {
        let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", script], &json!([]));
        assert_eq!(code, expected, "{screen}");
    }
}

fn signal_to_ringwall_ends_a_box_with_a_terminal(mode: Mode) {
    for (signal, expected) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let steps = json!([["see", "ready"], ["signal", signal.as_raw()]]);
        let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", "echo ready; sleep 1000"], &steps);
        assert_eq!(code, expected, "{screen}");
    }
}

fn timeout_ends_a_box_with_a_terminal(mode: Mode) {
    let (screen, code) = drive(mode, &["--tty", "--timeout", "0.3"], &["sh", "-c", "sleep 1000"], &json!([]));
    assert_eq!(code, 124, "{screen}");
    assert!(screen.contains("ringwall: timed out after"), "{screen}");
}

fn terminal_is_restored_after_an_unknown_command(mode: Mode) {
    let (screen, code) = drive(mode, &["--tty"], &["no-such-program"], &json!([]));
    assert_eq!(code, 127, "{screen}");
    assert!(
        screen.contains("command not found in the box\r\n  hint: "),
        "the message is not at the margin: {screen:?}"
    );
}

fn tty_flag_works_without_an_outer_terminal(mode: Mode) {
    let outcome = run(boxed(mode).flag("--tty").command(&["sh", "-c", "tty; stty size"]), Some(b"")).unwrap();
    assert_eq!(outcome.code(), Some(0), "{}", outcome.describe());
    assert_eq!(outcome.text(), "/dev/pts/0\r\n24 80\r\n");
    let piped =
        run(boxed(mode).flag("--tty").command(&["sh", "-c", "read line; echo got $line"]), Some(b"piped\n")).unwrap();
    assert!(piped.text().contains("got piped"), "{}", piped.describe());
}

/// The command's streams are pipes, even if those of ringwall are a terminal.
fn command_has_no_terminal_without_the_flag(mode: Mode) {
    let script = "for n in 0 1 2; do test -t $n || echo no $n; done; tty; : < /dev/tty";
    let (screen, _) = drive(mode, &[], &["sh", "-c", script], &json!([]));
    // stdout and stderr are separate pipes, so their lines may be in any order.
    let lines: Vec<_> = screen.lines().filter(|line| !line.contains("/dev/tty")).collect();
    assert_eq!(lines, ["no 0", "no 1", "no 2", "not a tty"], "{screen}");
    assert!(screen.contains("/dev/tty"), "opening the terminal must fail: {screen}");
}
