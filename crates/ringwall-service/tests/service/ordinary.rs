//! Runs all tests as an ordinary user.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const ORDINARY_UID: u32 = 12_345;

pub fn all_tests_pass_as_ordinary_user() {
    // An ordinary user may not have access to the directory of this binary.
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let copy = directory.path().join("service-tests");
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let output = Command::new(&copy).current_dir("/").uid(ORDINARY_UID).gid(ORDINARY_UID).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("test result: ok"), "{said}\n{complained}");
}
