//! Computes texts from constant parts: formats, joins, character numbers, simple encodings.

use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::arguments::Arguments;
use super::value::Value;
use crate::shell_syntax::escaped;

/// Maximum length of a computed text, and of a joined list.
pub(crate) const MAX_LEN: usize = 16 * 1024;
/// Maximum length of a text whose methods are evaluated. There may be many such calls.
pub(crate) const MAX_CALLED_LEN: usize = 2 * 1024;
const MAX_GAP: usize = 64;

pub(crate) fn character(number: i64) -> Option<String> {
    u32::try_from(number).ok().and_then(char::from_u32).map(String::from)
}

/// Fills `%s`, `%d`, `{}`, `{0}` and similar placeholders in order.
pub(crate) fn fill(template: &str, parts: &[String]) -> Option<String> {
    let mut whole = String::with_capacity(template.len());
    let mut rest = template;
    let mut next = 0;
    while let Some(at) = rest.find(['%', '{']) {
        whole.push_str(&rest[..at]);
        let gap = &rest[at..];
        let (length, number) = match gap.as_bytes() {
            [b'%', b's' | b'd' | b'c' | b'r', ..] => (2, None),
            [b'{', b'{', ..] => {
                whole.push('{');
                rest = &gap[2..];
                continue;
            }
            // The search for the end is limited, because the next placeholder would scan the same
            // text again.
            [b'{', ..] => match gap.bytes().take(MAX_GAP).position(|byte| byte == b'}') {
                Some(end) => (end + 1, gap[1..end].parse().ok()),
                None => return None,
            },
            _ => {
                whole.push_str(&gap[..1]);
                rest = &gap[1..];
                continue;
            }
        };
        whole.push_str(parts.get(number.unwrap_or(next)).map(String::as_str).unwrap_or_default());
        next += 1;
        rest = &gap[length..];
        if whole.len() > MAX_LEN {
            return None;
        }
    }
    whole.push_str(rest);
    Some(whole)
}

/// Joins texts with a separator, up to the maximum length.
pub(crate) fn join(texts: &[String], mark: &str) -> Option<String> {
    let length: usize = texts.iter().map(|text| text.len() + mark.len()).sum();
    (length <= MAX_LEN).then(|| texts.join(mark))
}

pub(crate) fn base64(text: &str) -> Option<String> {
    let text: String = text.split_ascii_whitespace().collect();
    let bytes = STANDARD.decode(&text).or_else(|_| STANDARD_NO_PAD.decode(&text)).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

pub(crate) fn hex(text: &str) -> Option<String> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let bytes: Option<Vec<u8>> =
        digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect();
    Some(String::from_utf8_lossy(&bytes?).into_owned())
}

pub(crate) fn rot13(text: &str) -> String {
    let turn = |character: char| match character {
        'a'..='z' => char::from((character as u8 - b'a' + 13) % 26 + b'a'),
        'A'..='Z' => char::from((character as u8 - b'A' + 13) % 26 + b'A'),
        other => other,
    };
    text.chars().map(turn).collect()
}

/// Backslash escapes that Python and JavaScript share.
pub(crate) fn unescape(written: &str) -> String {
    if !written.contains('\\') {
        return written.to_owned();
    }
    let mut plain = String::with_capacity(written.len());
    let mut rest = written;
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let Some(kind) = rest.chars().next() else { break };
        let after = &rest[kind.len_utf8()..];
        let (character, left) = match kind {
            '\n' => (None, after),
            'n' => (Some('\n'), after),
            't' => (Some('\t'), after),
            'r' => (Some('\r'), after),
            'x' => escaped(after, 2, 16),
            'u' if after.starts_with('{') => {
                let (character, left) = escaped(&after[1..], 6, 16);
                (character, left.strip_prefix('}').unwrap_or(left))
            }
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

/// Maximum length of a list that is reversed.
pub(crate) const MAX_TURNED: usize = 256;

/// Methods of lists of texts.
pub(crate) fn texts_method(texts: &[String], method: &str, arguments: &Arguments<'_>) -> Option<Value> {
    match method {
        "reverse" if texts.len() <= MAX_TURNED => Some(Value::Texts(Rc::new(texts.iter().rev().cloned().collect()))),
        "join" => Some(Value::Text(join(texts, arguments.text(0).unwrap_or(","))?.into())),
        _ => None,
    }
}

/// Methods of texts that both languages have, by the names of either.
pub(crate) fn text_method(text: &str, method: &str, arguments: &Arguments<'_>) -> Option<Value> {
    let first = || arguments.text(0);
    let done = match method {
        "lower" | "toLowerCase" | "casefold" => text.to_lowercase(),
        "upper" | "toUpperCase" => text.to_uppercase(),
        "strip" | "trim" if arguments.count() == 0 => text.trim().to_owned(),
        "decode" | "encode" | "toString" => text.to_owned(),
        "replace" | "replaceAll" => {
            let (from, to) = (first()?, arguments.text(1)?);
            if text.len().saturating_mul(to.len() + 1) > MAX_LEN {
                return None;
            }
            text.replace(from, to)
        }
        "concat" => {
            format!("{text}{}", arguments.all_texts()?.concat())
        }
        "split" => {
            let texts: Vec<String> = match first()? {
                "" => text.chars().take(MAX_TURNED).map(String::from).collect(),
                mark => text.split(mark).take(MAX_TURNED).map(str::to_owned).collect(),
            };
            return Some(Value::Texts(Rc::new(texts)));
        }
        _ => return None,
    };
    Some(Value::Text(done.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_text_is_computed() {
        assert_eq!(fill("%s-%d {x} {1}{0}%", &["a".into(), "b".into()]).as_deref(), Some("a-b  ba%"));
        assert_eq!(fill("{{x %", &[]).as_deref(), Some("{x %"));
        assert_eq!(fill(&"{0}".repeat(1000), &["a".repeat(1000)]), None);
        assert_eq!(base64("b3M=").as_deref(), Some("os"));
        assert_eq!(hex("6f 73").as_deref(), Some("os"));
        assert_eq!(hex("6é"), None);
        assert_eq!(rot13("flfgrz"), "system");
        assert_eq!(unescape(r"\x65\u0076\u{61}\154\q\"), "evalq");
    }
}
