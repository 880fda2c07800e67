//! The exact text of the most common error messages.

use tests::support::actor::Mode;

use crate::modes::in_both_modes;
use crate::product::{boxed, run_ringwall};

in_both_modes!(refusal_messages_are_exact, limit_messages_are_exact);

fn refusal_messages_are_exact(mode: Mode) {
    let cases: [(&[&str], i32, &str); 8] = [
        (
            &["--timeout", "0", "--", "true"],
            2,
            "ringwall: --timeout 0: not a number of seconds above zero\n  \
             hint: write seconds such as 10 or 0.5; omit the flag for no time limit\n",
        ),
        (
            &["--workspace", "/no/such/place", "--", "true"],
            2,
            "ringwall: /no/such/place does not exist\n  hint: create it, or name another directory\n",
        ),
        (
            &["--workspace", "/", "--", "true"],
            2,
            "ringwall: the workspace \"/\" would expose system directories of the host to the box\n  \
             hint: name the directory that holds the work, for example a project in your home\n",
        ),
        (
            &["--env", "NAME", "--", "true"],
            2,
            "ringwall: --env needs KEY=VALUE\n  hint: for an empty value write KEY=\n",
        ),
        (
            &["--", ""],
            2,
            "ringwall: there is no command to run\n  \
             hint: name a program, for example: /bin/sh -c 'echo hello'\n",
        ),
        (
            &["--", "frobnicate"],
            127,
            "ringwall: frobnicate: command not found in the box\n  \
             hint: programs come from the host's /usr, or from the image; add a directory with --ro DIR and \
             --env PATH=…\n",
        ),
        (
            &["--", "/frobnicate"],
            127,
            "ringwall: /frobnicate: command not found in the box\n  \
             hint: the path is looked up inside the box: the host's /usr, /bin and /lib are there, your directory \
             is at /workspace\n",
        ),
        (
            &["--", "/etc/passwd"],
            126,
            "ringwall: /etc/passwd: cannot be executed in the box: Permission denied (os error 13)\n  \
             hint: make it executable (chmod +x), or name its interpreter\n",
        ),
    ];
    for (words, code, text) in cases {
        let outcome = run_ringwall(mode, &[&["run"], words].concat());
        assert_eq!((outcome.code(), outcome.errors().as_str()), (Some(code), text));
    }
}

fn limit_messages_are_exact(mode: Mode) {
    let late = boxed(mode).option("--timeout", "0.1").run(&["sleep", "1000"]).unwrap();
    assert_eq!(late.errors(), "ringwall: timed out after 0.1 s (--timeout)\n");
    let hungry = "block = bytearray(b'x' * 300_000_000)\nimport time\ntime.sleep(1000)";
    let run = boxed(mode).option("--memory-mb", "100");
    let outcome = run.run(&["/usr/bin/python3", "-c", hungry]).unwrap();
    assert_eq!(
        outcome.errors(),
        "ringwall: the box ran out of memory (limit 100 MB)\n  hint: allow more with --memory-mb\n"
    );
}
