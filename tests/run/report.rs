//! The JSON object of `ringwall run --json`.

use serde_json::{Value, json};
use tests::support::actor::Mode;
use tests::support::boxed::Report;
use tests::support::payload::PYTHON;
use tests::support::process::run;

use crate::modes::{as_root, in_both_modes};
use crate::product::{Marked, boxed, run_ringwall};

in_both_modes!(
    report_has_the_documented_fields,
    exit_code_and_signal_follow_the_ending,
    output_above_the_limit_is_truncated_and_counted,
    output_up_to_the_limit_is_complete,
    invalid_utf8_is_replaced_and_counted_as_bytes,
    standard_input_reaches_the_command,
    cpu_time_is_reported,
    every_protection_is_listed,
    limits_match_the_flags,
    failure_before_the_run_is_an_error_object,
    oom_kill_is_reported,
    closed_output_does_not_crash,
);
as_root!(peak_memory_is_reported);

fn report(mode: Mode, script: &str) -> Report {
    boxed(mode).report(&["sh", "-c", script]).unwrap()
}

fn keys(value: &Value) -> Vec<&str> {
    let mut keys: Vec<_> = value.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    keys
}

fn report_has_the_documented_fields(mode: Mode) {
    let report = report(mode, "printf out; printf err >&2; exit 3");
    assert_eq!(report.outcome.code(), Some(3));
    assert_eq!(report.outcome.errors(), "");
    assert_eq!(report.outcome.text().matches('\n').count(), 1, "one object on one line");
    let value = &report.value;
    assert_eq!(
        keys(value),
        [
            "duration_ms",
            "exit_code",
            "limits",
            "oom_killed",
            "protections",
            "setup",
            "signal",
            "stderr",
            "stderr_bytes",
            "stderr_truncated",
            "stdout",
            "stdout_bytes",
            "stdout_truncated",
            "timed_out",
            "usage",
        ]
    );
    for (field, expected) in [
        ("exit_code", json!(3)),
        ("signal", json!(null)),
        ("timed_out", json!(false)),
        ("oom_killed", json!(false)),
        ("stdout", json!("out")),
        ("stderr", json!("err")),
        ("stdout_bytes", json!(3)),
        ("stderr_bytes", json!(3)),
        ("stdout_truncated", json!(false)),
        ("stderr_truncated", json!(false)),
    ] {
        assert_eq!(value[field], expected, "{field}");
    }
    assert!(value["duration_ms"].is_u64() && value["setup"].is_array());
    assert_eq!(keys(&value["usage"]), ["cpu_ms", "peak_memory_bytes"]);
    assert!(value["usage"]["cpu_ms"].is_u64() && value["usage"]["peak_memory_bytes"].is_u64());
}

fn exit_code_and_signal_follow_the_ending(mode: Mode) {
    let killed = report(mode, "kill -9 $$");
    assert_eq!((&killed.value["exit_code"], &killed.value["signal"]), (&json!(null), &json!(9)));
    assert_eq!(killed.outcome.code(), Some(137));
    let late = boxed(mode).option("--timeout", "0.2").report(&["sleep", "1000"]).unwrap();
    assert_eq!((&late.value["exit_code"], &late.value["signal"]), (&json!(null), &json!(null)));
    assert_eq!((&late.value["timed_out"], late.outcome.code()), (&json!(true), Some(124)));
    assert!(late.number("/duration_ms").unwrap() >= 200);

    // With --json output is printed at the end, so the test waits for the command's process instead.
    let run = Marked::start(boxed(mode).flag("--json"), &["sleep", "1000"]);
    let deadline = std::time::Instant::now() + tests::support::process::DEADLINE;
    let asleep =
        |number: &u32| std::fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|name| name == "sleep\n");
    while !run.processes().iter().any(asleep) {
        assert!(std::time::Instant::now() < deadline, "the command did not start");
        std::thread::yield_now();
    }
    run.signal(rustix::process::Signal::TERM);
    let stopped = Report::read(run.finish()).unwrap();
    assert_eq!((&stopped.value["exit_code"], &stopped.value["signal"]), (&json!(null), &json!(15)));
    assert_eq!(stopped.outcome.code(), Some(143));
}

