//! A line for a shell as a command: the words that run it, and what it is read from where it is too long for one word.
//!
//! The kernel takes words of 128 KiB. A longer line comes in through the command's standard input, where nobody but the server
//! writes; what it reads itself is empty then as it always is. The record has the line whole either way.

use std::ffi::OsString;

const MAX_WORD_LEN: usize = 120 * 1024;
/// Reads all of its input, and then has none.
const FROM_INPUT: &str = "eval \"$(cat)\"";

/// As it was asked for.
pub(crate) fn words(line: String) -> Vec<String> {
    vec!["bash".to_owned(), "-c".to_owned(), line]
}

/// As it is run.
pub(crate) fn argv(line: &str) -> Vec<OsString> {
    let script = if line.len() > MAX_WORD_LEN { FROM_INPUT } else { line };
    ["bash", "-c", script].map(OsString::from).into()
}

/// What is written to the input of a command that has these words.
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
    fn a_long_line_is_read_from_the_input() {
        let short = words("ls".to_owned());
        assert_eq!(argv("ls"), ["bash", "-c", "ls"]);
        assert_eq!(input(&short), b"");
        let long = "x".repeat(MAX_WORD_LEN + 1);
        assert_eq!(argv(&long), ["bash", "-c", FROM_INPUT]);
        assert_eq!(input(&words(long.clone())), long.as_bytes());
        assert_eq!(input(&["python3".to_owned(), "-c".to_owned(), long]), b"");
    }
}
