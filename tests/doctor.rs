//! Black-box tests of `ringwall doctor`, as root and rootless: output, exit code, and no process left.
//!
//! Tests of a machine that cannot make boxes create the obstacle in new namespaces, with a control run
//! without it. A mode that cannot run on this machine is reported as ignored, with its reason.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use rustix::pty::OpenptFlags;
use serde_json::Value;
use tests::support::actor::{Identity, Mode, Skip};
use tests::support::process::{Outcome, run};
use tests::support::scratch::{Scratch, give};
use tests::support::{boxed, host};

type Verdict = Result<(), Failed>;
type Test = fn(&Doctor) -> Verdict;

const TESTS: &[(&str, Test)] = &[
    ("table_and_json_agree", table_and_json_agree),
    ("marks_follow_the_locale", marks_follow_the_locale),
    ("colours_are_for_terminals", colours_are_for_terminals),
    ("forbidden_namespaces_fail_with_the_setting_as_fix", forbidden_namespaces_fail_with_the_setting_as_fix),
    ("masked_proc_fails_with_a_fix", masked_proc_fails_with_a_fix),
    ("missing_true_command_is_replaced", missing_true_command_is_replaced),
    ("answering_docker_daemon_is_ok", answering_docker_daemon_is_ok),
    ("silent_docker_daemon_is_optional", silent_docker_daemon_is_optional),
    ("docker_socket_without_a_daemon_is_optional", docker_socket_without_a_daemon_is_optional),
];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each test checks that no process of the binary is left, so the tests must not run in parallel.
    arguments.test_threads.get_or_insert(1);
    let tests =
        Mode::ALL.into_iter().flat_map(|mode| TESTS.iter().map(move |(name, test)| new_test(mode, name, *test)));
    libtest_mimic::run(&arguments, tests.collect()).exit_code()
}

fn new_test(mode: Mode, name: &str, test: Test) -> Trial {
    Trial::ignorable_test(format!("{}::{name}", mode.name()), move || {
        match mode.available() {
            Ok(()) => {}
            Err(Skip::Impossible(reason)) => return Ok(Completion::ignored_with(reason)),
            Err(Skip::Missing(reason)) => return Err(reason.into()),
        }
        let doctor = Doctor::new(mode)?;
        test(&doctor)?;
        let left = host::running(&doctor.binary)?;
        check(left.is_empty(), || format!("processes are left behind: {left:?}"))?;
        Ok(Completion::Completed)
    })
}

/// A copy of the binary that every user can run, and a directory of the test's user.
struct Doctor {
    mode: Mode,
    binary: PathBuf,
    scratch: Scratch,
    _home: Scratch,
}

impl Doctor {
    fn new(mode: Mode) -> Result<Self, Failed> {
        let home = Scratch::new(Identity::Tester)?;
        let binary = home.file("ringwall", &std::fs::read(boxed::binary()?)?, 0o755)?;
        Ok(Doctor { mode, binary, scratch: Scratch::new(mode.identity())?, _home: home })
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = self.mode.identity().command(&self.binary);
        command.arg("doctor").args(flags);
        command
    }

    /// Runs the doctor in new namespaces after a shell script, which runs as root of them.
    fn run_after(&self, namespaces: &[&str], script: &str, flags: &[&str]) -> Result<Outcome, Failed> {
        let mut command = self.mode.identity().command("unshare");
        command.args(namespaces).args(["sh", "-ec", &format!("{script}\nexec \"$@\""), "sh"]);
        command.arg(&self.binary).arg("doctor").args(flags);
        Ok(run(command, None)?)
    }

    /// Runs with `--json`, checks that boxes can be made and returns the JSON object.
    fn healthy(&self, environment: &[(&str, &Path)]) -> Result<Value, Failed> {
        let mut command = self.command(&["--json"]);
        let values = environment.iter().map(|(name, path)| (name, format!("unix://{}", path.display())));
        command.envs(values);
        let outcome = run(command, None)?;
        check(outcome.code() == Some(0), || outcome.describe())?;
        json(&outcome)
    }
}

fn table_and_json_agree(doctor: &Doctor) -> Verdict {
    let table = run(doctor.command(&[]), None)?;
    check(table.code() == Some(0) && table.stderr.is_empty(), || table.describe())?;
    let report = doctor.healthy(&[])?;
    check(report["can_make_boxes"] == true, || report.to_string())?;
    check(report["mode"] == doctor.mode.name(), || report.to_string())?;
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    check(report["kernel"] == release.trim(), || report.to_string())?;

    let text = table.text();
    let checks = rows(&report)?;
    let drawn: Vec<_> = text.lines().filter_map(row).collect();
    check(drawn == checks, || format!("drawn {drawn:?}\nJSON  {checks:?}"))?;
    check(checks.contains(&("probe box".to_owned(), '+')), || text.clone())?;
    for name in ["seccomp", "landlock", "cgroups", "unprivileged user namespaces", "overlayfs", "docker", "chromium"] {
        check(checks.iter().any(|(found, _)| found == name), || format!("no row {name}"))?;
    }
    for entry in report["checks"].as_array().into_iter().flatten() {
        let lacks = entry["state"] == "partial" || entry["state"] == "missing";
        check(!lacks || entry["costs"].is_string(), || entry.to_string())?;
    }
    let last = text.lines().last().unwrap_or_default();
    let manner = match doctor.mode {
        Mode::Root => "as root",
        Mode::Rootless => "without root",
    };
    check(last.starts_with(&format!("Boxes can be made here, {manner}")), || last.to_owned())?;
    check(text.lines().all(|line| line.chars().count() <= 100), || text.clone())
}

