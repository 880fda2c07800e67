//! A program and its arguments, run without a shell: checks the name against the list, and that no
//! argument names a path outside of the workspace, `/tmp` and four devices.
//!
//! Each argument is checked by its text. How the program uses it is limited by the box.

use std::ffi::OsString;

use ringwall_risk::shell_syntax::{Printed, paths};

use super::line::{misplaced, not_allowed, wants_network};
use super::lists::CommandLists;
use super::reserved::is_misplaced;
use crate::error::Error;
use crate::verdict::{Denial, DenialCode};

/// Absolute paths that arguments may name, including everything below.
const KNOWN_PATHS: [&str; 6] = ["/workspace", "/tmp", "/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"];

/// A command that is not empty.
#[derive(Debug)]
pub struct ArgvCommand {
    name: String,
    arguments: Vec<String>,
}

impl ArgvCommand {
    pub fn read(name: &str, arguments: Vec<String>) -> Result<Self, Error> {
        if name.trim().is_empty() {
            return Err(Error::CommandEmpty);
        }
        if std::iter::once(name).chain(arguments.iter().map(String::as_str)).any(|word| word.contains('\0')) {
            return Err(Error::CommandNul);
        }
        Ok(Self { name: name.to_owned(), arguments })
    }

    /// `directory` is the working directory relative to the workspace.
    pub fn check(&self, directory: &str, lists: &CommandLists) -> Result<(), Denial> {
        if !lists.may_run(&self.name) {
            return Err(not_allowed(&self.name));
        }
        if self.arguments.iter().any(|argument| argument.split(['/', '=']).any(|part| part == "..")) {
            return Err(Denial::new(
                DenialCode::PathTraversal,
                "Security Error: Path traversal '..' is strictly forbidden.",
            ));
        }
        let named = paths(&self.name, &self.arguments, Printed::CountAsWell);
        if named.iter().any(|argument| names_system(argument)) {
            return Err(Denial::new(
                DenialCode::PathForbidden,
                "Security Error: Forbidden access to system paths in arguments.",
            ));
        }
        let named = paths(&self.name, &self.arguments, Printed::AreTexts);
        match named.iter().any(|argument| is_misplaced(argument, directory)) {
            true => Err(misplaced()),
            false => Ok(()),
        }
    }

    /// The command in the form for `execve`.
    pub fn words(&self) -> Vec<OsString> {
        std::iter::once(&self.name).chain(&self.arguments).map(OsString::from).collect()
    }

    /// True if the program is useless without a network.
    pub fn wants_network(&self) -> bool {
        wants_network(&self.name, &self.arguments)
    }
}

/// True if an argument, or its part after `=`, is an absolute path outside of [`KNOWN_PATHS`].
fn names_system(argument: &str) -> bool {
    let after_equals = argument.split_once('=').map(|(_, value)| value);
    let is_outside = |path: &str| {
        let is_within =
            |place: &&str| path.strip_prefix(*place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        path.starts_with('/') && !KNOWN_PATHS.iter().any(is_within)
    };
    std::iter::once(argument).chain(after_equals).any(is_outside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DenialCode::{CommandNotAllowed, FileReserved, PathForbidden, PathTraversal};

    fn check(words: &[&str]) -> Result<(), DenialCode> {
        let arguments = words[1..].iter().map(|&word| word.to_owned()).collect();
        let command = ArgvCommand::read(words[0], arguments).expect("a name");
        command.check("skills/a", &CommandLists::default()).map_err(|denial| denial.code)
    }

    #[test]
    fn ordinary_argument_is_allowed() {
        let table: [&[&str]; 17] = [
            &["python3", "main.py", "--in", "a..b.txt", "1..10", "..."],
            &["python3", "-c", "print(1.5)"],
            &["bash", "-c", "cat /etc/passwd | wc -l"],
            &["ls", "-l", "/workspace/skills/a", "/tmp", "/dev/null"],
            &["ls", "--color=auto", "/workspace"],
            &["sed", "-i", "/foo/d", "x"],
            &["awk", "/foo/ {print $1}", "x"],
            &["grep", "-r", "/api/", "."],
            &["grep", "-e", "/etc/passwd", "x"],
            &["curl", "https://example.org/etc/x", "-o", "out"],
            &["find", ".", "-name", "SKILL.md"],
            &["cat", "SKILL.md"],
            &["pip", "install", "x==1.0"],
            &["chmod", "+x", "run.sh"],
            &["xargs", "cat"],
            &["tee", "/dev/stderr"],
            &["echo", "SKILL.md"],
        ];
        for words in table {
            assert_eq!(check(words), Ok(()), "{words:?}");
        }
    }

    #[test]
    fn forbidden_command_or_argument_is_denied() {
        let table: [(&[&str], DenialCode); 24] = [
            (&["nc", "x"], CommandNotAllowed),
            (&["./python3"], CommandNotAllowed),
            (&["ls -l"], CommandNotAllowed),
            (&["/bin/ls"], CommandNotAllowed),
            (&["wc"], CommandNotAllowed),
            (&["cat", ".."], PathTraversal),
            (&["cat", "../x"], PathTraversal),
            (&["cat", "a/../b"], PathTraversal),
            (&["cat", "a/.."], PathTraversal),
            (&["cat", "--file=../x"], PathTraversal),
            (&["cat", "/workspace/../etc/passwd"], PathTraversal),
            (&["cat", "/etc/passwd"], PathForbidden),
            (&["cat", "/"], PathForbidden),
            (&["cat", "//etc/passwd"], PathForbidden),
            (&["cat", "--file=/etc/passwd"], PathForbidden),
            (&["cat", "/workspaces"], PathForbidden),
            (&["grep", "-f", "/etc/passwd", "x"], PathForbidden),
            (&["grep", "-f/etc/passwd", "x"], PathForbidden),
            (&["grep", "-hex", "/etc/passwd"], PathForbidden),
            (&["grep", "-re", "x", "/etc"], PathForbidden),
            (&["sed", "-nep", "/etc/passwd"], PathForbidden),
            (&["awk", "-f", "/etc/passwd"], PathForbidden),
            (&["touch", "b/SKILL.md"], FileReserved),
            (&["touch", "skill.md"], FileReserved),
        ];
        for (words, code) in table {
            assert_eq!(check(words), Err(code), "{words:?}");
        }
        for empty in ["", " ", "\n"] {
            assert_eq!(ArgvCommand::read(empty, vec![]).map(drop), Err(Error::CommandEmpty));
        }
        assert_eq!(ArgvCommand::read("echo", vec!["a\0b".to_owned()]).map(drop), Err(Error::CommandNul));
    }
}
