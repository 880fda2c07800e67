//! If the tests run as root, runs all other tests again as an unprivileged user with umask 077.

use std::process::Command;

/// A user and group without files.
const NOBODY: &str = "54321";

#[test]
fn tests_pass_without_privileges() {
    if !crate::fixture::is_root() {
        eprintln!("skipped: the tests run without privileges already");
        return;
    }
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups", "--inh-caps=-all"]);
    // The umask belongs to the whole process, so it is set in a shell instead of in this process.
    command.args(["--", "/bin/sh", "-c", "umask 077; exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap()).args(["--skip", "tests_pass_without_privileges"]);
    let output = command.current_dir("/").env("TMPDIR", "/tmp").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    // A run without tests would succeed too.
    let passed = text.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next());
    assert!(passed.is_some_and(|count| count.parse::<u32>().unwrap() >= 25), "{text}");
}
