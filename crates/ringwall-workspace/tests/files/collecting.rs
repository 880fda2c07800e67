//! Limits of the collection of artifacts, and its independence of the order of the file system.

use std::fs::{self, File};

use ringwall_workspace::{Extent, SkipReason};
use serde_json::json;

use crate::fixture::{Fixture, MIB, paths, reasons};

#[test]
fn file_beyond_size_limit_is_skipped_and_others_are_kept() {
    let fixture = Fixture::new();
    let plant = |names: &'static [(&'static str, usize)]| {
        move |directory: &std::path::Path| {
            for (name, size) in names {
                fs::write(directory.join(name), vec![b'x'; *size]).unwrap();
            }
        }
    };
    // Created in two orders, because the file system may list them in the order of creation.
    for order in
        [&[("a", 400), ("b", 700), ("c", 600), ("d", 1)][..], &[("d", 1), ("c", 600), ("b", 700), ("a", 400)][..]]
    {
        let collected = fixture.run(1000, plant(order));
        assert_eq!(paths(collected.kept()), ["a", "c"]);
        assert_eq!(reasons(&collected), [("b", SkipReason::OverBytes), ("d", SkipReason::OverBytes)]);
        assert_eq!(collected.extent(), Extent::BytesExceeded);
        assert_eq!(collected.finish(&json!({})).unwrap().len(), 5);
    }
    let exact = fixture.run(1001, plant(&[("a", 1000), ("b", 1)]));
    assert_eq!((exact.extent(), exact.kept().len()), (Extent::Within, 2));
    let nothing = fixture.run(0, plant(&[("empty", 0), ("one", 1)]));
    assert_eq!((nothing.extent(), paths(nothing.kept())), (Extent::BytesExceeded, vec!["empty"]));
}

#[test]
fn sparse_file_beyond_size_limit_is_skipped() {
    let fixture = Fixture::new();
    let collected = fixture.run(50 * MIB, |directory| {
        // Small enough to be copied without harm if the limit fails.
        File::create(directory.join("huge")).unwrap().set_len(256 * MIB).unwrap();
        File::create(directory.join("sparse")).unwrap().set_len(MIB).unwrap();
    });
    assert_eq!(reasons(&collected), [("huge", SkipReason::OverBytes)]);
    assert_eq!(collected.kept()[0].size, MIB);
    // SHA-256 of 1 MiB of zeros.
    assert_eq!(collected.kept()[0].hash, "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58");
}

#[test]
fn hard_links_count_each() {
    let fixture = Fixture::new();
    let collected = fixture.run(25, |directory| {
        fs::write(directory.join("a"), "0123456789").unwrap();
        for name in ["b", "c", "d"] {
            fs::hard_link(directory.join("a"), directory.join(name)).unwrap();
        }
    });
    assert_eq!((paths(collected.kept()), collected.extent()), (vec!["a", "b"], Extent::BytesExceeded));
}

#[test]
fn names_beyond_limit_are_counted() {
    let fixture = Fixture::new();
    let collected = fixture.run(MIB, |directory| {
        for number in 0..10_050 {
            fs::write(directory.join(format!("f{number:05}")), "").unwrap();
        }
    });
    assert_eq!(collected.extent(), Extent::NamesExceeded);
    assert_eq!((collected.kept().len(), collected.skipped_total()), (10_000, 50));
    assert_eq!(paths(&collected.kept()[9_999..]), ["f09999"]);
    assert_eq!(reasons(&collected), [("", SkipReason::OverNames)]);
}

#[test]
fn total_length_of_paths_is_limited() {
    let fixture = Fixture::new();
    let collected = fixture.run(MIB, |directory| {
        let deep = directory.join(["d".repeat(250).as_str(); 14].join("/"));
        fs::create_dir_all(&deep).unwrap();
        for number in 0..1300 {
            fs::write(deep.join(format!("f{number:04}")), "").unwrap();
        }
    });
    let bytes: usize = collected.kept().iter().map(|file| file.path.as_str().len()).sum();
    assert!(bytes <= 4 << 20 && bytes > 4_000_000, "{bytes}");
    assert_eq!(collected.extent(), Extent::NamesExceeded);
    assert_eq!(collected.kept().len() as u64 + collected.skipped_total(), 1300);
}
