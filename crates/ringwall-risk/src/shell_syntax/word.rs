//! The value of a word after quote removal.
//!
//! A variable, a substitution or an arithmetic expansion stays in the word as written: a command
//! name with a `$` is in no list, and a script that contains one can still be parsed as a script.

use tree_sitter::Node;

use super::windows::is_windows_path;

/// A word in two forms.
#[derive(Debug, Clone, Default)]
pub struct Word {
    /// After quote removal.
    pub plain: String,
    /// Input of `expand`: a literal character that the shell would expand has a backslash before
    /// it, a variable is `${NAME}`, and a value that is known only at run time is `$()`.
    pub spelled: String,
    /// True if the value of a variable in it stays one word.
    pub is_quoted: bool,
}

/// The characters that `expand` interprets.
const ACTIVE: [char; 11] = ['\\', '*', '?', '[', ']', '{', '}', '~', '$', '`', ','];
const UNKNOWN: &str = "$()";

pub(super) fn word(node: Node<'_>, text: &str) -> Word {
    Word { plain: value(node, text), spelled: spell(node, text), is_quoted: is_quoted(node) }
}

fn is_quoted(node: Node<'_>) -> bool {
    let is_one = |node: Node<'_>| matches!(node.kind(), "string" | "translated_string");
    is_one(node) || node.kind() == "concatenation" && node.children(&mut node.walk()).any(is_one)
}

/// The value of a word node. Nodes that are no words return their source.
pub(super) fn value(node: Node<'_>, text: &str) -> String {
    match node.kind() {
        "command_name" => node.child(0).map(|inner| value_of_part(inner, text)).unwrap_or_default(),
        _ => value_of_part(node, text),
    }
}

pub(super) fn source<'a>(node: Node<'_>, text: &'a str) -> &'a str {
    text.get(node.byte_range()).unwrap_or_default()
}

fn value_of_part(node: Node<'_>, text: &str) -> String {
    if node.kind() != "concatenation" {
        return simple(node, text);
    }
    let mut whole = String::new();
    let mut cursor = node.walk();
    let mut at = node.start_byte();
    for part in node.children(&mut cursor) {
        whole.push_str(text.get(at..part.start_byte()).unwrap_or_default());
        whole.push_str(&simple(part, text));
        at = part.end_byte();
    }
    whole.push_str(text.get(at..node.end_byte()).unwrap_or_default());
    whole
}

fn simple(node: Node<'_>, text: &str) -> String {
    let written = source(node, text);
    match node.kind() {
        "word" => unescape(written, |_| true),
        "raw_string" => {
            written.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(written).to_owned()
        }
        "ansi_c_string" => match written.strip_prefix("$'").and_then(|rest| rest.strip_suffix('\'')) {
            Some(inner) => decode(inner),
            None => written.to_owned(),
        },
        "string" | "translated_string" => quoted(node, text),
        _ => written.to_owned(),
    }
}

fn spell(node: Node<'_>, text: &str) -> String {
    let mut node = node;
    while node.kind() == "command_name" {
        let Some(inner) = node.child(0) else { break };
        node = inner;
    }
    if node.kind() != "concatenation" {
        return spell_part(node, text);
    }
    let mut whole = String::new();
    let mut cursor = node.walk();
    let mut at = node.start_byte();
    for part in node.children(&mut cursor) {
        whole.push_str(&spell_bare(text.get(at..part.start_byte()).unwrap_or_default()));
        whole.push_str(&spell_part(part, text));
        at = part.end_byte();
    }
    whole
}

fn spell_part(node: Node<'_>, text: &str) -> String {
    let written = source(node, text);
    match node.kind() {
        "raw_string" | "ansi_c_string" => protect(&simple(node, text)),
        "string" | "translated_string" => read_quoted(node, text, protect, spell_part),
        "simple_expansion" | "expansion" => spell_variable(written),
        "command_substitution" | "process_substitution" | "arithmetic_expansion" => UNKNOWN.to_owned(),
        _ => spell_bare(written),
    }
}

fn protect(literal: &str) -> String {
    let mut spelled = String::with_capacity(literal.len());
    for character in literal.chars() {
        if ACTIVE.contains(&character) {
            spelled.push('\\');
        }
        spelled.push(character);
    }
    spelled
}

