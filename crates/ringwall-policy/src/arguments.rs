//! The rules for arguments and environment: what the kernel can take at all.
//!
//! They keep a question that must fail from ever reaching a box, where the kernel would answer with a bare errno. They
//! say nothing about what a command does. Values of variables are never quoted: they are secrets.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::error::quote;
use crate::request::Secret;
use crate::verdict::{Denial, DenialCode};

/// The kernel's bound for one string, its ending NUL included (`MAX_ARG_STRLEN`).
const MAX_STRING: usize = 128 * 1024;

/// Our bound for all of them. The kernel's depends on the stack limit and is 2 MiB by default; half of that leaves room
/// for what the box adds.
const MAX_TOTAL_BYTES: usize = 1024 * 1024;

/// Each string also costs a pointer, which the kernel counts as well; many short strings would slip through otherwise.
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

/// What POSIX allows: any name that is not empty and has neither `=` nor NUL. Names that steer the dynamic linker
/// (`LD_PRELOAD` and its kin) are as good as any: they take effect inside the box alone, where the command could load
/// the same code by itself.
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

/// Gives the cost of a string of this length.
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
    fn commands_need_a_name_and_no_nul() {
        assert_eq!(check(&[], &[]), Err(DenialCode::CommandEmpty));
        assert_eq!(check(&[""], &[]), Err(DenialCode::CommandEmpty));
        assert_eq!(check(&["a\0b"], &[]), Err(DenialCode::NulByte));
        assert_eq!(check(&["a", "\0"], &[]), Err(DenialCode::NulByte));
        assert_eq!(check(&["a", ""], &[]), Ok(()));
        let latin1 = OsString::from_vec(vec![b'n', 0xe9]);
        assert_eq!(check_arguments(&[latin1], &BTreeMap::new()), Ok(()));
    }

    #[test]
    fn variables_have_any_name_that_posix_allows() {
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
    fn strings_end_where_the_kernel_ends_them() {
        let longest = "x".repeat(MAX_STRING - 1);
        let longer = "x".repeat(MAX_STRING);
        assert_eq!(check(&["echo", &longest], &[]), Ok(()));
        assert_eq!(check(&["echo", &longer], &[]), Err(DenialCode::ArgumentTooLong));
        // A variable is one string of the form KEY=value.
        assert_eq!(check(&["env"], &[("K", &longest[2..])]), Ok(()));
        assert_eq!(check(&["env"], &[("K", &longest[1..])]), Err(DenialCode::ArgumentTooLong));
    }

    #[test]
    fn the_total_counts_pointers_too() {
        // "true" costs 4 + 1 + 8, an empty argument 1 + 8.
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
    fn a_denial_never_quotes_a_value() {
        let env = [("TOKEN".to_owned(), Secret::new("hunter2\0"))].into();
        let denial = check_arguments(&["true".into()], &env).expect_err("a NUL byte");
        assert!(denial.message.contains("TOKEN"), "{denial}");
        assert!(!format!("{denial:?}").contains("hunter2"), "{denial}");
    }
}
