//! Malicious and broken ZIPs: each is rejected with a message, and nothing is changed.

use proptest::prelude::*;
use ringwall_workspace::{ArchiveError, ArchiveLimits, Error, FilesError, FilesErrorKind, SkillArchive};

use crate::fixture::{Fixture, MIB, names};
use crate::skills::{LIMITS, install, spool, tree};
use crate::zips::{DESCRIPTOR, ENCRYPTED, Part, UTF8, deflated, file, finish, folder, skill, zip};

/// The error of a rejected archive. Checks that nothing was changed.
#[track_caller]
fn error_within(limits: ArchiveLimits, bytes: &[u8]) -> FilesError {
    let fixture = Fixture::new();
    install(&fixture, &zip(&skill("x", "kept"))).unwrap();
    let error = match tree(&fixture).check_skill_archive(spool(&fixture, bytes), limits).and_then(SkillArchive::unpack)
    {
        Err(Error::Files(archive_error)) => archive_error,
        other => panic!("{other:?}"),
    };
    assert_eq!(names(&fixture.host_path("skills")), ["x"]);
    assert_eq!(names(&fixture.host_path("skills/x")), ["SKILL.md", "main.py"]);
    assert_eq!(std::fs::read_to_string(fixture.host_path("skills/x/SKILL.md")).unwrap(), "kept");
    assert!(fixture.staged().is_empty(), "{:?}", fixture.staged());
    fixture.check();
    assert!(!error.to_string().contains(fixture.directory.path().to_str().unwrap()), "{error}");
    error
}

#[track_caller]
fn archive_error(bytes: &[u8]) -> ArchiveError {
    match error_within(LIMITS, bytes) {
        FilesError::Archive(archive_error) => archive_error,
        other => panic!("{other:?}"),
    }
}

/// A valid skill with additional entries.
fn with(parts: impl IntoIterator<Item = Part>) -> Vec<u8> {
    let mut all = skill("x", "new");
    all.extend(parts);
    zip(&all)
}

#[test]
fn invalid_structure_is_rejected_with_contract_text() {
    let none = "Validation Error: No valid skill directory found in ZIP.";
    for parts in [vec![], vec![file("SKILL.md", "x")], vec![file("__MACOSX/x/SKILL.md", "x"), file(".DS_Store", "")]] {
        assert_eq!(archive_error(&zip(&parts)).to_string(), none);
    }
    let missing = "Validation Error: Skill [技能] is missing required 'SKILL.md' at its root.";
    for part in [file("技能/sub/SKILL.md", "x"), file("技能/skill.md", "x"), folder("技能/"), folder("技能/SKILL.md/")]
    {
        assert_eq!(archive_error(&with([part])).to_string(), missing);
    }
    for nested in ["x/sub/SKILL.md", "x/sub/skill.MD", "x/skill.md", "x/Skill.md/y"] {
        let error = error_within(LIMITS, &with([file(nested, "x")]));
        assert_eq!((&error, error.kind()), (&FilesError::Reserved, FilesErrorKind::Security), "{nested}");
    }
    let stray = archive_error(&with([file("readme.txt", "x")]));
    assert!(matches!(&stray, ArchiveError::StrayFile(name) if name == "\"readme.txt\""), "{stray}");
    assert_eq!(stray.kind(), FilesErrorKind::Invalid);
}

#[test]
fn macos_metadata_is_skipped() {
    let fixture = Fixture::new();
    let added = ["__MACOSX/x/._main.py", "__MACOSX/._x", ".DS_Store", "x/.DS_Store", "x/sub/.DS_Store"];
    install(&fixture, &with(added.map(|name| file(name, "x")))).unwrap();
    assert_eq!(names(&fixture.host_path("skills")), ["x"]);
    assert_eq!(names(&fixture.host_path("skills/x")), ["SKILL.md", "main.py"]);
}

#[test]
fn unsafe_names_are_rejected() {
    let deep = "x/".repeat(65) + "f";
    let long = format!("x/{}", "l".repeat(256));
    for name in [
        &b"../evil"[..],
        b"x/../../evil",
        b"x/..",
        b"/etc/passwd",
        b"//evil",
        b"C:/evil",
        b"C:evil",
        b"x\\..\\evil",
        b"..\\evil",
        b"\\\\host\\share",
        b"x/e\0vil",
        b"x/e\nvil",
        b"",
        b"./",
        b"__MACOSX/../../evil",
        // The GBK character before it must be decoded.
        b"\xca\xfd/../../evil",
        b"\xff\xff/evil",
        deep.as_bytes(),
        long.as_bytes(),
    ] {
        let error = archive_error(&with([file(name, "evil")]));
        assert!(matches!(error, ArchiveError::InvalidName { .. }), "{name:?}: {error}");
        assert_eq!(error.kind(), FilesErrorKind::Invalid);
    }
    let lying = Part { flags: UTF8, ..file(b"x/\xca\xfd", "") };
    assert!(matches!(archive_error(&with([lying])), ArchiveError::InvalidName { .. }));
}

