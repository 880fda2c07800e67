//! The input of a rule, a file whose comments and literals can be blanked, and its output, a finding.
//!
//! The lexer knows only comments and literals of Rust. Text that it misreads stays visible, so a rule reports too much
//! rather than too little.

use std::fmt;

/// One broken rule: where, which, and what to do about it.
pub(crate) struct Finding {
    pub(crate) file: String,
    pub(crate) line: usize,
    rule: String,
    remedy: &'static str,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, rule, remedy } = self;
        write!(formatter, "{file}:{line}: {rule}\n    {remedy}")
    }
}

pub(crate) fn finding(file: &str, line: usize, rule: impl Into<String>, remedy: &'static str) -> Finding {
    Finding { file: file.to_owned(), line, rule: rule.into(), remedy }
}

/// A file of the tree: its path from the root, its text, and its text without comments and literals.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) code: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), code: blank_comments_and_literals(text) }
    }

    pub(crate) fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The lines whose code (not comments, not literals) has `word` as a whole identifier.
    pub(crate) fn lines_with(&self, word: &str) -> impl Iterator<Item = usize> {
        lines_matching(&self.code, move |line| words(line).any(|found| found == word))
    }
}

pub(crate) fn lines_matching(text: &str, matches: impl Fn(&str) -> bool) -> impl Iterator<Item = usize> {
    text.lines().enumerate().filter_map(move |(index, line)| matches(line).then_some(index + 1))
}

/// Identifiers and keywords: `unsafe_code` is one word and not a mention of `unsafe`.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !(character.is_alphanumeric() || character == '_')).filter(|word| !word.is_empty())
}

/// Replaces comments, strings and character literals by spaces, keeping every line where it was.
fn blank_comments_and_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    let mut after_word = false;
    while let Some(character) = rest.chars().next() {
        let hidden = if after_word { 0 } else { prefixed_literal(rest) };
        let hidden = hidden.max(comment(rest)).max(quoted(rest, 0)).max(character_literal(rest));
        let taken = if hidden > 0 { hidden } else { character.len_utf8() };
        let (piece, left) = rest.split_at(taken);
        if hidden > 0 {
            code.extend(piece.chars().map(|each| if each == '\n' { '\n' } else { ' ' }));
        } else {
            code.push(character);
        }
        after_word = hidden == 0 && (character.is_alphanumeric() || character == '_');
        rest = left;
    }
    code
}

/// The length of the comment that `text` starts with, or 0. Block comments nest.
fn comment(text: &str) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if !text.starts_with("/*") {
        return 0;
    }
    let (mut depth, mut at) = (0_usize, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of the plain string that starts after `prefix` bytes of `text`, the prefix included, or 0.
fn quoted(text: &str, prefix: usize) -> usize {
    if !text.get(prefix..).is_some_and(|rest| rest.starts_with('"')) {
        return 0;
    }
    let mut escaped = false;
    for (index, byte) in text.bytes().enumerate().skip(prefix + 1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a literal with a letter before its quote (`b"…"`, `c"…"`, `r#"…"#` and their mixtures), or 0.
fn prefixed_literal(text: &str) -> usize {
    let letters = text.bytes().take_while(u8::is_ascii_lowercase).count();
    let (prefix, rest) = text.split_at(letters);
    match prefix {
        "b" | "c" => quoted(text, letters),
        "r" | "br" | "cr" => {
            let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
            let opening = letters + hashes + 1;
            if !text[letters + hashes..].starts_with('"') {
                return 0;
            }
            let closing = format!("\"{}", "#".repeat(hashes));
            text[opening..].find(&closing).map_or(text.len(), |end| opening + end + closing.len())
        }
        _ => 0,
    }
}

/// The length of the character literal that `text` starts with, or 0. A lifetime has no closing quote.
fn character_literal(text: &str) -> usize {
    let Some(inside) = text.strip_prefix('\'') else {
        return 0;
    };
    let mut characters = inside.char_indices();
    match characters.next() {
        Some((_, '\\')) => {
            characters.next();
            characters.find(|(_, each)| *each == '\'').map_or(0, |(index, _)| index + 2)
        }
        Some(_) => characters.next().filter(|(_, each)| *each == '\'').map_or(0, |(index, _)| index + 2),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked() {
        let text = r##"let a = "unsafe \" unsafe"; // unsafe
/* unsafe /* unsafe */ unsafe */ let b = 'u'; let c: &'static str = r#"unsafe " unsafe"#;
let d = b"unsafe"; let e = '\''; let f = br"unsafe\"; let g = '"'; unsafe { h() }
"##;
        let source = Source::new("a.rs", text);
        assert_eq!(source.lines_with("unsafe").collect::<Vec<_>>(), [3], "{}", source.code);
        assert_eq!(source.lines_with("static").collect::<Vec<_>>(), [2], "{}", source.code);
        assert_eq!(source.code.lines().count(), text.lines().count());
    }

    #[test]
    fn multiline_string_keeps_line_numbers() {
        let source = Source::new("a.rs", "let a = \"one\n two\n\";\nunsafe {}\n");
        assert_eq!(source.lines_with("unsafe").collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn unterminated_literal_or_comment_does_not_hang() {
        for text in ["/* open", "\"open", "r#\"open\"", "'", "'\\", "b\"", "é'é"] {
            assert_eq!(Source::new("a.rs", text).code.lines().count(), 1, "{text}");
        }
    }

    #[test]
    fn longer_identifier_does_not_match_word() {
        let source = Source::new("a.rs", "#![expect(unsafe_code, undocumented_unsafe_blocks)]");
        assert_eq!(source.lines_with("unsafe").count(), 0);
    }
}
