//! Runs a shell line as `bash -c`. A line over 120 KiB is sent through stdin.
//!
//! Only the server writes that stdin, and commands of the line find it empty, as they do for a short
//! line. The record has the whole line either way.

use std::ffi::OsString;

/// The kernel limits one argument to 128 KiB (`MAX_ARG_STRLEN`).
pub(crate) const MAX_WORD_LEN: usize = 120 * 1024;
/// Reads stdin to its end before it runs the line, so the line sees an empty stdin.
pub(crate) const FROM_STDIN: &str = "eval \"$(cat)\"";

/// The command for the record.
pub(crate) fn words(line: String) -> Vec<String> {
    vec!["bash".to_owned(), "-c".to_owned(), line]
}

/// The command to run.
pub(crate) fn argv(line: &str) -> Vec<OsString> {
    let script = if line.len() > MAX_WORD_LEN { FROM_STDIN } else { line };
    ["bash", "-c", script].map(OsString::from).into()
}

/// The bytes for the stdin of this command.
pub(crate) fn input(words: &[String]) -> &[u8] {
    match words {
        [shell, flag, line] if shell == "bash" && flag == "-c" && line.len() > MAX_WORD_LEN => line.as_bytes(),
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_line_is_sent_through_stdin() {
        let short = words("ls".to_owned());
        assert_eq!(argv("ls"), ["bash", "-c", "ls"]);
        assert_eq!(input(&short), b"");
        let long = "x".repeat(MAX_WORD_LEN + 1);
        assert_eq!(argv(&long), ["bash", "-c", FROM_STDIN]);
        assert_eq!(input(&words(long.clone())), long.as_bytes());
        assert_eq!(input(&["python3".to_owned(), "-c".to_owned(), long]), b"");
    }
}
