//! The name of an entry of a zip: decoded first, and only then judged.
//!
//! An archive that does not say how its names are encoded has them in UTF-8 or in GBK, as Chinese Windows writes them; a
//! byte of a GBK character may look like a backslash, so nothing is looked for before decoding. What comes out is a
//! plain relative path or a refusal.

use encoding_rs::GBK;

use crate::error::quote;
use crate::relative_path::RelativePath;
use crate::skills::ArchiveRefusal;

/// Whether an archive says that a name is UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Utf8,
    Unsaid,
}

/// What a name says that it names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NameKind {
    File,
    Directory,
}

pub(crate) fn read_name(raw: &[u8], encoding: Encoding) -> Result<(RelativePath, NameKind), ArchiveRefusal> {
    let text = decode(raw, encoding)?;
    let refusal = |why: String| ArchiveRefusal::Name { given: quote(&text), why };
    if text.chars().any(char::is_control) {
        return Err(refusal("has control characters".to_owned()));
    }
    if is_drive(&text) {
        return Err(refusal("begins with a drive".to_owned()));
    }
    let (path, kind) = match text.strip_suffix('/') {
        Some(directory) => (directory, NameKind::Directory),
        None => (&*text, NameKind::File),
    };
    let parsed = RelativePath::from_listing(path.as_bytes()).map_err(|problem| refusal(problem.to_string()))?;
    Ok((parsed, kind))
}

fn decode(raw: &[u8], encoding: Encoding) -> Result<String, ArchiveRefusal> {
    if let Ok(text) = std::str::from_utf8(raw) {
        return Ok(text.to_owned());
    }
    let refusal = |why: &str| ArchiveRefusal::Name { given: quote(&String::from_utf8_lossy(raw)), why: why.to_owned() };
    match encoding {
        Encoding::Utf8 => Err(refusal("is not UTF-8, although the archive says so")),
        Encoding::Unsaid => GBK
            .decode_without_bom_handling_and_without_replacement(raw)
            .map(|text| text.into_owned())
            .ok_or_else(|| refusal("is neither UTF-8 nor GBK")),
    }
}

fn is_drive(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(|first| first.is_ascii_alphabetic()) && characters.next() == Some(':')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(raw: &[u8]) -> Result<(String, NameKind), String> {
        read_name(raw, Encoding::Unsaid)
            .map(|(path, kind)| (path.as_str().to_owned(), kind))
            .map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn names_are_decoded_before_they_are_judged() {
        let file = |name: &str| Ok((name.to_owned(), NameKind::File));
        assert_eq!(read(b"a/b.txt"), file("a/b.txt"));
        assert_eq!(read("数据/说明.md".as_bytes()), file("数据/说明.md"));
        assert_eq!(read(b"\xca\xfd\xbe\xdd/\xcb\xb5\xc3\xf7.md"), file("数据/说明.md"));
        // One character, whose second byte is that of a backslash, or of nothing that GBK has.
        assert_eq!(read(b"\x81\x5c/x"), file("乗/x"));
        assert_eq!(read(b"a/"), Ok(("a".to_owned(), NameKind::Directory)));
        assert_eq!(read(b"./a//b"), file("a/b"));
        assert!(read(b"\xff\xff").unwrap_err().contains("neither UTF-8 nor GBK"));
        assert!(read_name(b"\xca\xfd", Encoding::Utf8).is_err());
    }

    #[test]
    fn what_leads_elsewhere_is_refused() {
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
            assert!(read(raw).is_err(), "{raw:?}");
        }
        assert!(read(&b"a/".repeat(65)).is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_stays_beneath(raw in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((path, _)) = read_name(&raw, Encoding::Unsaid) {
                prop_assert!(path.as_str().split('/').all(|name| !matches!(name, "" | "." | "..")));
                prop_assert!(!path.as_str().contains(['\\', '\0', '\n']));
            }
        }
    }
}
