//! The command inherits no descriptor, variable, directory, umask, ignored signal or I/O priority of the
//! process that starts `ringwall run`. Most tests set the attribute in that process first.

use std::ffi::OsStr;

use tests::support::actor::Mode;
use tests::support::host::{descendants, field};
use tests::support::payload::WITH_OPEN_DESCRIPTORS;
use tests::support::scratch::{Scratch, token};

use crate::modes::in_both_modes;
use crate::product::{boxed, shell};

in_both_modes!(
    no_descriptor_is_inherited,
    no_variable_is_inherited,
    pid_1_has_no_arguments_or_environment_of_its_parent,
    working_directory_is_the_workspace,
    umask_is_not_inherited,
    no_signal_is_ignored_or_blocked,
    command_leads_its_own_session,
    io_priority_is_not_inherited,
    hard_core_limit_of_zero_is_raised_or_reported,
);

fn no_descriptor_is_inherited(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let file = scratch.file("open", b"secret", 0o644).unwrap();
    let run = boxed(mode).through(WITH_OPEN_DESCRIPTORS, &[file.as_os_str()]);
    // Descriptor 3 is the directory that `ls` reads.
    assert_eq!(shell(&run, "ls /proc/self/fd"), "0\n1\n2\n3\n");
    assert_eq!(shell(&run, "readlink /proc/self/fd/* | sed 's/[0-9]//g' | sort -u"), "pipe:[]\n");
}

fn no_variable_is_inherited(mode: Mode) {
    let run = boxed(mode).host_variable("MARK", &token().unwrap()).host_variable("LD_PRELOAD_NOT", "x");
    let mut names: Vec<_> = run.run(&["env", "-0"]).unwrap().text().split_terminator('\0').map(str::to_owned).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "HOME=/home/sandbox",
            "LANG=C.UTF-8",
            "LOGNAME=sandbox",
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "SHELL=/bin/sh",
            "USER=sandbox",
        ]
    );
}

/// PID 1 of the box is a process of the ringwall binary, whose arguments and environment may contain
/// secrets.
fn pid_1_has_no_arguments_or_environment_of_its_parent(mode: Mode) {
    let mark = token().unwrap();
    let run = boxed(mode).host_variable("MARK", &mark).option("--env", format!("OTHER={mark}"));
    let mut live = run.start(&["sh", "-c", "tr '\\0' ' ' < /proc/1/cmdline; echo; cat"]).unwrap();
    let shown = live.line().unwrap();
    assert_eq!(shown.trim_end(), "ringwall-jail");
    let starter = std::fs::read(format!("/proc/{}/environ", live.id())).unwrap();
    assert!(contains(&starter, &mark), "control: the parent's environment does not contain the mark");
    for keeper in descendants(live.id()).unwrap() {
        let is_pid_1 = field(keeper, "NSpid").is_some_and(|numbers| numbers.ends_with("\t1"));
        if is_pid_1 && field(keeper, "Name").is_some_and(|name| name == "ringwall-jail") {
            for file in ["environ", "cmdline"] {
                let kept = std::fs::read(format!("/proc/{keeper}/{file}")).unwrap();
                assert!(!contains(&kept, &mark), "{file} of PID 1 contains the parent's");
            }
            live.finish().unwrap();
            return;
        }
    }
    panic!("no PID 1 was found");
}

fn contains(bytes: &[u8], mark: &str) -> bool {
    bytes.windows(mark.len()).any(|window| window == mark.as_bytes())
}

fn working_directory_is_the_workspace(mode: Mode) {
    assert_eq!(shell(&boxed(mode), "pwd; /bin/pwd -P; readlink /proc/self/cwd"), "/workspace\n".repeat(3));
}

fn umask_is_not_inherited(mode: Mode) {
    let run = boxed(mode).through("import os, sys\nos.umask(0o777)\nos.execv(sys.argv[1], sys.argv[1:])", &[]);
    assert_eq!(shell(&run, "umask; : > a; mkdir b; stat -c %a a b"), "0022\n644\n755\n");
}

fn no_signal_is_ignored_or_blocked(mode: Mode) {
    const DEAF: &str = r"
import os, signal, sys
everything = set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}
for number in everything:
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, everything)
os.execv(sys.argv[1], sys.argv[1:])
";
    for run in [boxed(mode), boxed(mode).through(DEAF, &[] as &[&OsStr])] {
        let text = shell(&run, "exec cat /proc/self/status");
        for field in ["SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"] {
            let line = text.lines().find(|line| line.starts_with(field)).unwrap();
            assert_eq!(line, format!("{field}:\t0000000000000000"));
        }
    }
}

fn command_leads_its_own_session(mode: Mode) {
    // Fields 1, 5, 6 and 7 of stat: PID, process group, session, terminal.
    let text = shell(&boxed(mode), "exec cut -d' ' -f1,5,6,7 /proc/self/stat");
    let words: Vec<_> = text.split_whitespace().collect();
    assert_eq!(words, [words[0], words[0], words[0], "0"]);
}

/// The control shows that an ordinary child inherits the I/O class.
fn io_priority_is_not_inherited(mode: Mode) {
    let mut control = mode.identity().command("ionice");
    let outside = control.args(["-c3", "ionice"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&outside.stdout).trim(), "idle", "control");
    let run = boxed(mode).through_program(&["ionice", "-c3"]);
    assert_eq!(shell(&run, "ionice").trim(), "none: prio 0");
}

/// A box has a core size limit of 1, because at 0 the kernel starts a piped core handler. Raising a hard limit of 0 needs
/// CAP_SYS_RESOURCE, which an ordinary user never has and root may lack.
fn hard_core_limit_of_zero_is_raised_or_reported(mode: Mode) {
    const ZERO: [&str; 2] = ["prlimit", "--core=0:0"];
    let show = ["sh", "-c", "grep '^Max core file size' /proc/self/limits"];
    let limits = |text: &str| text.split_ascii_whitespace().skip(4).take(2).collect::<Vec<_>>().join(" ");
    let mut raise = mode.identity().command(ZERO[0]);
    let can_raise = raise.args([ZERO[1], "prlimit", "--core=0:1", "true"]).output().unwrap().status.success();
    assert!(mode == Mode::Root || !can_raise, "an ordinary user can raise hard limits");

    let report = boxed(mode).report(&show).unwrap();
    assert_eq!(limits(report.stdout()), "1 1", "control: {}", report.summary());
    let report = boxed(mode).through_program(&ZERO).report(&show).unwrap();
    let (_, state, why) = report.protections("resource_limits").remove(0);
    if can_raise {
        assert_eq!((limits(report.stdout()).as_str(), state.as_str()), ("1 1", "enforced"), "{}", report.summary());
    } else {
        assert_eq!((limits(report.stdout()).as_str(), state.as_str()), ("0 0", "partial"), "{}", report.summary());
        assert!(why.contains("core size limit is 0"), "{why}");
    }
}