fn output_above_the_limit_is_truncated_and_counted(mode: Mode) {
    let report =
        report(mode, "head -c 5000000 /dev/zero | tr '\\0' x; head -c 2000000 /dev/zero | tr '\\0' e >&2; exit 4");
    assert_eq!(report.value["exit_code"], json!(4), "printing too much must not end the command");
    for (stream, letter, bytes) in [("stdout", "x", 5_000_000), ("stderr", "e", 2_000_000)] {
        assert_eq!(report.value[format!("{stream}_bytes")], json!(bytes));
        assert_eq!(report.value[format!("{stream}_truncated")], json!(true));
        assert_eq!(report.value[stream].as_str().unwrap(), letter.repeat(1 << 20), "the first MiB is kept");
    }
}

fn output_up_to_the_limit_is_complete(mode: Mode) {
    for (length, cut) in [((1 << 20) - 1, false), (1 << 20, false), ((1 << 20) + 1, true)] {
        let report = report(mode, &format!("head -c {length} /dev/zero | tr '\\0' x"));
        assert_eq!(report.number("/stdout_bytes"), Some(length));
        assert_eq!(report.is_set("stdout_truncated"), cut, "{length}");
        assert_eq!(report.stdout().len() as u64, length.min(1 << 20));
    }
}

fn invalid_utf8_is_replaced_and_counted_as_bytes(mode: Mode) {
    let report = boxed(mode).report(&["printf", r"a\377\0b"]).unwrap();
    assert_eq!((report.stdout(), report.number("/stdout_bytes")), ("a\u{fffd}\0b", Some(4)));
}

fn standard_input_reaches_the_command(mode: Mode) {
    let outcome = run(boxed(mode).flag("--json").command(&["tr", "a-z", "A-Z"]), Some(b"given")).unwrap();
    assert_eq!(Report::read(outcome).unwrap().stdout(), "GIVEN");
}

fn cpu_time_is_reported(mode: Mode) {
    let busy = "import time\nwhile time.process_time() < 0.5: pass";
    let report = boxed(mode).report(&[PYTHON, "-c", busy]).unwrap();
    let spent = report.number("/usage/cpu_ms").unwrap();
    assert!(spent >= 490, "{}", report.summary());
    assert!(report.number("/duration_ms").unwrap() >= 490, "{}", report.summary());
    // The CPU time of a child that was waited for is included.
    let child = format!("import subprocess, sys\nsubprocess.run([sys.executable, '-c', {busy:?}])");
    let report = boxed(mode).report(&[PYTHON, "-c", &child]).unwrap();
    assert!(report.number("/usage/cpu_ms").unwrap() >= 490, "{}", report.summary());
}

fn peak_memory_is_reported(mode: Mode) {
    let hungry = "block = bytearray(b'x' * 100_000_000)";
    let report = boxed(mode).report(&[PYTHON, "-c", hungry]).unwrap();
    let peak = report.number("/usage/peak_memory_bytes").unwrap();
    assert!((100_000_000..1 << 30).contains(&peak), "{}", report.summary());
}

