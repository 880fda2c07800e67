//! What a `SKILL.md` says of its skill: a name and a description, from its YAML front matter or else from plain lines.
//!
//! The text is a stranger's. The parser is asked for its events one by one and nothing is built of them, so an alias
//! stands for one scalar or for nothing, and no nesting is followed further than it can be counted.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// So much of a file is looked at.
pub(crate) const BYTES_READ: u64 = 64 * 1024;
/// Longer texts are cut; the rules for skills end at 1,024 characters.
const SHOWN: usize = 4096;
const MAX_DEPTH: usize = 64;
const FENCE: &str = "---";
const DOCUMENT_END: &str = "...";

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    pub(crate) form: Form,
}

/// Where it was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Form {
    FrontMatter,
    /// There is front matter that is no YAML mapping; lines were read instead.
    Broken,
    #[default]
    Lines,
}

pub(crate) fn read(text: &str) -> About {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let Some(block) = block(text) else { return lines(text, Form::Lines) };
    match mapping(block) {
        Some(about) => about,
        None => lines(text, Form::Broken),
    }
}

/// What is between the fences, if the text begins with one.
fn block(text: &str) -> Option<&str> {
    let is_fence = |line: &str| line.trim_end() == FENCE;
    let first = text.split_inclusive('\n').next().filter(|line| is_fence(line))?;
    let inside = &text[first.len()..];
    let mut end = 0;
    for line in inside.split_inclusive('\n') {
        if is_fence(line) || line.trim_end() == DOCUMENT_END {
            return Some(&inside[..end]);
        }
        end += line.len();
    }
    None
}

/// What a key has as its value.
enum Value {
    Text(String),
    Nothing,
}

/// Reads the outermost mapping, or nothing if there is none.
fn mapping(block: &str) -> Option<About> {
    let mut about = About { form: Form::FrontMatter, ..About::default() };
    let mut scalars: HashMap<usize, String> = HashMap::new();
    let mut depth = 0_usize;
    let mut key: Option<Option<String>> = None;
    let mut found = false;
    for event in Parser::new_from_str(block) {
        let value = match event.ok()?.0 {
            Event::MappingStart(..) if depth == 0 && !found => {
                found = true;
                depth = 1;
                continue;
            }
            Event::MappingStart(..) | Event::SequenceStart(..) if (1..MAX_DEPTH).contains(&depth) => {
                depth += 1;
                continue;
            }
            // A sequence at the top, a second document, or too deep.
            Event::MappingStart(..) | Event::SequenceStart(..) => return None,
            Event::MappingEnd | Event::SequenceEnd => {
                depth = depth.checked_sub(1)?;
                // A collection was the key or the value.
                if depth == 1 { Value::Nothing } else { continue }
            }
            Event::Scalar(text, style, anchor, _) => {
                let value = scalar(&text, style);
                if let (Value::Text(text), true) = (&value, anchor > 0) {
                    scalars.insert(anchor, text.clone());
                }
                value
            }
            Event::Alias(anchor) => scalars.get(&anchor).cloned().map_or(Value::Nothing, Value::Text),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentStart(_) | Event::DocumentEnd => {
                continue;
            }
        };
        match depth {
            1 => {}
            // No mapping at all.
            0 => return None,
            _ => continue,
        }
        match (key.take(), value) {
            (None, Value::Text(text)) => key = Some(Some(text)),
            (None, Value::Nothing) => key = Some(None),
            (Some(Some(name)), Value::Text(text)) => about.note(&name, &text),
            (Some(_), _) => {}
        }
    }
    found.then_some(about)
}

fn scalar(text: &str, style: ScalarStyle) -> Value {
    let is_null = style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL");
    if is_null { Value::Nothing } else { Value::Text(text.to_owned()) }
}

/// `name:` and `description:` at the beginning of lines, in any letter case, also with the wide colon.
fn lines(text: &str, form: Form) -> About {
    let mut about = About { form, ..About::default() };
    for line in text.lines() {
        let Some((key, value)) = line.split_once([':', '：']) else { continue };
        about.note(key.trim(), unquoted(value.trim()));
    }
    about
}

