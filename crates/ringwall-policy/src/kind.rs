//! Exec kinds: which argv a caller may pass for `shell` and for `python`.
//!
//! Each kind has few forms, so that the record shows what ran: the program is always the
//! interpreter, and the code is one argument or one script below `/workspace/inputs`, which no box
//! can write. The rule checks spelling only; whether the script exists is found out in the box.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use crate::error::quote;
use crate::verdict::{Denial, DenialCode};

/// The inputs of an exec, as a path in the box.
const INPUTS: &str = "/workspace/inputs/";

/// The interpreter of an exec's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExecKind {
    Shell,
    Python,
}

impl ExecKind {
    pub const ALL: [Self; 2] = [Self::Shell, Self::Python];

    pub const fn key(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Python => "python",
        }
    }

    /// The only command of this kind. A name, not a path: the backend resolves it.
    pub const fn command(self) -> &'static str {
        match self {
            Self::Shell => "bash",
            Self::Python => "python",
        }
    }

    const fn expected_arguments(self) -> &'static str {
        match self {
            Self::Shell => "[\"-lc\", script]",
            Self::Python => "[\"-c\", code] or [\"/workspace/inputs/…\"], either of them optionally after \"-u\"",
        }
    }
}

impl fmt::Display for ExecKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.key())
    }
}

/// An unknown kind is a [`Denial`] and not an [`Error`](crate::Error): it is well-formed, but not
/// allowed.
impl FromStr for ExecKind {
    type Err = Denial;

    fn from_str(text: &str) -> Result<Self, Denial> {
        Self::ALL.into_iter().find(|kind| kind.key() == text).ok_or_else(|| {
            Denial::new(
                DenialCode::CommandKind,
                format!("kind {} is not one of the supported kinds: shell, python", quote(text)),
            )
        })
    }
}

/// Checks the command line of an exec of this kind and returns its argv.
///
/// Python accepts `-u` (unbuffered output) before both forms. A script takes no arguments: contract
/// 003 defines none, and a script can read its parameters from a file in `inputs/`.
pub fn check_kind(kind: ExecKind, command: &str, args: &[String]) -> Result<Vec<OsString>, Denial> {
    if command != kind.command() {
        return Err(refuse(kind, format!("command {} is not {}", quote(command), quote(kind.command()))));
    }
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match kind {
        ExecKind::Shell => check_shell(&words),
        ExecKind::Python => check_python(&words),
    }
    .map_err(|wrong| refuse(kind, wrong))?;
    Ok(std::iter::once(command).chain(words).map(OsString::from).collect())
}

fn check_shell(args: &[&str]) -> Result<(), String> {
    match args {
        ["-lc", _] => Ok(()),
        ["-lc"] => Err("there is no script after \"-lc\"".to_owned()),
        ["-lc", _, ..] => Err(format!("there are {} arguments instead of 2", args.len())),
        _ => Err(unexpected(args)),
    }
}

fn check_python(args: &[&str]) -> Result<(), String> {
    let after_flag = match args {
        ["-u", rest @ ..] => rest,
        _ => args,
    };
    match after_flag {
        ["-c", _] => Ok(()),
        ["-c"] => Err("there is no code after \"-c\"".to_owned()),
        [script] if !script.starts_with('-') => check_script(script),
        ["-c", _, ..] => Err("there is more than the code after \"-c\"".to_owned()),
        [script, _, ..] if script.starts_with(INPUTS) => Err("a script takes no arguments".to_owned()),
        _ => Err(unexpected(after_flag)),
    }
}

/// Accepts a plain path below the inputs. `..`, `.` and double slashes are refused, so that the
/// record shows the path that runs.
fn check_script(script: &str) -> Result<(), String> {
    let plain = script
        .strip_prefix(INPUTS)
        .is_some_and(|below| below.split('/').all(|name| !matches!(name, "" | "." | "..") && !name.contains('\0')));
    if plain { Ok(()) } else { Err(format!("script {} is not a plain path under {INPUTS}", quote(script))) }
}

fn unexpected(args: &[&str]) -> String {
    match args.first() {
        Some(first) => format!("argument {} was not expected", quote(first)),
        None => "there are no arguments".to_owned(),
    }
}

