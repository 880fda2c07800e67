//! Declared sizes that are wrong, decompression bombs, and unlimited counts.

use std::io::{self, Read};

use super::compression::gzip;
use super::{Archive, Fixture, name, pax_record};
use crate::image::ImageError;

#[test]
fn declared_size_above_limit_is_refused_before_reading() {
    for size in [65 << 30, 1 << 50, u64::MAX - 511, u64::MAX] {
        let archive = Archive::root().declared(b'0', b"huge", b"", 0o644, size, b"x");
        let outcome = Fixture::new().import(&archive.end());
        assert!(matches!(outcome, Err(ImageError::TooLarge { .. })), "{size}: {outcome:?}");
        let skipped = Archive::root().declared(b'z', b"huge", b"", 0o644, size, b"x");
        let outcome = Fixture::new().import(&skipped.end());
        assert!(matches!(outcome, Err(ImageError::TooLarge { .. })), "{size}: {outcome:?}");
        let pax = Archive::root().pax(&[("size", size.to_string().as_bytes())]).file("huge", 0o644, b"x");
        let outcome = Fixture::new().import(&pax.end());
        assert!(matches!(outcome, Err(ImageError::TooLarge { .. })), "{size}: {outcome:?}");
    }
}

#[test]
fn pax_size_overrides_header_size() {
    let fixture = Fixture::new();
    let archive = Archive::root()
        .pax(&[("size", b"5"), ("mtime", b"-7.5")])
        .declared(b'0', b"etc/five", b"", 0o644, 0, b"12345")
        .file("etc/after", 0o644, b"x");
    fixture.import(&archive.end()).unwrap();
    assert_eq!(std::fs::read_to_string(fixture.inside("etc/five")).unwrap(), "12345");
    assert!(fixture.inside("etc/after").is_file());
}

#[test]
fn oversized_or_repeated_extension_headers_are_refused() {
    let content = vec![b'a'; 2 << 20];
    for kind in [b'x', b'L', b'K'] {
        for size in [2 << 20, 1 << 40, u64::MAX] {
            let archive = Archive::root().declared(kind, b"x", b"", 0o644, size, &content);
            let refusal = Fixture::new().refusal(&archive.end());
            assert!(refusal.contains("longer than"), "{refusal}");
        }
        let twice = Archive::root().entry(kind, b"x", b"", 0o644, &pax_record("path", b"a")).entry(
            kind,
            b"x",
            b"",
            0o644,
            &pax_record("path", b"b"),
        );
        assert!(Fixture::new().refusal(&twice.end()).contains("two extension headers"));
        let alone = Archive::root().entry(kind, b"x", b"", 0o644, &pax_record("path", b"a"));
        assert!(Fixture::new().refusal(&alone.end()).contains("belongs to no entry"));
    }
}

#[test]
fn malformed_pax_records_are_refused() {
    for (records, problem) in [
        (b"99 path=a\n".as_slice(), "has a wrong length"),
        (b"3 path=a\n", "has a wrong length"),
        (b"0 path=a\n", "has a wrong length"),
        (b"99999999999999999999999 path=a\n", "has a wrong length"),
        (b"path=a\n", "has a wrong length"),
        (b"9 path=ab", "has a wrong length"),
        (b"7 path\n", "no `=`"),
        (b"11 size=-1\n", "number"),
        (b"30 size=99999999999999999999\n", "has a wrong length"),
        (b"29 size=99999999999999999999\n", "number"),
        (b"9 size=\n\n", "number"),
        (b"12 mtime=xy\n", "number"),
    ] {
        let archive = Archive::root().entry(b'x', b"x", b"", 0o644, records).file("a", 0o644, b"");
        let refusal = Fixture::new().refusal(&archive.end());
        assert!(refusal.contains(problem), "{}: {refusal}", records.escape_ascii());
    }
}

#[test]
fn header_with_invalid_number_is_refused() {
    let mut header = [0; 512];
    header[..4].copy_from_slice(b"file");
    header[156] = b'0';
    header[124..130].copy_from_slice(b"99zz99");
    assert!(Fixture::new().refusal(&Archive::root().block(header).end()).contains("size is not a number"));
    header[124..130].copy_from_slice(b"000000");
    header[100..104].copy_from_slice(b"rwxr");
    assert!(Fixture::new().refusal(&Archive::root().block(header).end()).contains("mode is not a number"));
    let mut broken = Archive::root().file("etc/x", 0o644, b"");
    let at = broken.0.len() - 512;
    broken.0[at] ^= 1;
    assert!(Fixture::new().refusal(&broken.end()).contains("checksum is wrong"));
}

#[test]
fn decompression_bomb_stops_at_limit() {
    let mut fixture = Fixture::new();
    fixture.store.limits.bytes = 1 << 20;
    let archive = Archive::root().file("zeros", 0o644, &vec![0; 2 << 20]).end();
    let outcome = fixture.import(&gzip(&archive));
    assert!(matches!(outcome, Err(ImageError::TooLarge { limit: 1_048_576 })), "{outcome:?}");
    // Many small pieces cost the same.
    let pieces =
        (0..40).fold(Archive::root(), |archive, at| archive.file(&format!("zeros{at}"), 0o644, &vec![0; 64 << 10]));
    assert!(matches!(fixture.import(&gzip(&pieces.end())), Err(ImageError::TooLarge { .. })));
}

#[test]
fn too_many_entries_of_any_type_are_refused() {
    for kind in [b'0', b'5', b'3', b'g', b'z'] {
        let mut fixture = Fixture::new();
        fixture.store.limits.entries = 50;
        let many = (0..60)
            .fold(Archive::root(), |archive, at| archive.entry(kind, format!("usr/{at}").as_bytes(), b"", 0o644, b""));
        let outcome = fixture.import(&many.end());
        assert!(matches!(outcome, Err(ImageError::TooManyEntries { limit: 50 })), "{outcome:?}");
    }
}

/// An archive without end: the same header over and over.
struct Endless {
    block: Vec<u8>,
    given: usize,
}

impl Read for Endless {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let at = self.given % self.block.len();
        let count = (&self.block[at..]).read(buffer)?;
        self.given += count;
        Ok(count)
    }
}

#[test]
fn endless_archive_is_refused() {
    let mut fixture = Fixture::new();
    fixture.store.limits.entries = 5_000;
    let block = Archive::default().file("usr/again", 0o755, b"").0;
    let outcome = fixture.store.import(&name("box"), "-", Endless { block, given: 0 }, &mut |_| {});
    assert!(matches!(outcome, Err(ImageError::TooManyEntries { .. })), "{outcome:?}");
    fixture.check();
}

#[test]
fn endless_padding_is_refused() {
    let fixture = Fixture::new();
    let archive = Archive::root().end();
    let outcome = fixture.store.import(&name("box"), "-", archive.as_slice().chain(io::repeat(0)), &mut |_| {});
    assert!(matches!(outcome, Err(ImageError::Malformed { .. })), "{outcome:?}");
    fixture.check();
}
