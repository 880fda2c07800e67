//! A server under load is killed at moments that nobody chose, again and again, and the next one finds everything.
//!
//! Whatever was acknowledged has exactly one ending; nothing ran twice; nothing of the dead server is left on the host;
//! the record is sound; a key gives the same exec after the kill as before; an answer and what it
//! remembers are both there or neither. The moments come from a seed, which is
//! printed: RINGWALL_SEED=n takes the same ones again, as far as the machine lets them be the same. Short, unless
//! RINGWALL_SOAK=1. The trials take turns, because each looks at all that this process started.

#![expect(clippy::unwrap_used, clippy::panic, reason = "this whole program is a test")]
#![expect(clippy::print_stdout, reason = "the seed has to be seen, and what is not tried has to be said")]

mod chance;
mod database;
mod host;
mod ledger;
mod load;
mod questions;
mod round;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use crate::chance::Chance;
use crate::round::Lives;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let seed = match std::env::var("RINGWALL_SEED") {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("RINGWALL_SEED={text}: not a number")),
        Err(_) => Chance::any_seed(),
    };
    let is_soak = std::env::var("RINGWALL_SOAK").is_ok_and(|value| value == "1");
    println!("the moments of these kills: RINGWALL_SEED={seed}");
    let (native, containers) = if is_soak { (220, 20) } else { (20, 3) };
    let mut trials = vec![Trial::test("native boxes", move || {
        Lives::new(seed, None).survive(native);
        Ok(())
    })];
    if rustix::process::geteuid().is_root() {
        trials.push(Trial::test("containers", move || {
            Lives::new(seed, Some(round::daemon())).survive(containers);
            Ok(())
        }));
    } else {
        println!("skipped: containers, because a docker daemon needs root");
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
