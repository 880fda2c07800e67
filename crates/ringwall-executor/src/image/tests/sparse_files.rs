//! Sparse files in all four formats, valid and invalid.

use std::fs;

use super::{Archive, Fixture};
use crate::image::ImageError;

/// An old GNU sparse header with up to four segments.
fn old(segments: &[(u64, u64)], real_size: u64, stored: u64, extended: u8) -> [u8; 512] {
    let mut header = [0; 512];
    header[..6].copy_from_slice(b"sparse");
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{stored:011o}").as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[156] = b'S';
    header[257..265].copy_from_slice(b"ustar  \0");
    put(&mut header[386..482], segments);
    header[482] = extended;
    number(&mut header[483..495], real_size);
    header
}

fn put(map: &mut [u8], segments: &[(u64, u64)]) {
    for (place, (offset, length)) in map.chunks_exact_mut(24).zip(segments) {
        number(&mut place[..12], *offset);
        number(&mut place[12..], *length);
    }
}

fn number(field: &mut [u8], value: u64) {
    if value < 1 << 33 {
        field[..11].copy_from_slice(format!("{value:011o}").as_bytes());
    } else {
        field[0] = 0x80;
        field[4..12].copy_from_slice(&value.to_be_bytes());
    }
}

fn extension(segments: &[(u64, u64)], extended: u8) -> [u8; 512] {
    let mut block = [0; 512];
    put(&mut block[..504], segments);
    block[504] = extended;
    block
}

fn expected() -> Vec<u8> {
    let mut content = vec![0; 10_000];
    content[4096..4099].copy_from_slice(b"abc");
    content[8192..8194].copy_from_slice(b"de");
    content
}

#[test]
fn all_sparse_formats_give_same_file() {
    let map = [(4096, 3), (8192, 2), (10_000, 0)];
    let pax = |records: &[(&str, &[u8])], content: &[u8]| {
        Archive::root().pax(records).file("GNUSparseFile.0/sparse", 0o644, content)
    };
    let mut inline = b"3\n4096\n3\n8192\n2\n10000\n0\n".to_vec();
    inline.resize(512, 0);
    inline.extend_from_slice(b"abcde");
    let archives = [
        Archive::root().block(old(&map, 10_000, 5, 0)).padded(b"abcde"),
        Archive::root().block(old(&map[..1], 10_000, 5, 1)).padded(&extension(&map[1..], 0)).padded(b"abcde"),
        pax(
            &[
                ("GNU.sparse.size", b"10000"),
                ("GNU.sparse.numblocks", b"2"),
                ("GNU.sparse.offset", b"4096"),
                ("GNU.sparse.numbytes", b"3"),
                ("GNU.sparse.offset", b"8192"),
                ("GNU.sparse.numbytes", b"2"),
                ("path", b"sparse"),
            ],
            b"abcde",
        ),
        pax(
            &[("GNU.sparse.name", b"sparse"), ("GNU.sparse.size", b"10000"), ("GNU.sparse.map", b"4096,3,8192,2")],
            b"abcde",
        ),
        pax(
            &[
                ("GNU.sparse.major", b"1"),
                ("GNU.sparse.minor", b"0"),
                ("GNU.sparse.name", b"sparse"),
                ("GNU.sparse.realsize", b"10000"),
            ],
            &inline,
        ),
    ];
    for archive in archives {
        let fixture = Fixture::new();
        let info = fixture.import(&archive.file("etc/after", 0o644, b"").end()).unwrap();
        assert_eq!(fs::read(fixture.inside("sparse")).unwrap(), expected());
        assert!(fixture.inside("etc/after").is_file());
        assert_eq!(info.bytes, 33 + 10_000);
    }
}

#[test]
fn inconsistent_sparse_map_is_refused() {
    for (map, real, stored, problem) in [
        (vec![(0, 3), (2, 2)], 100, 5, "overlaps"),
        (vec![(50, 3), (0, 2)], 100, 5, "overlaps"),
        (vec![(98, 5)], 100, 5, "leaves the file"),
        (vec![(u64::MAX - 2, 5)], u64::MAX, 5, "leaves the file"),
        (vec![(0, 4)], 100, 5, "does not agree"),
        (vec![(0, 6)], 100, 5, "does not agree"),
        (vec![], 100, 5, "does not agree"),
    ] {
        let archive = Archive::root().block(old(&map, real, stored, 0)).padded(b"abcde");
        let refusal = Fixture::new().refusal(&archive.end());
        assert!(refusal.contains(problem), "{map:?}: {refusal}");
    }
}

#[test]
fn hole_is_charged_with_its_size() {
    let archive = Archive::root().block(old(&[(0, 5)], 1 << 50, 5, 0)).padded(b"abcde");
    let outcome = Fixture::new().import(&archive.end());
    assert!(matches!(outcome, Err(ImageError::TooLarge { .. })), "{outcome:?}");
}

#[test]
fn endless_sparse_map_is_refused() {
    let endless = (0..4_000)
        .fold(Archive::root().block(old(&[], 1, 0, 1)), |archive, _| archive.padded(&extension(&[(0, 0); 21], 1)));
    assert!(Fixture::new().refusal(&endless.end()).contains("absurdly long"));
    let empty = Archive::root().block(old(&[], 1, 0, 1)).padded(&extension(&[], 1));
    assert!(Fixture::new().refusal(&empty.end()).contains("goes on after its end"));
    for (map, problem) in [
        (b"99999999\n".to_vec(), "absurdly long"),
        (vec![b'1'; 512], "is none"),
        (b"x\n".to_vec(), "is none"),
        (b"2\n1\n".to_vec(), "is none"),
        (b"1\n0\n1\n".to_vec(), "does not agree"),
    ] {
        let mut content = map;
        content.resize(512, 0);
        let archive = Archive::root()
            .pax(&[("GNU.sparse.major", b"1"), ("GNU.sparse.realsize", b"100")])
            .file("sparse", 0o644, &content);
        let refusal = Fixture::new().refusal(&archive.end());
        assert!(refusal.contains(problem), "{problem}: {refusal}");
    }
    for (records, problem) in [
        (vec![("GNU.sparse.size", b"9".as_slice()), ("GNU.sparse.map", b"0,1,5")], "wrong length"),
        (vec![("GNU.sparse.size", b"9"), ("GNU.sparse.major", b"7")], "unknown version"),
    ] {
        let archive = Archive::root().pax(&records).file("sparse", 0o644, b"");
        let refusal = Fixture::new().refusal(&archive.end());
        assert!(refusal.contains(problem), "{refusal}");
    }
}