fn marks_follow_the_locale(doctor: &Doctor) -> Verdict {
    let plain = run(doctor.command(&[]), None)?;
    check(plain.stdout.is_ascii() && plain.text().contains("\n+ probe box "), || plain.describe())?;
    let mut command = doctor.command(&[]);
    command.env("LC_ALL", "C.UTF-8");
    let marked = run(command, None)?;
    check(marked.text().contains("\n✓ probe box "), || marked.describe())?;
    check(!marked.stdout.contains(&0x1b), || "colours without a terminal".to_owned())
}

fn colours_are_for_terminals(doctor: &Doctor) -> Verdict {
    let mut command = doctor.command(&[]);
    command.env("TERM", "xterm");
    let shown = on_terminal(command)?;
    check(shown.contains("\x1b[32m+\x1b[0m probe box "), || format!("{shown:?}"))?;
    let mut command = doctor.command(&[]);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let shown = on_terminal(command)?;
    check(shown.contains("\n+ probe box ") && !shown.contains('\x1b'), || format!("{shown:?}"))
}

/// Runs a command on a terminal and returns its output.
fn on_terminal(mut command: Command) -> Result<String, Failed> {
    let outer = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    rustix::pty::unlockpt(&outer)?;
    let inner = rustix::pty::ioctl_tiocgptpeer(&outer, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    let mut child = command.stdin(Stdio::null()).stdout(inner).stderr(Stdio::null()).spawn()?;
    // `Command` keeps a copy of the inner end, with which the read would never end.
    drop(command);
    let mut shown = Vec::new();
    // The read ends with EIO when the last copy of the inner end is closed.
    let _ = File::from(outer).read_to_end(&mut shown);
    check(child.wait()?.success(), || String::from_utf8_lossy(&shown).into_owned())?;
    Ok(String::from_utf8_lossy(&shown).into_owned())
}

fn forbidden_namespaces_fail_with_the_setting_as_fix(doctor: &Doctor) -> Verdict {
    let close = "echo 0 > /proc/sys/user/max_user_namespaces";
    let control = doctor.run_after(&["-Ur"], "true", &[])?;
    check(control.code() == Some(0), || format!("control: {}", control.describe()))?;

    let table = doctor.run_after(&["-Ur"], close, &[])?;
    check(table.code() == Some(1), || table.describe())?;
    let text = table.text();
    for expected in ["x probe box ", "stopped at make_namespaces", "sysctl -w user.max_user_namespaces=15000"] {
        check(text.contains(expected), || format!("no {expected:?} in\n{text}"))?;
    }
    check(text.contains("\nNo box can be made here, without root: could not make the namespaces"), || text.clone())?;

    let outcome = doctor.run_after(&["-Ur"], close, &["--json"])?;
    check(outcome.code() == Some(1), || outcome.describe())?;
    let report = json(&outcome)?;
    check(report["can_make_boxes"] == false, || report.to_string())?;
    let probe_box = entry(&report, "trial_box")?;
    check(probe_box["state"] == "missing", || probe_box.to_string())?;
    check(probe_box["fix"].as_str().is_some_and(|fix| fix.contains("user.max_user_namespaces")), || {
        probe_box.to_string()
    })
}

/// As in most containers: with a mount over a part of /proc, the kernel refuses to mount another /proc.
fn masked_proc_fails_with_a_fix(doctor: &Doctor) -> Verdict {
    let control = doctor.run_after(&["-Urm"], "true", &[])?;
    check(control.code() == Some(0), || format!("control: {}", control.describe()))?;
    let outcome = doctor.run_after(&["-Urm"], "mount -t tmpfs none /proc/tty", &["--json"])?;
    check(outcome.code() == Some(1), || outcome.describe())?;
    let probe_box = entry(&json(&outcome)?, "trial_box")?;
    let says = |key: &str, part: &str| probe_box[key].as_str().is_some_and(|text| text.contains(part));
    check(says("detail", "stopped at build_root") && says("detail", "/proc"), || probe_box.to_string())?;
    check(says("fix", "systempaths=unconfined"), || probe_box.to_string())
}

/// If `/usr/bin/true` cannot be executed, the probe box runs another command.
fn missing_true_command_is_replaced(doctor: &Doctor) -> Verdict {
    let empty = doctor.scratch.file("empty", b"", 0o644)?;
    let cover = format!("mount --bind {} /usr/bin/true; test ! -x /usr/bin/true", empty.display());
    let outcome = doctor.run_after(&["-Urm"], &cover, &["--json"])?;
    check(outcome.code() == Some(0), || outcome.describe())?;
    let probe_box = entry(&json(&outcome)?, "trial_box")?;
    let detail = probe_box["detail"].as_str().unwrap_or_default().to_owned();
    check(probe_box["state"] == "ok" && !detail.contains("/usr/bin/true"), || probe_box.to_string())?;

    // If no command can be executed, the probe box still counts as started.
    let cover = format!("{cover}; mount --bind {} \"$(readlink -f /bin/sh)\"", empty.display());
    let outcome = doctor.run_after(&["-Urm"], &cover, &["--json"])?;
    check(outcome.code() == Some(0), || outcome.describe())?;
    let report = json(&outcome)?;
    let probe_box = entry(&report, "trial_box")?;
    check(probe_box["state"] == "partial", || probe_box.to_string())?;
    check(entry(&report, "seccomp")?["state"] == "ok", || report.to_string())
}

fn answering_docker_daemon_is_ok(doctor: &Doctor) -> Verdict {
    let (listener, socket) = listen(doctor)?;
    let daemon = std::thread::spawn(move || -> std::io::Result<String> {
        let (mut stream, _) = listener.accept()?;
        let mut request = vec![0; 4096];
        let length = stream.read(&mut request)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nApi-Version: 1.43\r\nContent-Length: 2\r\n\r\nOK")?;
        Ok(String::from_utf8_lossy(&request[..length]).into_owned())
    });
    let docker = entry(&doctor.healthy(&[("DOCKER_HOST", &socket)])?, "docker")?;
    check(docker["state"] == "ok", || docker.to_string())?;
    check(docker["detail"].as_str().is_some_and(|detail| detail.contains("API 1.43")), || docker.to_string())?;
    let request = daemon.join().map_err(|_| "the fake daemon panicked")??;
    check(request.starts_with("GET /_ping HTTP/1.1\r\n"), || request.clone())
}

fn silent_docker_daemon_is_optional(doctor: &Doctor) -> Verdict {
    let (_listener, socket) = listen(doctor)?;
    let docker = entry(&doctor.healthy(&[("DOCKER_HOST", &socket)])?, "docker")?;
    check(docker["state"] == "optional", || docker.to_string())?;
    check(docker["detail"].as_str().is_some_and(|detail| detail.contains("did not answer")), || docker.to_string())
}

fn docker_socket_without_a_daemon_is_optional(doctor: &Doctor) -> Verdict {
    let (listener, socket) = listen(doctor)?;
    drop(listener);
    let docker = entry(&doctor.healthy(&[("DOCKER_HOST", &socket)])?, "docker")?;
    check(docker["state"] == "optional", || docker.to_string())?;
    check(docker["detail"].as_str().is_some_and(|detail| detail.contains("no daemon listens")), || docker.to_string())
}

/// A listening socket of the test's user in the place of a Docker daemon's.
fn listen(doctor: &Doctor) -> Result<(UnixListener, PathBuf), Failed> {
    let socket = doctor.scratch.join("docker.sock");
    let listener = UnixListener::bind(&socket)?;
    give(&socket, doctor.mode.identity())?;
    Ok((listener, socket))
}

fn json(outcome: &Outcome) -> Result<Value, Failed> {
    serde_json::from_slice(&outcome.stdout).map_err(|error| format!("{error}: {}", outcome.describe()).into())
}

fn entry(report: &Value, name: &str) -> Result<Value, Failed> {
    let found = report["checks"].as_array().into_iter().flatten().find(|check| check["name"] == name);
    found.cloned().ok_or_else(|| format!("no check {name} in {report}").into())
}

/// Every check of the JSON as the table shows it: name with spaces, and mark.
fn rows(report: &Value) -> Result<Vec<(String, char)>, Failed> {
    let checks = report["checks"].as_array().ok_or("no checks")?;
    let row = |check: &Value| {
        let mark = match check["state"].as_str() {
            Some("ok") => '+',
            Some("partial") => '~',
            Some("missing") => 'x',
            Some("optional") => '-',
            _ => return Err(format!("unknown state in {check}").into()),
        };
        let name = match check["name"].as_str() {
            // The table shows the usual term; the JSON name is part of the API.
            Some("trial_box") => "probe box".to_owned(),
            Some(name) => name.replace('_', " "),
            None => return Err(format!("no name in {check}").into()),
        };
        Ok((name, mark))
    };
    checks.iter().map(row).collect()
}

/// Parses the first line of a row: a mark, a space, the name, and at least two spaces before the detail.
fn row(line: &str) -> Option<(String, char)> {
    let mut characters = line.chars();
    let mark = characters.next().filter(|mark| "+~x-".contains(*mark))?;
    let name = characters.as_str().strip_prefix(' ')?.split("  ").next()?;
    Some((name.to_owned(), mark))
}

fn check(condition: bool, message: impl FnOnce() -> String) -> Verdict {
    if condition { Ok(()) } else { Err(message().into()) }
}
