//! Every behaviour is checked twice: as root and as an ordinary user. This room turns one function into two tests
//! and says aloud when a machine cannot run one of them. It never lets a missing tool pass for a pass.

use std::io::Write;

use tests::support::actor::{Mode, Skip};

/// One test per mode out of each plain function `fn name(mode: Mode)` of the calling file.
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

/// The same for what only root can have: another owner's files, cgroups on version 1.
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
        Err(Skip::Impossible(reason)) => announce(&format!("{name} ({})", mode.name()), &reason),
    }
}

/// Past the harness, which swallows what a passing test prints.
pub(crate) fn announce(what: &str, reason: &str) {
    let _ = writeln!(std::io::stderr().lock(), "skipped: {what}: {reason}");
}
