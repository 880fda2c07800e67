//! `--tty`: the command gets a terminal of its own, as large as ours and resized with it; keys reach it, and ours is
//! given back as it was. A Python script plays the person in front of it.

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::actor::Mode;
use tests::support::payload::PYTHON;
use tests::support::process::run;

use crate::modes::in_both_modes;
use crate::product::boxed;

in_both_modes!(
    all_three_streams_are_one_terminal,
    it_is_as_large_as_ours_and_follows,
    ctrl_c_interrupts_what_runs_inside,
    keys_are_seen_once_and_lines_can_be_edited,
    the_exit_code_passes,
    a_signal_to_the_product_ends_it_too,
    the_time_limit_holds_there_too,
    an_unknown_command_gives_the_terminal_back,
    without_a_terminal_of_ours_it_still_has_one,
    without_the_flag_there_is_none,
);

const DRIVER: &str = include_str!("terminal_driver.py");

/// What was seen: the screen, the exit code, and that our terminal is as it was.
fn drive(mode: Mode, flags: &[&str], command: &[&str], steps: &Value) -> (String, i64) {
    let mut driver = mode.identity().command(PYTHON);
    driver.args(["-I", "-c", DRIVER, &steps.to_string()]).arg(tests::support::boxed::binary().unwrap());
    driver.arg("run").args(flags).arg("--").args(command);
    let outcome = run(driver, None).unwrap();
    let seen: Value = serde_json::from_slice(&outcome.stdout).unwrap_or_else(|_| panic!("{}", outcome.describe()));
    assert_eq!(seen["missing"], json!(null), "never on the screen: {seen}");
    assert_eq!(seen["restored"], json!(true), "the terminal was left changed: {seen}");
    let code = seen["code"].as_i64().unwrap_or_else(|| panic!("it did not end: {seen}"));
    (seen["screen"].as_str().unwrap().to_owned(), code)
}

fn all_three_streams_are_one_terminal(mode: Mode) {
    let script = "tty; for n in 0 1 2; do test -t $n && readlink /proc/self/fd/$n; done; ls -1 /dev/pts; echo $TERM";
    let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", script], &json!([]));
    assert_eq!(code, 0, "{screen}");
    assert_eq!(screen.replace("\r\n", "\n"), format!("{}0\nptmx\nxterm-256color\n", "/dev/pts/0\n".repeat(4)));
}

fn it_is_as_large_as_ours_and_follows(mode: Mode) {
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

fn ctrl_c_interrupts_what_runs_inside(mode: Mode) {
    // The shell runs its trap when the short sleep is over; whatever the key hits, it cannot be missed.
    let inner = "trap 'echo caught; exit 8' INT; echo ready; while :; do sleep 0.1; done";
    let steps = json!([["see", "ready"], ["type", "\u{3}"], ["see", "caught"]]);
    let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", inner], &steps);
    assert_eq!(code, 8, "{screen}");
    let steps = json!([["see", "ready"], ["type", "\u{3}"]]);
    let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", "echo ready; exec sleep 1000"], &steps);
    assert_eq!(code, 130, "{screen}");
}

/// Echo comes from the box's terminal alone: ours must not add a second one.
fn keys_are_seen_once_and_lines_can_be_edited(mode: Mode) {
    let steps = json!([["see", "ready"], ["type", "wrong\u{15}right\n"], ["see", "got right"]]);
    let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", "echo ready; read line; echo got $line"], &steps);
    assert_eq!(code, 0, "{screen}");
    assert_eq!(screen.matches("right").count(), 2, "{screen}");
    let steps = json!([["see", "ready"], ["type", "\u{4}"], ["see", "ended"]]);
    drive(mode, &["--tty"], &["sh", "-c", "echo ready; cat; echo ended"], &steps);
}

fn the_exit_code_passes(mode: Mode) {
    for (script, expected) in [("exit 0", 0), ("exit 42", 42), ("exit 255", 255), ("kill -9 $$", 137)] {
        let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", script], &json!([]));
        assert_eq!(code, expected, "{screen}");
    }
}

fn a_signal_to_the_product_ends_it_too(mode: Mode) {
    for (signal, expected) in [(Signal::TERM, 143), (Signal::HUP, 129)] {
        let steps = json!([["see", "ready"], ["signal", signal.as_raw()]]);
        let (screen, code) = drive(mode, &["--tty"], &["sh", "-c", "echo ready; sleep 1000"], &steps);
        assert_eq!(code, expected, "{screen}");
    }
}

fn the_time_limit_holds_there_too(mode: Mode) {
    let (screen, code) = drive(mode, &["--tty", "--timeout", "0.3"], &["sh", "-c", "sleep 1000"], &json!([]));
    assert_eq!(code, 124, "{screen}");
    assert!(screen.contains("ringwall: timed out after"), "{screen}");
}

fn an_unknown_command_gives_the_terminal_back(mode: Mode) {
    let (screen, code) = drive(mode, &["--tty"], &["no-such-program"], &json!([]));
    assert_eq!(code, 127, "{screen}");
    assert!(
        screen.contains("command not found in the box\r\n  hint: "),
        "the message is not at the margin: {screen:?}"
    );
}

fn without_a_terminal_of_ours_it_still_has_one(mode: Mode) {
    let outcome = run(boxed(mode).flag("--tty").command(&["sh", "-c", "tty; stty size"]), Some(b"")).unwrap();
    assert_eq!(outcome.code(), Some(0), "{}", outcome.describe());
    assert_eq!(outcome.text(), "/dev/pts/0\r\n24 80\r\n");
    let piped =
        run(boxed(mode).flag("--tty").command(&["sh", "-c", "read line; echo got $line"]), Some(b"piped\n")).unwrap();
    assert!(piped.text().contains("got piped"), "{}", piped.describe());
}

/// Even when ours is one: the command's streams are pipes.
fn without_the_flag_there_is_none(mode: Mode) {
    let script = "for n in 0 1 2; do test -t $n || echo no $n; done; tty; : < /dev/tty";
    let (screen, _) = drive(mode, &[], &["sh", "-c", script], &json!([]));
    // Output and errors are streams of their own and may overtake each other.
    let told: Vec<_> = screen.lines().filter(|line| !line.contains("/dev/tty")).collect();
    assert_eq!(told, ["no 0", "no 1", "no 2", "not a tty"], "{screen}");
    assert!(screen.contains("/dev/tty"), "opening the terminal must fail: {screen}");
}
