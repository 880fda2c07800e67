//! `--env`: values are passed byte for byte, override the defaults and never appear in output.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use tests::support::actor::Mode;
use tests::support::scratch::token;

use crate::modes::in_both_modes;
use crate::product::{boxed, run_ringwall, shell};

in_both_modes!(
    values_are_passed_byte_for_byte,
    values_override_the_defaults,
    path_variable_is_the_search_path,
    term_is_unset_without_a_terminal,
    values_are_never_printed,
);

fn values_are_passed_byte_for_byte(mode: Mode) {
    let odd = OsStr::from_bytes(b"ODD=a=b \xff\n\"'$HOME\\");
    let run = boxed(mode).option("--env", odd).option("--env", "EMPTY=").option("--env", "TWICE=1");
    let outcome = run.option("--env", "TWICE=2").run(&["env", "-0"]).unwrap();
    let pairs: Vec<_> = outcome.stdout.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()).collect();
    assert!(pairs.contains(&odd.as_bytes()), "{}", outcome.describe());
    assert!(pairs.contains(&b"EMPTY=".as_slice()) && pairs.contains(&b"TWICE=2".as_slice()), "{}", outcome.describe());
    assert_eq!(pairs.len(), 6 + 3, "{}", outcome.describe());
}

fn values_override_the_defaults(mode: Mode) {
    let run = ["HOME=/tmp", "LANG=C", "USER=me", "SHELL=/bin/false", "LOGNAME=me"]
        .into_iter()
        .fold(boxed(mode), |run, pair| run.option("--env", pair));
    assert_eq!(shell(&run, "echo $HOME $LANG $USER $SHELL $LOGNAME"), "/tmp C me /bin/false me\n");
}

fn path_variable_is_the_search_path(mode: Mode) {
    let run = boxed(mode).option("--env", "PATH=/nowhere");
    assert_eq!(run.run(&["true"]).unwrap().code(), Some(127));
    assert_eq!(run.run(&["/bin/sh", "-c", "echo $PATH"]).unwrap().text(), "/nowhere\n");
}

fn term_is_unset_without_a_terminal(mode: Mode) {
    assert_eq!(shell(&boxed(mode), "echo ${TERM-none}"), "none\n");
}

fn values_are_never_printed(mode: Mode) {
    let secret = token().unwrap();
    let pair = format!("SECRET={secret}");
    let broken = format!("BROKEN {secret}");
    let cases: [&[&str]; 9] = [
        &["--json", "--", "true"],
        &["--json", "--", "no-such-program"],
        &["--", "no-such-program"],
        &["--", "/etc/passwd"],
        &["--timeout", "0", "--", "true"],
        &["--json", "--workspace", "/no/such/place", "--", "true"],
        &["--image", "no-such-image", "--", "true"],
        &["--env", &broken, "--", "true"],
        &["--no-such-flag", "--", "true"],
    ];
    for words in cases {
        let outcome = run_ringwall(mode, &[&["run", "--env", &pair], words].concat());
        assert!(!outcome.text().contains(&secret), "{words:?}: {}", outcome.describe());
        assert!(!outcome.errors().contains(&secret), "{words:?}: {}", outcome.describe());
    }
}
