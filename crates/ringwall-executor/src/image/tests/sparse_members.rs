//! GNU sparse members, which are refused in each of their four formats.

use super::{Archive, Fixture};
use crate::image::ImageError;

/// Imports the archive and checks the error. `Fixture::import` checks that nothing is left.
fn expect_refusal(archive: Archive) {
    let error = Fixture::new().import(&archive.file("etc/after", 0o644, b"").end()).expect_err("accepted");
    assert!(matches!(&error, ImageError::Sparse { name } if name == "var/disk"), "{error:?}");
    assert_eq!(error.to_string(), "the archive stores `var/disk` as a sparse file, which is not supported");
    assert!(error.hint().contains("without `--sparse`"), "{}", error.hint());
}

#[test]
fn old_gnu_sparse_member_is_refused() {
    let mut header = [0; 512];
    header[..8].copy_from_slice(b"var/disk");
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(b"00000000005");
    header[136..147].copy_from_slice(b"00000000000");
    header[156] = b'S';
    header[257..265].copy_from_slice(b"ustar  \0");
    header[386..397].copy_from_slice(b"00000010000");
    header[398..409].copy_from_slice(b"00000000005");
    header[483..494].copy_from_slice(b"00000010005");
    expect_refusal(Archive::root().block(header).padded(b"abcde"));
}

#[test]
fn pax_0_0_sparse_member_is_refused() {
    let records: [(&str, &[u8]); 5] = [
        ("GNU.sparse.size", b"4101"),
        ("GNU.sparse.numblocks", b"1"),
        ("GNU.sparse.offset", b"4096"),
        ("GNU.sparse.numbytes", b"5"),
        ("path", b"var/disk"),
    ];
    expect_refusal(Archive::root().pax(&records).file("var/GNUSparseFile.0/disk", 0o644, b"abcde"));
}

#[test]
fn pax_0_1_sparse_member_is_refused() {
    let records: [(&str, &[u8]); 4] = [
        ("GNU.sparse.size", b"4101"),
        ("GNU.sparse.numblocks", b"1"),
        ("GNU.sparse.map", b"4096,5"),
        ("GNU.sparse.name", b"var/disk"),
    ];
    expect_refusal(Archive::root().pax(&records).file("var/GNUSparseFile.0/disk", 0o644, b"abcde"));
}

#[test]
fn pax_1_0_sparse_member_is_refused() {
    let records: [(&str, &[u8]); 4] = [
        ("GNU.sparse.major", b"1"),
        ("GNU.sparse.minor", b"0"),
        ("GNU.sparse.name", b"var/disk"),
        ("GNU.sparse.realsize", b"4101"),
    ];
    let mut content = b"1\n4096\n5\n".to_vec();
    content.resize(512, 0);
    content.extend_from_slice(b"abcde");
    expect_refusal(Archive::root().pax(&records).file("var/GNUSparseFile.0/disk", 0o644, &content));
}