fn every_protection_is_listed(mode: Mode) {
    let report = report(mode, "true");
    let listed = report.protections("");
    let names: Vec<_> = listed.iter().map(|(name, _, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "user_namespace",
            "mount_namespace",
            "pid_namespace",
            "network_namespace",
            "ipc_namespace",
            "uts_namespace",
            "cgroup_namespace",
            "no_capabilities",
            "no_new_privileges",
            "no_extra_groups",
            "seccomp",
            "landlock",
            "resource_limits",
            "memory_limit",
            "pids_limit",
            "cpu_limit",
            "io_limit",
            "open_files",
            "epoll_watches",
            "inotify_instances",
            "pending_signals",
            "pipe_pages",
            "passed_descriptors",
            "user_processes",
        ]
    );
    for (name, state, why) in listed {
        assert!(["enforced", "partial", "not_available"].contains(&state.as_str()), "{name}: {state}");
        assert_eq!(state == "enforced", why.is_empty(), "{name} is {state} because {why:?}");
    }
    for entry in report.value["protections"].as_array().unwrap() {
        assert_eq!(keys(entry), ["name", "state", "why"]);
    }
}

fn limits_match_the_flags(mode: Mode) {
    let flags = [("--timeout", "7.5"), ("--memory-mb", "321"), ("--cpus", "0.25"), ("--pids", "45")];
    let run = flags.iter().fold(boxed(mode), |run, (flag, value)| run.option(flag, value));
    let limits = &run.report(&["true"]).unwrap().value["limits"];
    for (field, expected) in
        [("timeout_ms", json!(7500)), ("memory_mb", json!(321)), ("cpu_cores", json!(0.25)), ("pids", json!(45))]
    {
        assert_eq!(limits[field], expected, "{field}");
    }
    let limits = &boxed(mode).report(&["true"]).unwrap().value["limits"];
    assert_eq!((&limits["timeout_ms"], &limits["max_stdout_bytes"]), (&json!(null), &json!(1 << 20)));
}

fn failure_before_the_run_is_an_error_object(mode: Mode) {
    let cases: [(&[&str], &str, i32); 7] = [
        (&["--timeout", "0", "--", "true"], "INVALID_ARGUMENT", 2),
        (&["--memory-mb", "x", "--", "true"], "INVALID_ARGUMENT", 2),
        (&["--workspace", "/no/such/place", "--", "true"], "INVALID_ARGUMENT", 2),
        (&["--workspace", "/proc", "--", "true"], "POLICY_DENIED", 2),
        (&["--cpus", "1000", "--", "true"], "POLICY_DENIED", 2),
        (&["--", "no-such-program"], "COMMAND_NOT_FOUND", 127),
        (&["--", "/etc/passwd"], "COMMAND_NOT_EXECUTABLE", 126),
    ];
    for (words, code, exit) in cases {
        let outcome = run_ringwall(mode, &[&["run", "--json"], words].concat());
        assert_eq!((outcome.code(), outcome.errors().as_str()), (Some(exit), ""), "{}", outcome.describe());
        let report = Report::read(outcome).unwrap();
        assert_eq!(keys(&report.value), ["error"]);
        assert_eq!(keys(&report.value["error"]), ["code", "hint", "message"]);
        assert_eq!(report.value["error"]["code"], json!(code), "{words:?}");
        assert!(report.value["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
        assert!(report.value["error"]["hint"].is_string() || report.value["error"]["hint"].is_null());
    }
}

fn oom_kill_is_reported(mode: Mode) {
    let hungry = "block = bytearray(b'x' * 300_000_000)\nimport time\ntime.sleep(1000)";
    let report = boxed(mode).option("--memory-mb", "100").report(&[PYTHON, "-c", hungry]).unwrap();
    assert!(report.is_set("oom_killed"), "{}", report.summary());
    assert_eq!(report.outcome.code(), Some(137), "{}", report.summary());
}

fn closed_output_does_not_crash(mode: Mode) {
    for words in [&["true"][..], &["no-such-program"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = boxed(mode).flag("--json").command(words);
        let output = command.stdin(std::process::Stdio::null()).stdout(writer).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("panicked"), "{words:?}: {} {errors}", output.status);
        assert_ne!(output.status.code(), Some(134), "{words:?}");
        // The same with a closed standard error, without the flag.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = boxed(mode).command(words);
        let status = command.stdin(std::process::Stdio::null()).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(if words == ["true"] { 0 } else { 127 }), "{words:?}");
    }
}
