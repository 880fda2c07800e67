//! Reads name and description of a skill from its `SKILL.md`.
//!
//! Source is the YAML front matter, or else lines that start with `name:` and `description:`. The
//! text is untrusted. The YAML parser is used as a stream of events and no tree is built: an alias
//! resolves to a scalar or to nothing, so that nested aliases cannot multiply. Nesting is counted
//! and limited to 64 levels.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle};

/// How much of a `SKILL.md` is read.
pub(crate) const MAX_READ_BYTES: u64 = 64 * 1024;
/// Longer values are truncated. The agentskills rules allow 1,024 characters, so their warning
/// still applies.
const MAX_VALUE_CHARS: usize = 4096;
const MAX_DEPTH: usize = 64;
const FENCE: &str = "---";
const DOCUMENT_END: &str = "...";

/// Limits of the agentskills rules.
const MAX_NAME_CHARS: usize = 64;
const MAX_DESCRIPTION_CHARS: usize = 1024;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SkillMetadata {
    pub(crate) name: Option<String>,
    pub(crate) description: Option<String>,
    source: Source,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Source {
    FrontMatter,
    /// Lines, because the front matter is not a YAML mapping.
    LinesAfterInvalidFrontMatter,
    #[default]
    Lines,
}

impl SkillMetadata {
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match front_matter(text) {
            None => Self::from_lines(text, Source::Lines),
            Some(yaml) => {
                Self::from_yaml(yaml).unwrap_or_else(|| Self::from_lines(text, Source::LinesAfterInvalidFrontMatter))
            }
        }
    }

    /// `None` if the text is not exactly one YAML mapping.
    fn from_yaml(yaml: &str) -> Option<Self> {
        let mut metadata = Self { source: Source::FrontMatter, ..Self::default() };
        let mut anchors: HashMap<usize, String> = HashMap::new();
        let mut depth = 0_usize;
        // The key whose value comes next; its text is `None` for a null, a collection or an
        // unresolved alias.
        let mut key: Option<Option<String>> = None;
        let mut has_mapping = false;
        for event in Parser::new_from_str(yaml) {
            let value = match event.ok()?.0 {
                Event::MappingStart(..) if depth == 0 && !has_mapping => {
                    has_mapping = true;
                    depth = 1;
                    continue;
                }
                Event::MappingStart(..) | Event::SequenceStart(..) if (1..MAX_DEPTH).contains(&depth) => {
                    depth += 1;
                    continue;
                }
                // A sequence at the top, a second document, or nested too deeply.
                Event::MappingStart(..) | Event::SequenceStart(..) => return None,
                Event::MappingEnd | Event::SequenceEnd => {
                    depth = depth.checked_sub(1)?;
                    // At depth 1 a collection was the key or the value.
                    if depth == 1 { None } else { continue }
                }
                Event::Scalar(text, style, anchor, _) => {
                    let value = (!is_null(&text, style)).then(|| text.into_owned());
                    if let (Some(text), true) = (&value, anchor > 0) {
                        anchors.insert(anchor, text.clone());
                    }
                    value
                }
                Event::Alias(anchor) => anchors.get(&anchor).cloned(),
                Event::Nothing
                | Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd => continue,
            };
            match depth {
                1 => {}
                // A scalar at the top.
                0 => return None,
                _ => continue,
            }
            match (key.take(), value) {
                (None, value) => key = Some(value),
                (Some(Some(key)), Some(value)) => metadata.set(&key, &value),
                (Some(_), _) => {}
            }
        }
        has_mapping.then_some(metadata)
    }

    /// Keys match in any letter case; the full-width colon (U+FF1A) counts too.
    fn from_lines(text: &str, source: Source) -> Self {
        let mut metadata = Self { source, ..Self::default() };
        for line in text.lines() {
            let Some((key, value)) = line.split_once([':', '：']) else { continue };
            metadata.set(key.trim(), unquote(value.trim()));
        }
        metadata
    }

    /// Keeps the first value that is not empty; ignores other keys.
    fn set(&mut self, key: &str, value: &str) {
        let field = match key {
            key if key.eq_ignore_ascii_case("name") => &mut self.name,
            key if key.eq_ignore_ascii_case("description") => &mut self.description,
            _ => return,
        };
        let value = value.trim();
        if field.is_none() && !value.is_empty() {
            *field = Some(truncate(value).into_owned());
        }
    }

    /// One sentence for each agentskills rule that the skill breaks. It is listed and runs
    /// nevertheless.
    pub(crate) fn warnings(&self, folder: &str) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |text: String| warnings.push(text);
        if self.source == Source::LinesAfterInvalidFrontMatter {
            warn(
                "The front matter is not a YAML mapping; 'name:' and 'description:' lines were used instead."
                    .to_owned(),
            );
        }
        match &self.name {
            None => warn("SKILL.md has no name.".to_owned()),
            Some(name) => {
                if name.chars().count() > MAX_NAME_CHARS {
                    warn(format!("The name is longer than {MAX_NAME_CHARS} characters."));
                }
                if !name.chars().all(|character| character == '-' || is_lowercase_or_digit(character)) {
                    warn("The name contains characters other than lower-case letters, digits and '-'.".to_owned());
                }
                if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
                    warn("The name starts or ends with '-', or contains '--'.".to_owned());
                }
                if name != folder {
                    warn(format!("The name differs from the name of the skill's directory, '{folder}'."));
                }
            }
        }
        match &self.description {
            None => warn("SKILL.md has no description.".to_owned()),
            Some(description) if description.chars().count() > MAX_DESCRIPTION_CHARS => {
                warn(format!("The description is longer than {MAX_DESCRIPTION_CHARS} characters."));
            }
            Some(_) => {}
        }
        warnings
    }
}

