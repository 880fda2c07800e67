//! The kernel's limits on arguments and environment variables.
//!
//! They are checked here because in the box the kernel would return only an errno. Values of
//! variables are secrets and never quoted in a message.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::error::quote;
use crate::request::Secret;
use crate::verdict::{Denial, DenialCode};

/// The kernel's limit for one string, including its NUL (`MAX_ARG_STRLEN`).
const MAX_STRING: usize = 128 * 1024;

/// Our limit for all strings together. The kernel's limit depends on the stack limit and is 2 MiB
/// by default; the other half is for the variables that the box adds.
const MAX_TOTAL_BYTES: usize = 1024 * 1024;

/// The kernel also counts a pointer for each string, which matters for many short strings.
const POINTER: usize = 8;

pub(crate) fn check_arguments(argv: &[OsString], env: &BTreeMap<String, Secret>) -> Result<(), Denial> {
    if argv.first().is_none_or(|program| program.is_empty()) {
        return Err(Denial::new(DenialCode::CommandEmpty, "there is no command to run")
            .with_hint("name a program, for example: /bin/sh -c 'echo hello'"));
    }
    let mut total = 0;
    for (index, argument) in argv.iter().enumerate() {
        let bytes = argument.as_encoded_bytes();
        let name = || match index {
            0 => "the command's name".to_owned(),
            _ => format!("argument {index}"),
        };
        check_nul(bytes, name)?;
        total += check_length(bytes.len(), name)?;
    }
    for (key, value) in env {
        check_key(key)?;
        let bytes = value.expose().as_encoded_bytes();
        let name = || format!("environment variable {}", quote(key));
        check_nul(bytes, name)?;
        total += check_length(key.len() + "=".len() + bytes.len(), name)?;
    }
    if total > MAX_TOTAL_BYTES {
        return Err(Denial::new(
            DenialCode::ArgumentsTooLarge,
            format!(
                "arguments and environment take {total} bytes together, but at most {MAX_TOTAL_BYTES} can be given to \
                 a command"
            ),
        )
        .with_hint("put the data into a file in the workspace, or send it on standard input"));
    }
    Ok(())
}

/// Accepts the names that POSIX allows: not empty, without `=` and NUL. `LD_PRELOAD` and similar
/// names are allowed, because they act inside the box only, where the command could load the same
/// code itself.
fn check_key(key: &str) -> Result<(), Denial> {
    let wrong = if key.is_empty() {
        "it is empty"
    } else if key.contains('=') {
        "it contains '='"
    } else if key.contains('\0') {
        "it contains a NUL byte"
    } else {
        return Ok(());
    };
    Err(Denial::new(
        DenialCode::EnvironmentKey,
        format!("{} cannot be the name of an environment variable: {wrong}", quote(key)),
    ))
}

fn check_nul(bytes: &[u8], name: impl Fn() -> String) -> Result<(), Denial> {
    if bytes.contains(&0) {
        return Err(Denial::new(
            DenialCode::NulByte,
            format!("{} contains a NUL byte, which would cut it short", name()),
        )
        .with_hint("put binary data into a file in the workspace, or send it on standard input"));
    }
    Ok(())
}

/// Returns the bytes that a string of this length costs.
fn check_length(length: usize, name: impl Fn() -> String) -> Result<usize, Denial> {
    let with_nul = length + 1;
    if with_nul > MAX_STRING {
        return Err(Denial::new(
            DenialCode::ArgumentTooLong,
            format!("{} is {length} bytes long, but the kernel takes at most {}", name(), MAX_STRING - 1),
        )
        .with_hint("put the data into a file in the workspace, or send it on standard input"));
    }
    Ok(with_nul + POINTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn check(argv: &[&str], env: &[(&str, &str)]) -> Result<(), DenialCode> {
        let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
        let env = env.iter().map(|&(key, value)| (key.to_owned(), Secret::new(value))).collect();
        check_arguments(&argv, &env).map_err(|denial| denial.code)
    }

    #[test]
    fn empty_command_or_nul_is_denied() {
        assert_eq!(check(&[], &[]), Err(DenialCode::CommandEmpty));
        assert_eq!(check(&[""], &[]), Err(DenialCode::CommandEmpty));
        assert_eq!(check(&["a\0b"], &[]), Err(DenialCode::NulByte));
        assert_eq!(check(&["a", "\0"], &[]), Err(DenialCode::NulByte));
        assert_eq!(check(&["a", ""], &[]), Ok(()));
        let latin1 = OsString::from_vec(vec![b'n', 0xe9]);
        assert_eq!(check_arguments(&[latin1], &BTreeMap::new()), Ok(()));
    }

    #[test]
    fn variable_name_outside_posix_is_denied() {
        for key in ["PATH", "a", "1ST", "with space", "é", "LD_PRELOAD", "a.b-c"] {
            assert_eq!(check(&["true"], &[(key, "x=y")]), Ok(()), "{key}");
        }
        for key in ["", "=", "A=B", "A\0"] {
            let result = check(&["true"], &[(key, "")]);
            assert_eq!(result, Err(DenialCode::EnvironmentKey), "{key:?}");
        }
        assert_eq!(check(&["true"], &[("A", "b\0")]), Err(DenialCode::NulByte));
    }

    #[test]
    fn string_above_kernel_limit_is_denied() {
        let longest = "x".repeat(MAX_STRING - 1);
        let longer = "x".repeat(MAX_STRING);
        assert_eq!(check(&["echo", &longest], &[]), Ok(()));
        assert_eq!(check(&["echo", &longer], &[]), Err(DenialCode::ArgumentTooLong));
        // A variable is one string of the form `KEY=value`.
        assert_eq!(check(&["env"], &[("K", &longest[2..])]), Ok(()));
        assert_eq!(check(&["env"], &[("K", &longest[1..])]), Err(DenialCode::ArgumentTooLong));
    }

    #[test]
    fn total_size_includes_pointers() {
        // "true" costs 4 + 1 + 8 bytes, an empty argument 1 + 8.
        let fitting = (MAX_TOTAL_BYTES - 13) / 9;
        let mut argv = vec!["true"];
        argv.resize(1 + fitting, "");
        assert_eq!(check(&argv, &[]), Ok(()));
        argv.push("");
        assert_eq!(check(&argv, &[]), Err(DenialCode::ArgumentsTooLarge));
        let half = "x".repeat(100_000);
        let arguments = ["true", &half, &half, &half, &half, &half];
        let variables = ["A", "B", "C", "D", "E"].map(|key| (key, half.as_str()));
        assert_eq!(check(&arguments, &[]), Ok(()));
        assert_eq!(check(&["true"], &variables), Ok(()));
        assert_eq!(check(&arguments, &variables), Ok(()));
        let more = ["true", &half, &half, &half, &half, &half, &half];
        assert_eq!(check(&more, &variables), Err(DenialCode::ArgumentsTooLarge));
    }

    #[test]
    fn denial_does_not_quote_value() {
        let env = [("TOKEN".to_owned(), Secret::new("hunter2\0"))].into();
        let denial = check_arguments(&["true".into()], &env).expect_err("a NUL byte");
        assert!(denial.message.contains("TOKEN"), "{denial}");
        assert!(!format!("{denial:?}").contains("hunter2"), "{denial}");
    }
}
