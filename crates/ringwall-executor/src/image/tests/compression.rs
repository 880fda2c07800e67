//! Recognising archives by their bytes, and reading all of a compressed one.

use std::fs;
use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{Archive, Lab, name};
use crate::image::{ImageError, Interrupted};

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(super) fn zstd(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

/// Something that does not compress away, so that cutting it cuts real data.
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
fn gzip_and_zstd_are_told_by_their_bytes() {
    for compressed in [sample(), gzip(&sample()), zstd(&sample())] {
        let lab = Lab::new();
        let info = lab.import(&compressed).unwrap();
        assert_eq!((info.entries, info.bytes), (7, 200_033));
        assert_eq!(fs::metadata(lab.inside("usr/noise")).unwrap().len(), 200_000);
    }
}

#[test]
fn a_name_says_nothing_about_the_format() {
    let lab = Lab::new();
    let path = lab.images().join("../../archive.tar.gz");
    fs::create_dir_all(lab.images()).unwrap();
    fs::write(&path, Archive::root().end()).unwrap();
    let info = lab.store.import_file(&name("box"), &path, &mut |_| {}).unwrap();
    assert_eq!(info.source, "archive.tar.gz");
    let missing = lab.store.import_file(&name("other"), &path.join("none"), &mut |_| {});
    assert!(matches!(missing, Err(ImageError::OpenArchive { .. })));
}

#[test]
fn all_members_and_all_frames_are_read() {
    let whole = sample();
    let (first, second) = whole.split_at(70_001);
    let skippable = [&[0x53, 0x2a, 0x4d, 0x18, 5, 0, 0, 0][..], b"hello"].concat();
    for compressed in [
        [gzip(first), gzip(b""), gzip(second)].concat(),
        [skippable.clone(), zstd(first), skippable.clone(), zstd(second), skippable].concat(),
    ] {
        assert_eq!(Lab::new().import(&compressed).unwrap().bytes, 200_033);
    }
}

#[test]
fn a_cut_archive_is_refused_wherever_it_is_cut() {
    for whole in [sample(), gzip(&sample()), zstd(&sample())] {
        // A plain archive may lose its padding, not its end mark.
        let last = whole.len() - if whole.starts_with(b"./") { 1024 } else { 1 };
        for cut in [1, 100, 511, 512, 513, 5_000, 60_000, last - 1, last] {
            let refusal = Lab::new().refusal(&whole[..cut]);
            let says_so = refusal.contains("ends in the middle") || refusal.contains("unknown format");
            assert!(says_so, "cut at {cut} of {}: {refusal}", whole.len());
        }
    }
}

#[test]
fn a_damaged_archive_is_refused() {
    for mut whole in [gzip(&sample()), zstd(&sample())] {
        // The last bytes are the checksum of what was read already.
        let at = whole.len() - if whole[0] == 0x1f { 6 } else { 2 };
        whole[at] ^= 0x40;
        let refusal = Lab::new().refusal(&whole);
        assert!(refusal.contains("cannot be decompressed"), "{refusal}");
    }
}

#[test]
fn other_formats_are_named() {
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
        let refusal = Lab::new().refusal(&bytes);
        assert!(refusal.contains(found), "{refusal}");
    }
}

#[test]
fn nothing_hides_behind_the_end_mark() {
    let hidden = [Archive::root().end(), Archive::default().file("late", 0o755, b"x").end()].concat();
    for archive in [hidden.clone(), gzip(&hidden)] {
        assert!(Lab::new().refusal(&archive).contains("follows the archive's end mark"));
    }
    let mut padded = Archive::root().end();
    padded.resize(padded.len() + 10_240, 0);
    Lab::new().import(&padded).unwrap();
}

/// A source that gives some bytes and then an error.
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
fn a_failing_source_is_not_taken_for_a_damaged_archive() {
    for whole in [sample(), gzip(&sample()), zstd(&sample())] {
        let lab = Lab::new();
        let import = |error| {
            let archive = Failing(&whole[..whole.len() / 2], error);
            let outcome = lab.store.import(&name("box"), "-", archive, &mut |_| {});
            lab.check();
            outcome
        };
        let broken = import(|| io::Error::from_raw_os_error(5));
        assert!(matches!(broken, Err(ImageError::ReadArchive { .. })), "{broken:?}");
        let interrupted = import(|| io::Error::other(Interrupted));
        assert!(matches!(interrupted, Err(ImageError::Interrupted)), "{interrupted:?}");
        assert!(lab.store.list().unwrap().is_empty());
    }
}
