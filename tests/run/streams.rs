//! Standard input, output and error of `ringwall run`, with readers that are slow, silent or closed.

use std::io::{Read, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tests::support::actor::Mode;
use tests::support::process::run;

use crate::modes::in_both_modes;
use crate::product::boxed;

in_both_modes!(
    ten_megabytes_pass_both_ways_unchanged,
    output_is_passed_byte_for_byte,
    standard_error_is_a_separate_stream,
    end_of_input_reaches_the_command,
    open_input_does_not_delay_the_exit,
    closed_stdout_ends_the_command_with_sigpipe,
    closed_stderr_ends_the_command_with_sigpipe,
    slow_reader_gets_every_byte,
    closed_standard_descriptors_do_not_hang,
    background_processes_do_not_keep_the_streams_open,
    reader_that_never_reads_does_not_delay_the_timeout,
    reader_that_never_reads_does_not_delay_a_signal,
    write_error_of_output_is_reported,
    stdout_and_stderr_in_one_file_lose_nothing,
);

/// Pseudo-random bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn ten_megabytes_pass_both_ways_unchanged(mode: Mode) {
    let sent = noise(10 << 20);
    let outcome = run(boxed(mode).command(&["cat"]), Some(&sent)).unwrap();
    assert_eq!(outcome.code(), Some(0));
    assert_eq!(outcome.stdout.len(), sent.len());
    assert!(outcome.stdout == sent, "the output differs from the input");
    assert_eq!(outcome.errors(), "");
}

fn output_is_passed_byte_for_byte(mode: Mode) {
    let outcome = boxed(mode).run(&["printf", r"a\0b\377\r\n\033[0mc"]).unwrap();
    assert_eq!(outcome.stdout, b"a\0b\xff\r\n\x1b[0mc");
}

fn standard_error_is_a_separate_stream(mode: Mode) {
    let outcome = boxed(mode).run(&["sh", "-c", "printf one; printf two >&2; printf three"]).unwrap();
    assert_eq!((outcome.text().as_str(), outcome.errors().as_str()), ("onethree", "two"));
}

fn end_of_input_reaches_the_command(mode: Mode) {
    for input in [Stdio::null(), std::fs::File::open("/dev/null").unwrap().into()] {
        let mut command = boxed(mode).command(&["sh", "-c", "wc -c; echo after"]);
        let output = command.stdin(input).output().unwrap();
        assert_eq!(output.stdout, b"0\nafter\n");
    }
}

fn open_input_does_not_delay_the_exit(mode: Mode) {
    let mut child = boxed(mode).command(&["sh", "-c", "exit 7"]).stdin(Stdio::piped()).spawn().unwrap();
    let kept_open = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(7));
    drop(kept_open);
}

fn closed_stdout_ends_the_command_with_sigpipe(mode: Mode) {
    let mut child = boxed(mode).command(&["yes"]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 2];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"y\n");
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
}

fn closed_stderr_ends_the_command_with_sigpipe(mode: Mode) {
    let mut child = boxed(mode).command(&["sh", "-c", "exec yes >&2"]);
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    child.stderr.take().unwrap().read_exact(&mut [0; 2]).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(128 + 13));
}

fn slow_reader_gets_every_byte(mode: Mode) {
    const LENGTH: usize = 3_000_000;
    let script = format!("head -c {LENGTH} /dev/zero; echo done >&2");
    let mut child = boxed(mode).command(&["sh", "-c", &script]);
    let mut child = child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut output, mut piece, mut total) = (child.stdout.take().unwrap(), [0; 1000], 0);
    loop {
        match output.read(&mut piece).unwrap() {
            0 => break,
            count => total += count,
        }
        std::thread::yield_now();
    }
    assert_eq!(total, LENGTH);
    let mut errors = String::new();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(errors, "done\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

fn closed_standard_descriptors_do_not_hang(mode: Mode) {
    let closing = "import os, sys\nos.close(1)\nos.close(0)\nos.execv(sys.argv[1], sys.argv[1:])";
    let outcome = boxed(mode).through(closing, &[]).run(&["sh", "-c", "echo lost; echo seen >&2; exit 3"]).unwrap();
    assert_ne!(outcome.code(), None, "{}", outcome.describe());
    assert!(!outcome.text().contains("lost"), "{}", outcome.describe());
}

fn background_processes_do_not_keep_the_streams_open(mode: Mode) {
    let mut child = boxed(mode).command(&["sh", "-c", "sleep 1000 & read line; echo \"$line\""]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"over\n").unwrap();
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "over\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Far above the grace period of 1 s after a signal.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The exit code, or `None` after [`TIMEOUT`]; then the process is killed.
fn code_of(mut child: Child) -> Option<i32> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

fn reader_that_never_reads_does_not_delay_the_timeout(mode: Mode) {
    let mut command = boxed(mode).option("--timeout", "0.5").command(&["yes"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let unread = child.stdout.take();
    assert_eq!(code_of(child), Some(124), "the product waits for its reader");
    drop(unread);
}

fn reader_that_never_reads_does_not_delay_a_signal(mode: Mode) {
    let mut command = boxed(mode).command(&["yes"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut unread = child.stdout.take().unwrap();
    unread.read_exact(&mut [0; 2]).unwrap();
    // The pipe is full: from here on every write of ringwall blocks.
    let capacity = u64::try_from(rustix::pipe::fcntl_getpipe_size(&unread).unwrap()).unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while rustix::io::ioctl_fionread(&unread).unwrap() + 4096 < capacity && Instant::now() < deadline {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(code_of(child), Some(143), "the product waits for its reader");
    drop(unread);
}

/// A write to `/dev/full` fails with ENOSPC.
fn write_error_of_output_is_reported(mode: Mode) {
    for flags in [&[][..], &["--json"]] {
        let run = flags.iter().fold(boxed(mode), |run, flag| run.flag(flag));
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = run.command(&["echo", "lost"]).stdin(Stdio::null()).stdout(full).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{flags:?}: success, with {errors:?}");
        assert!(errors.starts_with("ringwall: ") && !errors.contains("panicked"), "{flags:?}: {errors}");
    }
}

/// Both streams are copied by different threads, but the file has one position for both.
fn stdout_and_stderr_in_one_file_lose_nothing(mode: Mode) {
    let mut file = tempfile::tempfile().unwrap();
    let script = "for i in 1 2 3 4 5; do echo out$i; echo err$i >&2; sleep 0.02; done";
    let mut command = boxed(mode).command(&["sh", "-c", script]);
    let status = command
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file.try_clone().unwrap())
        .status()
        .unwrap();
    assert!(status.success());
    let mut text = String::new();
    std::io::Seek::rewind(&mut file).unwrap();
    std::io::Read::read_to_string(&mut file, &mut text).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    let expected: Vec<_> = ["err", "out"].iter().flat_map(|word| (1..=5).map(move |i| format!("{word}{i}"))).collect();
    assert_eq!(lines, expected);
}