/// `$NAME`, `${NAME}` and the elements of an array. Other expansions depend on more than the value.
fn spell_variable(written: &str) -> String {
    let name = written.trim_start_matches('$').trim_start_matches('{').trim_end_matches('}');
    let name = name.strip_suffix("[@]").or_else(|| name.strip_suffix("[*]")).unwrap_or(name);
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    match !name.is_empty() && is_name(name) {
        true => format!("${{{name}}}"),
        false => UNKNOWN.to_owned(),
    }
}

/// Unquoted text. The shell would remove the backslashes of a Windows path; here they are kept,
/// because the author means the path.
fn spell_bare(written: &str) -> String {
    let means_path = is_windows_path(written);
    let mut spelled = String::with_capacity(written.len());
    let mut characters = written.chars();
    while let Some(character) = characters.next() {
        match character {
            '\\' if means_path => spelled.push_str("\\\\"),
            '\\' => match characters.next() {
                Some('\n') => {}
                Some(next) if ACTIVE.contains(&next) => spelled.extend(['\\', next]),
                Some(next) => spelled.push(next),
                None => spelled.push_str("\\\\"),
            },
            '$' => spelled.push_str("\\$"),
            '`' => {
                spelled.push_str(UNKNOWN);
                break;
            }
            other => spelled.push(other),
        }
    }
    spelled
}

/// Text in double quotes, where a backslash escapes only a few characters.
fn quoted(node: Node<'_>, text: &str) -> String {
    read_quoted(node, text, str::to_owned, |part, text| source(part, text).to_owned())
}

fn read_quoted(
    node: Node<'_>,
    text: &str,
    plain: impl Fn(&str) -> String,
    expanded: impl Fn(Node<'_>, &str) -> String,
) -> String {
    let written = source(node, text);
    let before = written.find('"').map_or(0, |quote| quote + 1);
    let end = node.end_byte().saturating_sub(usize::from(written.ends_with('"')));
    let literal = |from: usize, to: usize| {
        let is_special = |character| matches!(character, '$' | '`' | '"' | '\\' | '\n');
        plain(&unescape(text.get(from..to).unwrap_or_default(), is_special))
    };
    let mut whole = String::new();
    let mut at = node.start_byte() + before;
    let mut cursor = node.walk();
    for part in node.named_children(&mut cursor) {
        if part.kind() != "string_content" && part.start_byte() >= at {
            whole.push_str(&literal(at, part.start_byte()));
            whole.push_str(&expanded(part, text));
            at = part.end_byte();
        }
    }
    whole.push_str(&literal(at, end));
    whole
}

/// Removes the backslash before characters that it escapes, and a backslash-newline.
pub(super) fn unescape(written: &str, is_special: impl Fn(char) -> bool) -> String {
    let mut plain = String::with_capacity(written.len());
    let mut characters = written.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('\n') => {}
            Some(next) if is_special(next) => plain.push(next),
            Some(next) => plain.extend(['\\', next]),
            None => plain.push('\\'),
        }
    }
    plain
}

/// `$'…'`.
fn decode(written: &str) -> String {
    let mut plain = String::with_capacity(written.len());
    let mut rest = written;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(kind) = rest.chars().next() else {
            plain.push('\\');
            break;
        };
        let after = &rest[kind.len_utf8()..];
        let (character, left) = match kind {
            'n' => (Some('\n'), after),
            't' => (Some('\t'), after),
            'r' => (Some('\r'), after),
            'a' => (Some('\x07'), after),
            'b' => (Some('\x08'), after),
            'e' | 'E' => (Some('\x1b'), after),
            'f' => (Some('\x0c'), after),
            'v' => (Some('\x0b'), after),
            'x' => escaped(after, 2, 16),
            'u' => escaped(after, 4, 16),
            'U' => escaped(after, 8, 16),
            '0'..='7' => escaped(rest, 3, 8),
            other => (Some(other), after),
        };
        plain.extend(character);
        rest = left;
    }
    plain.push_str(rest);
    plain
}

/// The character of an octal or hexadecimal escape, and the text after it.
pub fn escaped(digits: &str, most: usize, radix: u32) -> (Option<char>, &str) {
    let count = digits.chars().take(most).take_while(|digit| digit.is_digit(radix)).count();
    let (digits, rest) = digits.split_at(count);
    (u32::from_str_radix(digits, radix).ok().and_then(char::from_u32), rest)
}

