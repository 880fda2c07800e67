//! Shortens and sanitizes untrusted text.

const MAX_NAME_LEN: usize = 120;
const MAX_EXTENSION_LEN: usize = 16;

/// At most `max` characters, followed by `…` if text was cut.
pub(crate) fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A safe file name from an untrusted one: a single visible path component of plain characters with
/// limited length.
pub fn file_name(proposed: &str) -> String {
    let last = proposed.rsplit(['/', '\\']).next().unwrap_or_default();
    let kept = |one: char| one.is_alphanumeric() || matches!(one, '.' | '-' | '_' | ' ' | '(' | ')' | '+' | ',');
    let clean: String = last.chars().map(|one| if kept(one) { one } else { '_' }).collect();
    let clean = clean.trim_start_matches(['.', '-', ' ']).trim_end_matches(['.', ' ']);
    let short = |text: &str, max: usize| text[..text.floor_char_boundary(max)].to_owned();
    match clean.rsplit_once('.') {
        _ if clean.is_empty() => "file".to_owned(),
        Some((stem, ending)) if clean.len() > MAX_NAME_LEN && ending.len() <= MAX_EXTENSION_LEN => {
            format!("{}.{ending}", short(stem, MAX_NAME_LEN - ending.len() - 1))
        }
        _ => short(clean, MAX_NAME_LEN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_name_becomes_one_safe_component() {
        for (proposed, name) in [
            ("report.pdf", "report.pdf"),
            ("../../etc/passwd", "passwd"),
            ("..\\..\\x.exe", "x.exe"),
            ("..", "file"),
            ("", "file"),
            ("a/", "file"),
            (".bashrc", "bashrc"),
            ("-rf", "rf"),
            ("a\0b\nc", "a_b_c"),
            ("Ünïcode 报告.txt", "Ünïcode 报告.txt"),
            ("con\u{202e}fdp.exe", "con_fdp.exe"),
        ] {
            assert_eq!(file_name(proposed), name);
        }
        let long = file_name(&format!("{}.tar.gz", "年".repeat(500)));
        assert!(long.ends_with(".gz") && long.len() <= MAX_NAME_LEN, "{long}");
        assert!(file_name(&"年".repeat(500)).len() <= MAX_NAME_LEN);
    }

    #[test]
    fn cut_keeps_whole_characters() {
        assert_eq!(cut("年报年报", 2), "年报…");
        assert_eq!(cut("ab", 2), "ab");
    }
}
