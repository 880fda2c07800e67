//! Strangers' words, made short and harmless enough to be passed on.

/// At most so many characters, and a sign where something was left out.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A name for a file as a server proposes it: no path, no control characters, and never a name that means a directory.
pub(crate) fn file_name(proposed: &str) -> String {
    let last = proposed.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = last.chars().filter(|character| !character.is_control()).collect();
    let clean = clean.trim_matches(|character: char| character == '.' || character.is_whitespace());
    let mut end = clean.len().min(200);
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    if end == 0 { "download".to_owned() } else { clean[..end].to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposed_name_is_never_a_path() {
        for (proposed, name) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "passwd"),
            ("..\\..\\x.exe", "x.exe"),
            ("..", "download"),
            ("", "download"),
            ("a/", "download"),
            (".bashrc", "bashrc"),
            ("a\0b\nc", "abc"),
            ("年报.pdf", "年报.pdf"),
        ] {
            assert_eq!(file_name(proposed), name);
        }
        assert!(file_name(&"年".repeat(500)).len() <= 200);
    }

    #[test]
    fn long_words_are_cut_between_characters() {
        assert_eq!(cut("年报年报", 2), "年报…");
        assert_eq!(cut("ab", 2), "ab");
    }
}