/// The text in backquotes as the shell parses it, with one level of backslashes removed.
pub(super) fn in_backquotes(written: &str) -> String {
    unescape(written, |character| matches!(character, '$' | '`' | '\\'))
}

pub(super) fn is_word(node: Node<'_>) -> bool {
    matches!(node.kind(), "word" | "string" | "raw_string" | "ansi_c_string" | "concatenation" | "translated_string")
}

#[cfg(test)]
mod tests {
    use tree_sitter::{Parser, Tree};

    use super::*;

    fn parse(line: &str) -> Tree {
        let mut parser = Parser::new();
        parser.set_language(&tree_sitter_bash::LANGUAGE.into()).expect("a supported grammar");
        parser.parse(line, None).expect("a tree")
    }

    /// The arguments of an `echo`.
    fn words(line: &str) -> Vec<String> {
        let tree = parse(line);
        let command = tree.root_node().child(0).expect("a command");
        let mut cursor = command.walk();
        command.children_by_field_name("argument", &mut cursor).map(|word| value(word, line)).collect()
    }

    #[test]
    fn spelled_form_escapes_literal_characters() {
        let spelled = |line: &str| {
            let tree = parse(line);
            let command = tree.root_node().child(0).expect("a command");
            let mut cursor = command.walk();
            let words = command.children_by_field_name("argument", &mut cursor);
            words.map(|node| word(node, line).spelled).collect::<Vec<_>>()
        };
        let table: [(&str, &[&str]); 10] = [
            (r"echo a\ b\;c a*b a\*b", &["a b;c", "a*b", r"a\*b"]),
            (r#"echo "a*b" 'a?b' a"*"'*'*"#, &[r"a\*b", r"a\?b", r"a\*\**"]),
            (r#"echo $X ${X} "$X/a" ${X[@]} "a${X}b""#, &["${X}", "${X}", "${X}/a", "${X}", "a${X}b"]),
            (r"echo ${X:-/d} $(ls) $((1)) $1 $@ `ls`", &["$()", "$()", "$()", "${1}", "$()", "$()"]),
            (r"echo '$X' \$X", &[r"\$X", r"\$X"]),
            (r"echo ~/a '~/a' \~/a", &["~/a", r"\~/a", r"\~/a"]),
            (r"echo {a,b}/c '{a,b}'", &["{a,b}/c", r"\{a\,b\}"]),
            (r"echo C:\Users\x C:\Users\*.txt", &[r"C:\\Users\\x", r"C:\\Users\\*.txt"]),
            (r"echo 'C:\Users' \\srv\share", &[r"C:\\Users", r"\\\\srv\\share"]),
            (r"echo <(ls) a=b", &["$()", "a=b"]),
        ];
        for (line, expected) in &table {
            assert_eq!(spelled(line), *expected, "{line}");
        }
    }

    #[test]
    fn plain_form_removes_quotes_and_keeps_expansions() {
        let table: [(&str, &[&str]); 12] = [
            (r"echo a\ b\;c", &["a b;c"]),
            (r#"echo "a b" 'c "d' e"f"'g'"#, &["a b", "c \"d", "efg"]),
            (r#"echo "a\"b\$c\`d\\e\f""#, &["a\"b$c`d\\e\\f"]),
            (r#"echo 'it'"'"'s'"#, &["it's"]),
            (r#"echo "x $HOME y" $X"b""#, &["x $HOME y", "$Xb"]),
            (r#"echo "a${x}b$(date)c""#, &["a${x}b$(date)c"]),
            (r"echo $'a\nb\x41\u00e9\101\'\\'", &["a\nbAéA'\\"]),
            ("echo 1 -1 - --", &["1", "-1", "-", "--"]),
            ("echo {a,b} {} {1..3}", &["{a,b}", "{}", "{1..3}"]),
            ("echo \"\" ''", &["", ""]),
            ("echo é\"ü\" 中文", &["éü", "中文"]),
            ("echo --a='b c' s/a/b/", &["--a=b c", "s/a/b/"]),
        ];
        for (line, expected) in &table {
            assert_eq!(words(line), *expected, "{line}");
        }
    }
}