fn refuse(kind: ExecKind, wrong: String) -> Denial {
    let (command, arguments) = (kind.command(), kind.expected_arguments());
    Denial::new(
        DenialCode::CommandKind,
        format!("kind {kind} takes command \"{command}\" with args {arguments}, but {wrong}"),
    )
    .with_hint(match kind {
        ExecKind::Shell => "put the whole command line into the script",
        ExecKind::Python => "put the code into one argument, or send it as an input file and pass its path",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: &str, command: &str, args: &[&str]) -> Result<Vec<OsString>, Denial> {
        let args: Vec<String> = args.iter().map(|&argument| argument.to_owned()).collect();
        check_kind(kind.parse()?, command, &args)
    }

    #[test]
    fn accepted_form_is_returned_unchanged() {
        let table: [(&str, &str, &[&str]); 8] = [
            ("shell", "bash", &["-lc", "echo hello"]),
            ("shell", "bash", &["-lc", ""]),
            ("shell", "bash", &["-lc", "-c"]),
            ("python", "python", &["-c", "print(1)"]),
            ("python", "python", &["-u", "-c", "-u"]),
            ("python", "python", &["/workspace/inputs/main.py"]),
            ("python", "python", &["/workspace/inputs/a..b/...py"]),
            ("python", "python", &["-u", "/workspace/inputs/deep/main.py"]),
        ];
        for (kind, command, args) in table {
            let expected: Vec<OsString> = std::iter::once(&command).chain(args).map(OsString::from).collect();
            assert_eq!(check(kind, command, args), Ok(expected), "{kind} {args:?}");
        }
    }

    #[test]
    fn other_form_is_denied_with_expected_form() {
        let table: [(&str, &str, &[&str], &str); 32] = [
            ("shell", "sh", &["-lc", "x"], "command \"sh\" is not \"bash\""),
            ("shell", "/bin/bash", &["-lc", "x"], "command \"/bin/bash\" is not \"bash\""),
            ("shell", "", &["-lc", "x"], "command \"\" is not \"bash\""),
            ("shell", "python", &["-c", "x"], "command \"python\" is not \"bash\""),
            ("shell", "bash", &[], "there are no arguments"),
            ("shell", "bash", &["-lc"], "no script after \"-lc\""),
            ("shell", "bash", &["-c", "x"], "argument \"-c\" was not expected"),
            ("shell", "bash", &["-l", "-c", "x"], "argument \"-l\" was not expected"),
            ("shell", "bash", &["-lc", "x", "y"], "there are 3 arguments instead of 2"),
            ("shell", "bash", &["x"], "argument \"x\" was not expected"),
            ("python", "python3", &["-c", "x"], "command \"python3\" is not \"python\""),
            ("python", "bash", &["-lc", "x"], "command \"bash\" is not \"python\""),
            ("python", "python", &[], "there are no arguments"),
            ("python", "python", &["-u"], "there are no arguments"),
            ("python", "python", &["-c"], "no code after \"-c\""),
            ("python", "python", &["-u", "-u", "-c", "x"], "argument \"-u\" was not expected"),
            ("python", "python", &["-m", "http.server"], "argument \"-m\" was not expected"),
            ("python", "python", &["-I", "-c", "x"], "argument \"-I\" was not expected"),
            ("python", "python", &["-c", "x", "y"], "more than the code"),
            ("python", "python", &["-uc", "x"], "argument \"-uc\" was not expected"),
            ("python", "python", &["-"], "argument \"-\" was not expected"),
            ("python", "python", &["main.py"], "is not a plain path under /workspace/inputs/"),
            ("python", "python", &["/workspace/work/main.py"], "is not a plain path"),
            ("python", "python", &["/workspace/inputs"], "is not a plain path"),
            ("python", "python", &["/workspace/inputs/"], "is not a plain path"),
            ("python", "python", &["/workspace/inputs/../work/x.py"], "is not a plain path"),
            ("python", "python", &["/workspace/inputs/a/.."], "is not a plain path"),
            ("python", "python", &["/workspace/inputs/./x.py"], "is not a plain path"),
            ("python", "python", &["/workspace/inputs//x.py"], "is not a plain path"),
            ("python", "python", &["/workspace/inputs/x.py\0"], "is not a plain path"),
            ("python", "python", &["/workspace/inputs2/x.py"], "is not a plain path"),
            ("python", "python", &["/workspace/inputs/x.py", "--flag"], "a script takes no arguments"),
        ];
        for (kind, command, args, wrong) in table {
            let denial = check(kind, command, args).expect_err(wrong);
            assert_eq!(denial.code, DenialCode::CommandKind);
            assert!(denial.message.contains(wrong), "{denial}");
            let expected = if kind == "shell" { "[\"-lc\", script]" } else { "[\"-c\", code] or" };
            assert!(denial.message.contains(expected), "{denial}");
            assert!(denial.hint.is_some());
        }
    }

    #[test]
    fn unknown_kind_is_denied_with_list_of_kinds() {
        for kind in ["", "Shell", "ruby", "\u{1b}[2J"] {
            let denial = check(kind, "bash", &["-lc", "x"]).expect_err("an unknown kind");
            assert_eq!(denial.code, DenialCode::CommandKind);
            assert!(denial.message.contains("shell, python") && !denial.message.contains('\u{1b}'), "{denial}");
        }
        for kind in ExecKind::ALL {
            assert_eq!(kind.key().parse(), Ok(kind));
        }
    }
}
