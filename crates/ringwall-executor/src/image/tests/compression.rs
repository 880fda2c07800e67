//! Formats are detected by content, and compressed archives are read to the end.

use std::fs;
use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{Archive, Fixture, name};
use crate::image::{ImageError, Interrupted};

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// Incompressible data, so that truncation removes real data.
fn sample() -> Vec<u8> {
    let mut state = 1_u32;
    let noise: Vec<u8> = (0..200_000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    Archive::root().file("usr/noise", 0o644, &noise).end()
}

#[test]
fn gzip_and_zstd_are_detected_by_content() {
    for compressed in [sample(), gzip(&sample()), zstd(&sample())] {
        let fixture = Fixture::new();
        let info = fixture.import(&compressed).unwrap();
        assert_eq!((info.entries, info.bytes), (7, 200_033));
        assert_eq!(fs::metadata(fixture.inside("usr/noise")).unwrap().len(), 200_000);
    }
}

#[test]
fn file_name_does_not_decide_format() {
    let archive = Archive::root().end();
    let info = Fixture::new().store.import(&name("box"), "archive.tar.gz", archive.as_slice(), &mut |_| {}).unwrap();
    assert_eq!(info.source, "archive.tar.gz");
}

#[test]
fn all_gzip_members_and_zstd_frames_are_read() {
    let whole = sample();
    let (first, second) = whole.split_at(70_001);
    let skippable = [&[0x53, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"hello"].concat();
    for compressed in [
        [gzip(first), gzip(b""), gzip(second)].concat(),
        [skippable.clone(), zstd(first), skippable.clone(), zstd(second), skippable].concat(),
    ] {
        assert_eq!(Fixture::new().import(&compressed).unwrap().bytes, 200_033);
    }
}

#[test]
fn truncated_archive_is_refused_at_any_length() {
    for whole in [sample(), gzip(&sample()), zstd(&sample())] {
        // A plain archive may lose its padding, but not its end mark.
        let last = whole.len() - if whole.starts_with(b"./") { 1024 } else { 1 };
        for cut in [1, 100, 511, 512, 513, 5_000, 60_000, last - 1, last] {
            let refusal = Fixture::new().refusal(&whole[..cut]);
            let says_so = refusal.contains("ends in the middle") || refusal.contains("unknown format");
            assert!(says_so, "cut at {cut} of {}: {refusal}", whole.len());
        }
    }
}

#[test]
fn damaged_archive_is_refused() {
    for mut whole in [gzip(&sample()), zstd(&sample())] {
        // Changes the checksum, after all data was read.
        let at = whole.len() - if whole[0] == 0x1f { 6 } else { 2 };
        whole[at] ^= 0x40;
        let refusal = Fixture::new().refusal(&whole);
        assert!(refusal.contains("cannot be decompressed"), "{refusal}");
    }
}

#[test]
fn unsupported_format_is_named() {
    let mut zip = b"PK\x03\x04".to_vec();
    zip.resize(2000, 1);
    for (bytes, found) in [
        (b"\xfd7zXZ\0 and so on".to_vec(), "an xz-compressed file"),
        (b"BZh91AY".to_vec(), "a bzip2-compressed file"),
        (zip, "a zip file"),
        (b"#!/bin/sh\necho hello\n".to_vec(), "a file of an unknown format"),
        (vec![b'x'; 4096], "a file of an unknown format"),
        (gzip(&[b'x'; 4096]), "a compressed file of something else"),
        (zstd(&gzip(&sample())), "a compressed file of something else"),
    ] {
        let refusal = Fixture::new().refusal(&bytes);
        assert!(refusal.contains(found), "{refusal}");
    }
}

#[test]
fn data_after_end_mark_is_refused() {
    let hidden = [Archive::root().end(), Archive::default().file("late", 0o755, b"x").end()].concat();
    for archive in [hidden.clone(), gzip(&hidden)] {
        assert!(Fixture::new().refusal(&archive).contains("follows the archive's end mark"));
    }
    let mut padded = Archive::root().end();
    padded.resize(padded.len() + 10_240, 0);
    Fixture::new().import(&padded).unwrap();
}

/// A reader that returns some bytes and then an error.
struct Failing<'a>(&'a [u8], fn() -> io::Error);

impl Read for Failing<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err((self.1)()),
            count => Ok(count),
        }
    }
}

#[test]
fn read_error_is_not_reported_as_damaged_archive() {
    for whole in [sample(), gzip(&sample()), zstd(&sample())] {
        let fixture = Fixture::new();
        let import = |error| {
            let archive = Failing(&whole[..whole.len() / 2], error);
            let outcome = fixture.store.import(&name("box"), "-", archive, &mut |_| {});
            fixture.check();
            outcome
        };
        let broken = import(|| io::Error::from_raw_os_error(5));
        assert!(matches!(broken, Err(ImageError::ReadArchive { .. })), "{broken:?}");
        let interrupted = import(|| io::Error::other(Interrupted));
        assert!(matches!(interrupted, Err(ImageError::Interrupted)), "{interrupted:?}");
        assert!(fixture.store.list().unwrap().is_empty());
    }
}
