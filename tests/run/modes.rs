//! Macros that turn one function into two tests: as root and as an ordinary user.
//!
//! A mode that cannot run on this machine is printed as skipped. A missing tool fails the test.

use std::io::Write;

use tests::support::actor::{Mode, Skip};

/// Defines one test per mode for each function `fn name(mode: Mode)` of the calling file.
macro_rules! in_both_modes {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            #[test]
            fn root() {
                crate::modes::check(tests::support::actor::Mode::Root, stringify!($name), super::$name);
            }
            #[test]
            fn rootless() {
                crate::modes::check(tests::support::actor::Mode::Rootless, stringify!($name), super::$name);
            }
        })*
    };
}

/// Defines tests for root alone, for example with files of another owner.
macro_rules! as_root {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            #[test]
            fn root() {
                crate::modes::check(tests::support::actor::Mode::Root, stringify!($name), super::$name);
            }
        })*
    };
}

pub(crate) use {as_root, in_both_modes};

pub(crate) fn check(mode: Mode, name: &str, test: impl FnOnce(Mode)) {
    match mode.available() {
        Ok(()) => test(mode),
        Err(Skip::Missing(reason)) => panic!("{} cannot run: {reason}", mode.name()),
        Err(Skip::Impossible(reason)) => print_skipped(&format!("{name} ({})", mode.name()), &reason),
    }
}

/// Writes to standard error directly, because the harness captures the output of a passing test.
pub(crate) fn print_skipped(what: &str, reason: &str) {
    let _ = writeln!(std::io::stderr().lock(), "skipped: {what}: {reason}");
}