#[test]
fn utf8_and_gbk_names_are_decoded() {
    let fixture = Fixture::new();
    let gbk = b"\xca\xfd\xbe\xdd/";
    let parts = [
        file([gbk, b"SKILL.md".as_slice()].concat(), "x"),
        file([gbk, b"\xcb\xb5\xc3\xf7.txt".as_slice()].concat(), "x"),
        // The second byte of this character is a backslash.
        file([gbk, b"\x81\x5c.txt".as_slice()].concat(), "x"),
    ];
    assert_eq!(install(&fixture, &zip(&parts)).unwrap(), ["数据"]);
    assert_eq!(names(&fixture.host_path("skills/数据")), ["SKILL.md", "乗.txt", "说明.txt"]);
    for flags in [0, UTF8] {
        let parts = [Part { flags, ..file("技能/SKILL.md", "x") }];
        assert_eq!(install(&fixture, &zip(&parts)).unwrap(), ["技能"]);
    }
}

#[test]
fn colliding_names_are_rejected() {
    let gbk = file(b"x/\xca\xfd", "1");
    for parts in [
        vec![file("x/a", "1"), file("x/a", "2")],
        vec![file("x/a", "1"), file("x//a", "2")],
        vec![file("x/a", "1"), file("./x/a", "2")],
        vec![file("x/a", "1"), folder("x/a/")],
        vec![folder("x/a/"), file("x/a", "1")],
        vec![file("x/a", "1"), file("x/a/b", "2")],
        vec![file("x/a/b/c", "1"), file("x/a", "2")],
        vec![gbk, file("x/数", "2")],
        vec![file("x", "1")],
    ] {
        let shown: Vec<_> = parts.iter().map(|part| String::from_utf8_lossy(&part.name).into_owned()).collect();
        match archive_error(&with(parts)) {
            ArchiveError::DuplicatePath(_) => {}
            // The `zip` crate reports equal names.
            ArchiveError::Malformed(why) => assert!(why.contains("duplicate"), "{shown:?}: {why}"),
            other => panic!("{shown:?}: {other}"),
        }
    }
    let fixture = Fixture::new();
    // Names are case-sensitive, and a directory may occur several times.
    install(&fixture, &with([file("x/A", ""), file("x/a", ""), folder("x/d/"), folder("x//d/")])).unwrap();
    assert_eq!(names(&fixture.host_path("skills/x")), ["A", "SKILL.md", "a", "d", "main.py"]);
}

#[test]
fn symlinks_and_special_files_are_rejected() {
    let huge = Part { mode: 0o120_777, size: u32::MAX - 1, ..file("x/link", "/etc") };
    for part in [
        Part { mode: 0o120_777, ..file("x/link", "/etc/passwd") },
        Part { mode: 0o120_777, ..file("x/link", "../../../../outside") },
        Part { mode: 0o120_777, ..file("x/link/", "") },
        huge,
    ] {
        assert!(matches!(archive_error(&with([part, file("x/link2/canary", "evil")])), ArchiveError::Symlink(_)));
    }
    for mode in [0o060_644, 0o020_666, 0o010_644, 0o140_644, 0o040_755, 0o150_000] {
        let error = archive_error(&with([Part { mode, ..file("x/special", "") }]));
        assert!(matches!(error, ArchiveError::SpecialFile(_)), "{mode:o}: {error}");
    }
    assert!(matches!(archive_error(&with([file("x/d/", "data")])), ArchiveError::SpecialFile(_)));
    assert!(matches!(
        archive_error(&with([Part { mode: 0o100_644, ..file("x/d/", "") }])),
        ArchiveError::SpecialFile(_)
    ));
}

