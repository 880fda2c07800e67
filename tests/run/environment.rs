//! `--env`: what is given arrives byte for byte, wins over the defaults, and is never repeated to anybody.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use tests::support::actor::Mode;
use tests::support::scratch::token;

use crate::modes::in_both_modes;
use crate::product::{boxed, say, shell};

in_both_modes!(
    given_values_arrive,
    given_values_win,
    the_search_path_is_the_given_one,
    a_terminal_is_named_only_where_there_is_one,
    values_are_never_printed,
);

fn given_values_arrive(mode: Mode) {
    let odd = OsStr::from_bytes(b"ODD=a=b \xff\n\"'$HOME\\");
    let run = boxed(mode).option("--env", odd).option("--env", "EMPTY=").option("--env", "TWICE=1");
    let outcome = run.option("--env", "TWICE=2").run(&["env", "-0"]).unwrap();
    let pairs: Vec<_> = outcome.stdout.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()).collect();
    assert!(pairs.contains(&odd.as_bytes()), "{}", outcome.describe());
    assert!(pairs.contains(&b"EMPTY=".as_slice()) && pairs.contains(&b"TWICE=2".as_slice()), "{}", outcome.describe());
    assert_eq!(pairs.len(), 6 + 3, "{}", outcome.describe());
}

fn given_values_win(mode: Mode) {
    let run = ["HOME=/tmp", "LANG=C", "USER=me", "SHELL=/bin/false", "LOGNAME=me"]
        .into_iter()
        .fold(boxed(mode), |run, pair| run.option("--env", pair));
    assert_eq!(shell(&run, "echo $HOME $LANG $USER $SHELL $LOGNAME"), "/tmp C me /bin/false me\n");
}

fn the_search_path_is_the_given_one(mode: Mode) {
    let run = boxed(mode).option("--env", "PATH=/nowhere");
    assert_eq!(run.run(&["true"]).unwrap().code(), Some(127));
    assert_eq!(run.run(&["/bin/sh", "-c", "echo $PATH"]).unwrap().text(), "/nowhere\n");
}

fn a_terminal_is_named_only_where_there_is_one(mode: Mode) {
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
        let outcome = say(mode, &[&["run", "--env", &pair], words].concat());
        assert!(!outcome.text().contains(&secret), "{words:?}: {}", outcome.describe());
        assert!(!outcome.errors().contains(&secret), "{words:?}: {}", outcome.describe());
    }
}