/// The text between the fences. `None` unless the first line is a fence and a second one follows.
fn front_matter(text: &str) -> Option<&str> {
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

fn is_null(text: &str, style: ScalarStyle) -> bool {
    style == ScalarStyle::Plain && matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

fn unquote(text: &str) -> &str {
    let inside = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

fn truncate(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_VALUE_CHARS) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}

/// Letters of scripts without case count as lower case.
fn is_lowercase_or_digit(character: char) -> bool {
    character.is_alphanumeric() && character.to_lowercase().eq([character])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn metadata(name: Option<&str>, description: Option<&str>, source: Source) -> SkillMetadata {
        SkillMetadata { name: name.map(str::to_owned), description: description.map(str::to_owned), source }
    }

    #[track_caller]
    fn assert_parsed(text: &str, name: &str, description: &str, source: Source) {
        assert_eq!(SkillMetadata::parse(text), metadata(Some(name), Some(description), source), "{text:?}");
    }

    #[test]
    fn front_matter_is_parsed_as_yaml() {
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
            assert_parsed(text, name, description, Source::FrontMatter);
        }
    }

    #[test]
    fn null_or_collection_is_no_value() {
        for text in
            ["---\nname:\ndescription: ~\nother: 1\n---\nname: not this\n", "---\nname: [a]\ndescription: {b: c}\n---"]
        {
            assert_eq!(SkillMetadata::parse(text), metadata(None, None, Source::FrontMatter), "{text:?}");
        }
    }

    #[test]
    fn text_without_front_matter_is_parsed_by_lines() {
        let text = "# Title\nName： 技能\n  description :  does it  \nname: later";
        assert_parsed(text, "技能", "does it", Source::Lines);
        assert_parsed("NAME: \"q\"\nDescription: 'r'", "q", "r", Source::Lines);
    }

    #[test]
    fn text_without_keys_has_no_values() {
        for text in ["", "no such thing\nfilename: x"] {
            assert_eq!(SkillMetadata::parse(text), metadata(None, None, Source::Lines), "{text:?}");
        }
    }

    #[test]
    fn unclosed_front_matter_is_parsed_by_lines() {
        assert_parsed("---\nname: x\ndescription: y", "x", "y", Source::Lines);
    }

    #[test]
    fn invalid_front_matter_is_parsed_by_lines() {
        let source = Source::LinesAfterInvalidFrontMatter;
        assert_parsed("---\nname: a: b: c\ndescription: d\n---", "a: b: c", "d", source);
        assert_parsed("---\n- x\n---\nname: a: b: c\ndescription: d", "a: b: c", "d", source);
        assert_parsed("---\nscalar\n---\nname: x\ndescription: y", "x", "y", source);
    }

    #[test]
    fn nested_aliases_are_not_expanded() {
        let mut yaml = String::from("---\na0: &a0 lol\n");
        for level in 1..1000 {
            let below = level - 1;
            yaml += &format!("a{level}: &a{level} [*a{below}, *a{below}, *a{below}, *a{below}]\n");
        }
        yaml += "name: *a999\ndescription: *a0\n---\n";
        assert_eq!(SkillMetadata::parse(&yaml), metadata(None, Some("lol"), Source::FrontMatter));
    }

    #[test]
    fn deep_nesting_does_not_overflow_stack() {
        for nesting in ["[", "{a: ", "- ", "? ", "!!a &b ", "- - "] {
            let nested = nesting.repeat(20_000);
            SkillMetadata::parse(&format!("---\nname: x\nb: {nested}\n---\n"));
            SkillMetadata::parse(&format!("---\n{nested}\n---\n"));
        }
    }

    #[test]
    fn long_value_is_truncated() {
        let text = format!("---\nname: {}\ndescription: y\n---\n", "é".repeat(20_000));
        assert_eq!(SkillMetadata::parse(&text).name.unwrap().chars().count(), MAX_VALUE_CHARS + 1);
    }

    fn count_warnings(name: Option<&str>, description: Option<&str>) -> usize {
        metadata(name, description, Source::FrontMatter).warnings(name.unwrap_or("folder")).len()
    }

    #[test]
    fn valid_name_has_no_warning() {
        for name in ["pdf", "pdf-tools", "a1-b2", "数据分析", "ß"] {
            assert_eq!(count_warnings(Some(name), Some("x")), 0, "{name}");
        }
    }

    #[test]
    fn invalid_name_has_one_warning() {
        let long = "a".repeat(65);
        for name in ["PDF", "pdf tools", "pdf_tools", "-pdf", "pdf-", "pdf--tools", long.as_str()] {
            assert_eq!(count_warnings(Some(name), Some("x")), 1, "{name}");
        }
    }

    #[test]
    fn missing_values_have_one_warning_each() {
        assert_eq!(count_warnings(None, None), 2);
    }

    #[test]
    fn description_above_1024_characters_has_warning() {
        assert_eq!(count_warnings(Some("pdf"), Some(&"x".repeat(1024))), 0);
        assert_eq!(count_warnings(Some("pdf"), Some(&"x".repeat(1025))), 1);
    }

    #[test]
    fn invalid_front_matter_and_other_folder_have_one_warning_each() {
        let metadata = metadata(Some("b"), Some("x"), Source::LinesAfterInvalidFrontMatter);
        assert_eq!(metadata.warnings("a").len(), 2);
    }

    proptest! {
        #[test]
        fn parser_never_panics(text in "(---|\n|name|description|[:：&*\\[\\]{}\"'|>#!?, é-]|\\PC){0,60}") {
            SkillMetadata::parse(&text);
            SkillMetadata::parse(&format!("---\n{text}\n---\n"));
        }

        #[test]
        fn quoted_values_round_trip(name in "[a-zA-Z0-9é :#'-]{1,30}", description in "[^\\x00-\\x1f\\x7f-\\x9f\u{feff}\u{fffe}\u{ffff}]{1,40}") {
            prop_assume!(!name.trim().is_empty() && !description.trim().is_empty());
            let quote = |text: &str| serde_json::to_string(text).unwrap();
            let text = format!("---\nname: {}\ndescription: {}\n---\n", quote(&name), quote(&description));
            let metadata = SkillMetadata::parse(&text);
            prop_assert_eq!(metadata.name.as_deref(), Some(name.trim()));
            prop_assert_eq!(metadata.description.as_deref(), Some(description.trim()));
        }
    }
}
