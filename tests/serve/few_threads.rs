//! A server that cannot start enough threads (RLIMIT_NPROC) exits with an error that names the limit,
//! instead of hanging after a panic.

use tempfile::TempDir;
use tests::support::actor::Identity;
use tests::support::boxed::place;
use tests::support::process::{Ending, run};
use tests::support::scratch::{Scratch, give};

use crate::server::{Server, Starter};

/// As an unprivileged user; root is exempt from the limit.
const IDENTITY: Identity = Identity::Alone;

#[test]
fn server_without_threads_exits_with_the_limit_in_its_error() {
    let home = Scratch::new(Identity::Tester).unwrap();
    let binary = place(&home).unwrap();
    for limit in [1, 2, 3, 4, 5, 8] {
        for arguments in [["serve", "--listen", "127.0.0.1:0"].as_slice(), &["mcp"]] {
            let data = TempDir::with_prefix("rw-threads-").unwrap();
            give(data.path(), IDENTITY).unwrap();
            let mut command = IDENTITY.command("/bin/bash");
            command.args(["-c", &format!("ulimit -u {limit}; exec \"$@\""), "sh"]);
            command.arg(&binary).arg("--data").arg(data.path()).args(arguments);
            let ended = run(command, None).unwrap();
            assert_eq!((ended.ending, ended.code()), (Ending::Own, Some(125)), "{limit}: {}", ended.describe());
            let errors = ended.errors();
            assert!(errors.contains(&format!("RLIMIT_NPROC is {limit} ")), "{limit}: {errors}");
            assert!(errors.contains("hint: ") && !errors.contains("panicked"), "{limit}: {errors}");
        }
    }
}

#[test]
fn server_with_enough_threads_starts() {
    let home = Scratch::new(Identity::Tester).unwrap();
    let binary = place(&home).unwrap();
    let server =
        Server::start_as(&Starter { identity: IDENTITY, binary }, TempDir::with_prefix("rw-threads-").unwrap(), &[]);
    assert_eq!(server.ask("GET", "/healthz", None).status, 200);
}
