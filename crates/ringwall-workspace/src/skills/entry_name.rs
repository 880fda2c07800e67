//! Decodes the name of a ZIP entry into a relative path.
//!
//! A name that is not declared as UTF-8 is UTF-8 or GBK, which Chinese versions of Windows write.
//! Decode first: the second byte of a GBK character may equal a backslash. The result is a relative
//! path without `..`, or an error.

use encoding_rs::GBK;
use ringwall_ids::quote;

use crate::relative_path::RelativePath;
use crate::skills::ArchiveError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameEncoding {
    Utf8,
    /// The UTF-8 flag of the entry is not set.
    Undeclared,
}

/// Taken from the name alone: directories end with a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File,
    Directory,
}

pub(crate) fn parse_entry_name(raw: &[u8], encoding: NameEncoding) -> Result<(RelativePath, EntryKind), ArchiveError> {
    let text = decode(raw, encoding)?;
    let invalid = |reason: String| ArchiveError::InvalidName { name: quote(&text), reason };
    if text.chars().any(char::is_control) {
        return Err(invalid("contains control characters".to_owned()));
    }
    if has_drive_letter(&text) {
        return Err(invalid("starts with a drive letter".to_owned()));
    }
    let (path, kind) = match text.strip_suffix('/') {
        Some(directory) => (directory, EntryKind::Directory),
        None => (&*text, EntryKind::File),
    };
    let path = RelativePath::from_listing(path.as_bytes()).map_err(|problem| invalid(problem.to_string()))?;
    Ok((path, kind))
}

fn decode(raw: &[u8], encoding: NameEncoding) -> Result<String, ArchiveError> {
    if let Ok(text) = std::str::from_utf8(raw) {
        return Ok(text.to_owned());
    }
    let invalid = |reason: &str| ArchiveError::InvalidName {
        name: quote(&String::from_utf8_lossy(raw)),
        reason: reason.to_owned(),
    };
    match encoding {
        NameEncoding::Utf8 => Err(invalid("is declared as UTF-8 but is not")),
        NameEncoding::Undeclared => GBK
            .decode_without_bom_handling_and_without_replacement(raw)
            .map(|text| text.into_owned())
            .ok_or_else(|| invalid("is neither UTF-8 nor GBK")),
    }
}

fn has_drive_letter(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic()) && characters.next() == Some(':')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(raw: &[u8]) -> Result<(String, EntryKind), String> {
        parse_entry_name(raw, NameEncoding::Undeclared)
            .map(|(path, kind)| (path.as_str().to_owned(), kind))
            .map_err(|error| error.to_string())
    }

    fn file(name: &str) -> Result<(String, EntryKind), String> {
        Ok((name.to_owned(), EntryKind::File))
    }

    #[test]
    fn utf8_name_is_kept() {
        assert_eq!(parse(b"a/b.txt"), file("a/b.txt"));
        assert_eq!(parse("数据/说明.md".as_bytes()), file("数据/说明.md"));
    }

    #[test]
    fn gbk_name_is_decoded() {
        assert_eq!(parse(b"\xca\xfd\xbe\xdd/\xcb\xb5\xc3\xf7.md"), file("数据/说明.md"));
    }

    #[test]
    fn gbk_character_with_backslash_byte_is_no_separator() {
        assert_eq!(parse(b"\x81\x5c/x"), file("乗/x"));
    }

    #[test]
    fn trailing_slash_names_directory() {
        assert_eq!(parse(b"a/"), Ok(("a".to_owned(), EntryKind::Directory)));
    }

    #[test]
    fn redundant_components_are_removed() {
        assert_eq!(parse(b"./a//b"), file("a/b"));
    }

    #[test]
    fn undecodable_name_is_rejected() {
        assert!(parse(b"\xff\xff").unwrap_err().contains("neither UTF-8 nor GBK"));
    }

    #[test]
    fn gbk_name_declared_as_utf8_is_rejected() {
        assert!(parse_entry_name(b"\xca\xfd", NameEncoding::Utf8).is_err());
    }

    #[test]
    fn unsafe_name_is_rejected() {
        for raw in [
            &b"../x"[..],
            b"a/../../x",
            b"a/..",
            b"/etc/passwd",
            b"//x",
            b"C:/x",
            b"c:x",
            b"a\\b",
            b"\\\\host\\x",
            b"",
            b"/",
            b"//",
            b"./",
            b"a\0b",
            b"a\nb",
            b"\xca\xfd/../x",
            &[b'a'; 300],
        ] {
            assert!(parse(raw).is_err(), "{raw:?}");
        }
    }

    #[test]
    fn deep_name_is_rejected() {
        assert!(parse(&b"a/".repeat(65)).is_err());
    }

    proptest! {
        #[test]
        fn accepted_name_stays_beneath_root(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((path, _)) = parse_entry_name(&raw, NameEncoding::Undeclared) {
                prop_assert!(path.as_str().split('/').all(|name| !matches!(name, "" | "." | "..")));
                prop_assert!(!path.as_str().contains(['\\', '\0', '\n']));
            }
        }
    }
}
