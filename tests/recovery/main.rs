//! Kills a server under load at random moments, again and again, and checks the state after each
//! restart.
//!
//! - Every acknowledged exec has exactly one outcome, and no exec ran twice.
//! - An idempotency key gives the same exec as before the kill.
//! - An answer to an approval and the path that it remembers are both stored, or neither.
//! - The database file and the audit chain are intact.
//! - Nothing of the killed server is left on the host.
//!
//! The moments come from a seed, which is printed. `RINGWALL_SEED=n` repeats them, as far as
//! scheduling allows. `RINGWALL_SOAK=1` runs the long form. The tests run one at a time, because
//! each checks all processes that this program started.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]
#![expect(clippy::print_stdout, reason = "prints the seed and skipped tests")]

mod approvals;
mod crash_loop;
mod database;
mod host;
mod load;
mod random;
mod requests;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::crash_loop::CrashLoop;
use crate::random::Random;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let seed = match std::env::var("RINGWALL_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("RINGWALL_SEED={text}: not a number")),
        Err(_) => Random::any_seed(),
    };
    let is_soak = std::env::var("RINGWALL_SOAK").is_ok_and(|value| value == "1");
    println!("seed of the kills: RINGWALL_SEED={seed}");
    let (native, containers) = if is_soak { (220, 20) } else { (20, 3) };
    let mut tests = vec![Trial::test("kills_with_native_boxes_lose_nothing", move || {
        CrashLoop::new(seed, None).survive(native);
        Ok(())
    })];
    if rustix::process::geteuid().is_root() {
        tests.push(Trial::test("kills_with_containers_lose_nothing", move || {
            CrashLoop::new(seed, Some(crash_loop::daemon())).survive(containers);
            Ok(())
        }));
    } else {
        println!("skipped: containers, because a docker daemon needs root");
    }
    libtest_mimic::run(&arguments, tests).exit_code()
}
