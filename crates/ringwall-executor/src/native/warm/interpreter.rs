//! The interpreter of a warm box: how it is started, which commands it can run, and what it
//! receives.
//!
//! It runs `runner.py` while it waits. It was started with our environment, and it must have read the
//! same from that as it would have from the command's. So a command that sets a variable which is
//! read at start gets no warm interpreter.

use std::ffi::{CString, OsStr};
use std::path::Path;
use std::sync::LazyLock;

use ringwall_jail::plan::{Assignment, Command, InterpreterInput, WarmKind};
use ringwall_policy::{Grant, Workspace};

use crate::box_layout;
use crate::box_layout::SEARCH;
use crate::c_string::literal;
use crate::error::Error;
use crate::host::python::{ASKED, INSTALLED, Python};

const RUNNER: &str = include_str!("runner.py");

/// Variables, and prefixes of variables, that the interpreter and its libraries read at start.
const READ_AT_START: [&str; 8] = ["PATH", "HOME", "LANG", "LANGUAGE", "TZ", "TZDIR", "LOCPATH", "GCONV_PATH"];
const BEGINNINGS_READ_AT_START: [&str; 5] = ["PYTHON", "LD_", "LC_", "MALLOC_", "GLIBC_"];

/// The kind that fits a grant best.
pub(super) fn kind_for(grant: &Grant) -> WarmKind {
    let is_python = |program: &OsStr| {
        program == INSTALLED || (program == ASKED && Python::choose(grant, Path::new("/")) == Python::Python3)
    };
    let is_code = match grant.argv() {
        [program, option, code] => is_python(program) && option == "-c" && code.to_str().is_some(),
        _ => false,
    };
    // An agent's commands have another search path.
    let has_path = !matches!(grant.workspace(), Workspace::Agent(_));
    let sets_none = !grant.env().keys().any(|key| is_read_at_start(key.as_bytes()));
    if is_code && has_path && sets_none { WarmKind::Python } else { WarmKind::Plain }
}

fn is_read_at_start(key: &[u8]) -> bool {
    READ_AT_START.iter().any(|name| key == name.as_bytes())
        || BEGINNINGS_READ_AT_START.iter().any(|beginning| key.starts_with(beginning.as_bytes()))
}

/// The command of the interpreter. `runner.py` runs in a namespace of its own, so that the code's is
/// empty.
pub(super) static COMMAND: LazyLock<Command> = LazyLock::new(|| {
    // For this text, Rust's escaped form is also a valid Python string.
    let text = format!("exec({RUNNER:?}, {{}})");
    let environment = [
        ("HOME", box_layout::HOME),
        ("LANG", "C.UTF-8"),
        ("LOGNAME", box_layout::USER),
        ("PATH", SEARCH),
        ("SHELL", "/bin/sh"),
        ("USER", box_layout::USER),
    ];
    Command {
        argv: [INSTALLED, "-c", &text].map(literal).to_vec(),
        environment: environment.iter().map(|(key, value)| literal(&format!("{key}={value}"))).collect(),
        search: SEARCH.split(':').map(literal).collect(),
        directory: literal("/"),
    }
});

/// The input for the interpreter: directory, code and environment, each followed by a NUL byte, which
/// none of them contains.
pub(super) fn assignment(command: &Command) -> Result<Assignment, Error> {
    let [_, _, code] = command.argv.as_slice() else { return Err(Error::WarmBoxUnfit("it waits for code")) };
    let read = |environment: &[CString]| -> Vec<CString> {
        let key = |entry: &CString| entry.as_bytes().split(|byte| *byte == b'=').next().is_some_and(is_read_at_start);
        environment.iter().filter(|entry| key(entry)).cloned().collect()
    };
    if read(&command.environment) != read(&COMMAND.environment) {
        return Err(Error::WarmBoxUnfit("it was started with another environment"));
    }
    let mut input = Vec::new();
    for part in [&command.directory, code].into_iter().chain(&command.environment) {
        input.extend_from_slice(part.as_bytes_with_nul());
    }
    Ok(Assignment::RunCode { input: InterpreterInput(input), directory: command.directory.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runner_has_only_characters_that_rust_and_python_escape_alike() {
        let plain = |character: char| character == '\n' || (' '..='~').contains(&character);
        assert!(RUNNER.chars().all(plain), "only printable ASCII and line ends");
    }

    #[test]
    fn variables_read_at_interpreter_start_are_listed() {
        for read in ["PYTHONPATH", "PYTHONHASHSEED", "LD_PRELOAD", "LC_ALL", "LANG", "TZ", "PATH", "HOME"] {
            assert!(is_read_at_start(read.as_bytes()), "{read}");
        }
        for other in ["USER", "KEY", "MY_PATH", "TZ_NAME", "HOMEPAGE", "OPENAI_API_KEY"] {
            assert!(!is_read_at_start(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn assignment_holds_directory_code_and_environment() {
        let mut wanted = COMMAND.clone();
        wanted.argv = ["python3", "-c", "print(1)"].map(literal).to_vec();
        wanted.directory = literal("/workspace");
        wanted.environment =
            ["HOME=/home/sandbox", "KEY=a=b", "LANG=C.UTF-8", &format!("PATH={SEARCH}")].map(literal).to_vec();
        let Ok(Assignment::RunCode { input, .. }) = assignment(&wanted) else { panic!("the assignment was refused") };
        let expected = format!("/workspace\0print(1)\0HOME=/home/sandbox\0KEY=a=b\0LANG=C.UTF-8\0PATH={SEARCH}\0");
        assert_eq!(String::from_utf8_lossy(&input.0), expected);
        assert!(!format!("{input:?}").contains("KEY"));

        wanted.environment[0] = literal("HOME=/tmp");
        assert!(matches!(assignment(&wanted), Err(Error::WarmBoxUnfit(_))));
    }
}
