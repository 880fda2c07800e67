//! What a word of a line is when the shell has taken its quotes away.
//!
//! What only the shell can know while it runs (a variable, a substitution, a sum) stays in the word as it was written: a
//! name with a `$` in it is in no list, and a script with one in it can still be read as a script.

use tree_sitter::Node;

/// The words that follow are arguments, names or targets of redirections; anything else is given as it stands.
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

/// Text in double quotes, where a backslash means something before few characters only.
fn quoted(node: Node<'_>, text: &str) -> String {
    let written = source(node, text);
    let before = written.find('"').map_or(0, |quote| quote + 1);
    let end = node.end_byte().saturating_sub(usize::from(written.ends_with('"')));
    let literal = |from: usize, to: usize| {
        let is_special = |character| matches!(character, '$' | '`' | '"' | '\\' | '\n');
        unescape(text.get(from..to).unwrap_or_default(), is_special)
    };
    let mut whole = String::new();
    let mut at = node.start_byte() + before;
    let mut cursor = node.walk();
    for part in node.named_children(&mut cursor) {
        if part.kind() != "string_content" && part.start_byte() >= at {
            whole.push_str(&literal(at, part.start_byte()));
            whole.push_str(source(part, text));
            at = part.end_byte();
        }
    }
    whole.push_str(&literal(at, end));
    whole
}

/// Takes the backslash away before characters that it makes plain; one before the end of a line goes with it.
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
            'x' => number(after, 2, 16),
            'u' => number(after, 4, 16),
            'U' => number(after, 8, 16),
            '0'..='7' => number(rest, 3, 8),
            other => (Some(other), after),
        };
        plain.extend(character);
        rest = left;
    }
    plain.push_str(rest);
    plain
}

fn number(digits: &str, most: usize, radix: u32) -> (Option<char>, &str) {
    let count = digits.chars().take(most).take_while(|digit| digit.is_digit(radix)).count();
    let (digits, rest) = digits.split_at(count);
    (u32::from_str_radix(digits, radix).ok().and_then(char::from_u32), rest)
}

#[cfg(test)]
mod tests {
    use super::super::grammar::{Budget, parse};
    use super::*;

    /// The arguments of an `echo`.
    fn words(line: &str) -> Vec<String> {
        let tree = parse(line, &mut Budget::default()).expect("a good line");
        let command = tree.root_node().child(0).expect("a command");
        let mut cursor = command.walk();
        command.children_by_field_name("argument", &mut cursor).map(|word| value(word, line)).collect()
    }

    #[test]
    fn quotes_go_and_what_only_the_shell_knows_stays() {
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