fn unquoted(text: &str) -> &str {
    let inside = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

impl About {
    /// The first of two counts, and an empty one is none.
    fn note(&mut self, key: &str, value: &str) {
        let place = match key {
            key if key.eq_ignore_ascii_case("name") => &mut self.name,
            key if key.eq_ignore_ascii_case("description") => &mut self.description,
            _ => return,
        };
        let value = value.trim();
        if place.is_none() && !value.is_empty() {
            *place = Some(cut(value).into_owned());
        }
    }
}

fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str) -> (Option<String>, Option<String>, Form) {
        let About { name, description, form } = read(text);
        (name, description, form)
    }

    fn both(name: &str, description: &str, form: Form) -> (Option<String>, Option<String>, Form) {
        (Some(name.to_owned()), Some(description.to_owned()), form)
    }

    #[test]
    fn front_matter_is_read_by_a_real_parser() {
        for (text, name, description) in [
            ("---\nname: pdf\ndescription: Reads PDFs.\n---\n# x\nname: other", "pdf", "Reads PDFs."),
            ("\u{feff}---\r\nname: pdf\r\ndescription: Reads PDFs.\r\n---\r\n", "pdf", "Reads PDFs."),
            (
                "---\nmetadata:\n  name: inner\n  description: inner\nname: 'a: b'\ndescription: \"c\\n d\"\n---\n",
                "a: b",
                "c\n d",
            ),
            ("---\ndescription: >\n  folded\n  text\nname: |-\n  kept\n---\n", "kept", "folded text"),
            ("---\nallowed: [name, {description: no}]\nname: x # comment\ndescription: y\n...\n", "x", "y"),
            ("---\nbase: &b shared\nname: *b\ndescription: *b\n---\n", "shared", "shared"),
            ("---\nName: x\nDESCRIPTION: y\nname: z\n---", "x", "y"),
            ("---\n? [name]\n: no\nname: x\ndescription: y\n---", "x", "y"),
            ("---\nname: 数据\ndescription: 分析\n---", "数据", "分析"),
            ("---\nname: 42\ndescription: true\n---", "42", "true"),
        ] {
            assert_eq!(found(text), both(name, description, Form::FrontMatter), "{text:?}");
        }
        let empty = "---\nname:\ndescription: ~\nother: 1\n---\nname: not this\n";
        assert_eq!(found(empty), (None, None, Form::FrontMatter));
        assert_eq!(found("---\nname: [a]\ndescription: {b: c}\n---"), (None, None, Form::FrontMatter));
    }

    #[test]
    fn otherwise_lines_are_read() {
        assert_eq!(
            found("# Title\nName： 技能\n  description :  does it  \nname: later"),
            both("技能", "does it", Form::Lines)
        );
        assert_eq!(found("NAME: \"q\"\nDescription: 'r'"), both("q", "r", Form::Lines));
        assert_eq!(found(""), (None, None, Form::Lines));
        assert_eq!(found("no such thing\nfilename: x"), (None, None, Form::Lines));
        // No mapping, not YAML, or without an end.
        for broken in ["---\nname: a: b: c\ndescription: d\n---", "---\n- x\n---\nname: a: b: c\ndescription: d"] {
            assert_eq!(found(broken), both("a: b: c", "d", Form::Broken), "{broken:?}");
        }
        assert_eq!(found("---\nname: x\ndescription: y"), both("x", "y", Form::Lines));
        assert_eq!(found("---\nscalar\n---\nname: x\ndescription: y"), both("x", "y", Form::Broken));
    }

    #[test]
    fn hostile_yaml_costs_no_more_than_its_length() {
        let mut laughs = String::from("---\na0: &a0 lol\n");
        for level in 1..1000 {
            let below = level - 1;
            laughs += &format!("a{level}: &a{level} [*a{below}, *a{below}, *a{below}, *a{below}]\n");
        }
        laughs += "name: *a999\ndescription: *a0\n---\n";
        assert_eq!(found(&laughs), (None, Some("lol".to_owned()), Form::FrontMatter));
        for deep in ["[", "{a: ", "- ", "? ", "!!a &b ", "- - "] {
            let text = format!("---\nname: x\nb: {}\n---\n", deep.repeat(20_000));
            let _ = read(&text);
            let _ = read(&format!("---\n{}\n---\n", deep.repeat(20_000)));
        }
        let long = format!("---\nname: {}\ndescription: y\n---\n", "é".repeat(20_000));
        assert_eq!(read(&long).name.unwrap().chars().count(), SHOWN + 1);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "(---|\n|name|description|[:：&*\\[\\]{}\"'|>#!?, é-]|\\PC){0,60}") {
            let _ = read(&text);
            let _ = read(&format!("---\n{text}\n---\n"));
        }

        /// Plain texts come back as they were written, whoever writes the YAML.
        #[test]
        fn quoted_texts_come_back(name in "[a-zA-Z0-9é :#'-]{1,30}", description in "[^\\x00-\\x1f\\x7f-\\x9f\u{feff}\u{fffe}\u{ffff}]{1,40}") {
            prop_assume!(!name.trim().is_empty() && !description.trim().is_empty());
            let quote = |text: &str| serde_json::to_string(text).unwrap();
            let about = read(&format!("---\nname: {}\ndescription: {}\n---\n", quote(&name), quote(&description)));
            prop_assert_eq!(about.name.as_deref(), Some(name.trim()));
            prop_assert_eq!(about.description.as_deref(), Some(description.trim()));
        }
    }
}
