//! Escapes invisible characters and terminal controls in untrusted text.
//!
//! People decide on commands, code, paths and reasons that they see on a terminal. An invisible
//! character lets two different texts look the same, so each is shown as `\u{…}`: controls, format
//! characters (which include all bidi controls and tags), line and paragraph separators, private use,
//! unassigned and default-ignorable code points, and every space but U+0020. `web/src/text.ts` has the
//! same rule for the console.

use unicode_general_category::{GeneralCategory, get_general_category};

/// Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties, without the ranges that contain
/// only format characters or unassigned code points. Renderers draw nothing for them, although some
/// are letters or marks.
const DEFAULT_IGNORABLE: [(char, char); 7] = [
    ('\u{34f}', '\u{34f}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{ffa0}', '\u{ffa0}'),
];
/// Variation Selectors Supplement; also default-ignorable.
const VARIATION_SELECTORS: (char, char) = ('\u{e0100}', '\u{e01ef}');
/// Category So (symbol), but drawn as a space.
const BRAILLE_BLANK: char = '\u{2800}';

pub(crate) fn escape_invisible(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut escaped, character| {
        if is_invisible(character) {
            escaped.extend(character.escape_unicode());
        } else {
            escaped.push(character);
        }
        escaped
    })
}

fn is_invisible(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    let is_in = |&(first, last): &(char, char)| (first..=last).contains(&character);
    let has_invisible_category = matches!(
        get_general_category(character),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::SpaceSeparator
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
    );
    has_invisible_category
        || character == BRAILLE_BLANK
        || DEFAULT_IGNORABLE.iter().any(is_in)
        || is_in(&VARIATION_SELECTORS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_characters() -> impl Iterator<Item = char> {
        (0..=u32::from(char::MAX)).filter_map(char::from_u32)
    }

    /// The regex crate has its own tables of the Unicode Character Database.
    fn characters_of(class: &str) -> impl Iterator<Item = char> {
        let class = regex::Regex::new(&format!("^{class}$")).unwrap();
        all_characters().filter(move |character| class.is_match(character.encode_utf8(&mut [0; 4])))
    }

    #[test]
    fn invisible_and_bidi_classes_are_escaped() {
        // The two tables may have different Unicode versions and then differ in Cn (unassigned), so
        // another test checks single code points of Cn.
        for class in [
            r"\p{Default_Ignorable_Code_Point}",
            r"\p{Bidi_Control}",
            r"\p{Cc}",
            r"\p{Cf}",
            r"\p{Co}",
            r"\p{Zl}",
            r"\p{Zp}",
            r"[\p{Zs}--\x20]",
        ] {
            let mut escaped = characters_of(class).filter(|&character| !is_invisible(character));
            assert_eq!(escaped.next(), None, "{class}");
        }
    }

    #[test]
    fn visible_classes_are_kept() {
        let class = r"[[\p{L}\p{M}\p{N}\p{P}\p{S}\x20]--\p{Default_Ignorable_Code_Point}--\u2800]";
        let is_known = |&character: &char| get_general_category(character) != GeneralCategory::Unassigned;
        let mut escaped = characters_of(class).filter(is_known).filter(|&character| is_invisible(character));
        assert_eq!(escaped.next(), None);
    }

    #[test]
    fn unassigned_tag_and_noncharacter_code_points_are_escaped() {
        for character in ['\u{378}', '\u{fff0}', '\u{ffff}', '\u{e0000}', '\u{e0041}', '\u{e0fff}', '\u{10ffff}'] {
            assert!(is_invisible(character), "{character:?}");
        }
    }

    #[test]
    fn escaped_text_is_visible_and_differs_from_the_plain_text() {
        let plain = "rm -rf build";
        for character in all_characters().filter(|&character| is_invisible(character)) {
            let escaped = escape_invisible(&format!("rm -rf {character}build"));
            assert!(!escaped.chars().any(is_invisible), "{character:?}");
            assert_ne!(escaped, plain, "{character:?}");
        }
        assert_eq!(escape_invisible(plain), plain);
    }

    #[test]
    fn ordinary_text_is_unchanged() {
        for text in ["café 文件 ok", "naïve Ωμέγα עברית العربية", "a\\u{200b}", "→ • ✓ 😀"]
        {
            assert_eq!(escape_invisible(text), text);
        }
    }
}
