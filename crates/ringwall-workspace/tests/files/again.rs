//! All other tests once more, as a user without rights and under a strict umask, when the tests run as root.

use std::process::Command;

/// An id that owns nothing.
const NOBODY: &str = "54321";

#[test]
fn everything_holds_without_privileges() {
    if !crate::lab::is_root() {
        eprintln!("skipped: these tests have no privileges to begin with");
        return;
    }
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups", "--inh-caps=-all"]);
    // The umask is set in a shell, because that of this process is every thread's.
    command.args(["--", "/bin/sh", "-c", "umask 077; exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap()).args(["--skip", "everything_holds_without_privileges"]);
    let output = command.current_dir("/").env("TMPDIR", "/tmp").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    // A run of nothing would succeed too.
    let passed = text.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(passed.is_some_and(|count| count.parse::<u32>().unwrap() >= 25), "{text}");
}