#[test]
fn unreadable_entries_are_rejected() {
    assert!(matches!(archive_error(&with([Part { flags: ENCRYPTED, ..file("x/s", "") }])), ArchiveError::Encrypted(_)));
    for method in [1, 9, 12, 14, 93, 95, 98, 99, 12345] {
        let error = archive_error(&with([Part { method, ..file("x/m", "data") }]));
        assert!(
            matches!(error, ArchiveError::UnsupportedMethod { .. } | ArchiveError::Malformed(_)),
            "{method}: {error}"
        );
    }
    for part in [
        Part { crc: 7, ..file("x/crc", "data") },
        Part { method: 8, ..file("x/deflate", "not deflated") },
        Part { size: 3, ..file("x/long", "data") },
        Part { size: 5, ..file("x/short", "data") },
    ] {
        let name = String::from_utf8(part.name.clone()).unwrap();
        assert!(matches!(archive_error(&with([part])), ArchiveError::Corrupt { .. }), "{name}");
    }
}

#[test]
fn wrong_data_descriptor_is_rejected() {
    let narrow = |crc: u32, size: u32| [crc.to_le_bytes(), size.to_le_bytes(), size.to_le_bytes()].concat();
    let wide = |crc: u32, size: u32| {
        let size = u64::from(size).to_le_bytes();
        [&crc.to_le_bytes()[..], &size, &size].concat()
    };
    let signed = |bytes: Vec<u8>| [b"PK\x07\x08".to_vec(), bytes].concat();
    let fixture = Fixture::new();
    for after in [narrow(1, 2), wide(1, 2), signed(narrow(1, 2)), signed(wide(1, 2))] {
        let part = file("x/late", "data").described_after(|crc, size| match after.len() {
            12 => narrow(crc, size),
            20 => wide(crc, size),
            16 => signed(narrow(crc, size)),
            _ => signed(wide(crc, size)),
        });
        install(&fixture, &with([part])).unwrap();
        let wrong = file("x/late", "data").described_after(|_, _| after);
        assert!(matches!(archive_error(&with([wrong])), ArchiveError::Corrupt { .. }));
    }
    let missing = Part { flags: DESCRIPTOR, ..file("x/late", "data") };
    assert!(matches!(archive_error(&with([missing])), ArchiveError::Corrupt { .. }));
}

#[test]
fn decompression_bombs_are_rejected() {
    let zeros = vec![0; 20 << 20];
    // Compressed to less than a thousandth.
    let flat = deflated(&[("x/SKILL.md", b"x"), ("x/zeros", &zeros)]);
    assert!(flat.len() < 64 * 1024);
    assert_eq!(archive_error(&flat), ArchiveError::CompressionRatio(200));
    assert_eq!(archive_error(&flat).kind(), FilesErrorKind::TooLarge);
    let limits = ArchiveLimits { bytes: MIB, ..LIMITS };
    assert_eq!(error_within(limits, &flat), ArchiveError::TooManyBytes(MIB).into());
    // Local header and central directory both declare a small size.
    let mut lying = deflated(&[("x/SKILL.md", b"x"), ("x/zeros", &zeros)]);
    let size = (20_u32 << 20).to_le_bytes();
    let places: Vec<usize> =
        lying.windows(4).enumerate().filter(|(_, window)| *window == size).map(|(at, _)| at).collect();
    assert_eq!(places.len(), 2);
    for at in places {
        lying[at..at + 4].copy_from_slice(&100_u32.to_le_bytes());
    }
    assert!(matches!(archive_error(&lying), ArchiveError::Corrupt { .. }));
    // Each file is small, their sum is not.
    let many: Vec<(String, &[u8])> = (0..10).map(|number| (format!("x/{number}"), &zeros[..200_000])).collect();
    let mut files: Vec<(&str, &[u8])> = vec![("x/SKILL.md", b"x")];
    files.extend(many.iter().map(|(name, data)| (name.as_str(), *data)));
    assert_eq!(error_within(limits, &deflated(&files)), ArchiveError::TooManyBytes(MIB).into());
    // A ZIP within a ZIP is an ordinary file, and a small run of zeros is allowed.
    let fixture = Fixture::new();
    install(&fixture, &deflated(&[("x/SKILL.md", b"x"), ("x/inner.zip", &flat), ("x/run", &zeros[..10 << 20])]))
        .unwrap();
    assert_eq!(std::fs::read(fixture.host_path("skills/x/inner.zip")).unwrap(), flat);
}

#[test]
fn declared_size_beyond_limit_is_rejected() {
    let part = Part { size: u32::MAX - 1, ..file("x/large", "data") };
    assert_eq!(archive_error(&with([part])), ArchiveError::TooManyBytes(LIMITS.bytes));
    let parts: Vec<Part> = (0..3).map(|number| Part { size: 0x7fff_ffff, ..file(format!("x/{number}"), "") }).collect();
    assert_eq!(archive_error(&with(parts)), ArchiveError::TooManyBytes(LIMITS.bytes));
}

#[test]
fn too_many_entries_are_rejected() {
    let parts: Vec<Part> = (0..1001).map(|number| file(format!("x/{number}"), "")).collect();
    assert_eq!(archive_error(&zip(&parts)), ArchiveError::TooManyEntries(1000));
    // An end record without any entries.
    let claimed = finish(Vec::new(), b"", 60_000, b"");
    assert_eq!(archive_error(&claimed), ArchiveError::TooManyEntries(1000));
    // The same in ZIP64, with 100,000 entries and the maximum.
    for count in [100_000_u64, u64::MAX] {
        let mut bytes = b"PK\x06\x06".to_vec();
        bytes.extend(44_u64.to_le_bytes());
        bytes.extend([45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([count, count, 0, 0].map(u64::to_le_bytes).concat());
        bytes.extend(b"PK\x06\x07\0\0\0\0");
        bytes.extend(0_u64.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(b"PK\x05\x06\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0");
        assert_eq!(archive_error(&bytes), ArchiveError::TooManyEntries(1000));
    }
}

#[test]
fn ambiguous_archives_are_rejected() {
    let honest = with([]);
    let inner = zip(&skill("evil", "x"));
    let directory = honest.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let (data, index) = (&honest[..directory], &honest[directory..honest.len() - 22]);
    let swallowing = |offset| Part { offset: Some(offset), ..file("x/again", "new") };
    for (what, bytes) in [
        ("something before it", [b"#!/bin/sh\n".as_slice(), &honest].concat()),
        ("something after it", [&honest, b"x".as_slice()].concat()),
        ("another archive after it", [&honest, inner.as_slice()].concat()),
        ("an end in its comment", finish(data.to_vec(), index, 2, &inner[inner.len() - 22..])),
        ("a hidden entry", finish([data, &zip(&[file("y/SKILL.md", "x")])[..40]].concat(), index, 2, b"")),
        ("another name in its header", with([Part { local_name: Some(b"x/other".to_vec()), ..file("x/named", "") }])),
        ("a header of another entry", with([swallowing(0)])),
        ("a header inside of data", with([file("x/data", file_header()), swallowing(113)])),
        ("no directory", finish(data.to_vec(), b"", 2, b"")),
        ("fewer than it claims", finish(data.to_vec(), index, 3, b"")),
        ("more than it claims", finish(data.to_vec(), index, 1, b"")),
        ("no zip", b"this is no zip".to_vec()),
        ("nothing", Vec::new()),
    ] {
        let error = archive_error(&bytes);
        assert!(matches!(error, ArchiveError::Malformed(_)), "{what}: {error}");
    }
    let fixture = Fixture::new();
    install(&fixture, &finish(data.to_vec(), index, 2, b"a comment")).unwrap();
    assert_eq!(names(&fixture.host_path("skills")), ["x"]);
}

fn file_header() -> Vec<u8> {
    zip(&[file("x/again", "new")])[..40].to_vec()
}

#[test]
fn truncated_archive_is_rejected() {
    let whole = with([]);
    for end in 0..whole.len() {
        let error = archive_error(&whole[..end]);
        assert_eq!(error.kind(), FilesErrorKind::Invalid, "{end}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// An archive with changed bytes is installed completely or rejected, and nothing outside is
    /// changed.
    #[test]
    fn archive_with_changed_bytes_is_installed_or_rejected(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        compressed in any::<bool>(),
    ) {
        let honest = if compressed {
            deflated(&[("x/SKILL.md", b"text text text text"), ("x/sub/main.py", b"print(1)\n"), ("y/SKILL.md", b"y")])
        } else {
            with([folder("x/empty/"), file("x/late", "data").described_after(|crc, size| {
                [crc.to_le_bytes(), size.to_le_bytes(), size.to_le_bytes()].concat()
            })])
        };
        let mut bytes = honest;
        for (location, byte) in changes {
            let location = location.index(bytes.len());
            bytes[location] = byte;
        }
        let fixture = Fixture::new();
        match install(&fixture, &bytes) {
            Ok(skills) => prop_assert_eq!(skills, names(&fixture.host_path("skills"))),
            Err(Error::Files(_)) => prop_assert!(names(&fixture.host_path("skills")).is_empty()),
            Err(other) => prop_assert!(false, "{:?}", other),
        }
        prop_assert!(fixture.staged().is_empty());
        fixture.check();
    }
}
