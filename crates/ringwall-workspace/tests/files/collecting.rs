//! The limits of what is collected, and that the same leftovers always give the same answer.

use std::fs::{self, File};

use ringwall_workspace::{Extent, SkipReason};
use serde_json::json;

use crate::lab::{Lab, MIB, paths, reasons};

#[test]
fn what_does_not_fit_is_left_out_whole_and_the_rest_is_kept() {
    let lab = Lab::new();
    let plant = |names: &'static [(&'static str, usize)]| {
        move |directory: &std::path::Path| {
            for (name, size) in names {
                fs::write(directory.join(name), vec![b'x'; *size]).unwrap();
            }
        }
    };
    // Made in two orders, which a file system may list in two orders.
    for order in
        [&[("a", 400), ("b", 700), ("c", 600), ("d", 1)][..], &[("d", 1), ("c", 600), ("b", 700), ("a", 400)][..]]
    {
        let collected = lab.run(1000, plant(order));
        assert_eq!(paths(collected.kept()), ["a", "c"]);
        assert_eq!(reasons(&collected), [("b", SkipReason::OverBytes), ("d", SkipReason::OverBytes)]);
        assert_eq!(collected.extent(), Extent::BytesExceeded);
        assert_eq!(collected.finish(&json!({})).unwrap().len(), 5);
    }
    let exact = lab.run(1001, plant(&[("a", 1000), ("b", 1)]));
    assert_eq!((exact.extent(), exact.kept().len()), (Extent::Within, 2));
    let nothing = lab.run(0, plant(&[("empty", 0), ("one", 1)]));
    assert_eq!((nothing.extent(), paths(nothing.kept())), (Extent::BytesExceeded, vec!["empty"]));
}

#[test]
fn a_file_full_of_nothing_is_not_read() {
    let lab = Lab::new();
    let collected = lab.run(50 * MIB, |directory| {
        // As large as is still harmless to copy if the limit does not hold.
        File::create(directory.join("huge")).unwrap().set_len(256 * MIB).unwrap();
        File::create(directory.join("sparse")).unwrap().set_len(MIB).unwrap();
    });
    assert_eq!(reasons(&collected), [("huge", SkipReason::OverBytes)]);
    assert_eq!(collected.kept()[0].size, MIB);
    // sha256 of a mebibyte of zeros.
    assert_eq!(collected.kept()[0].hash, "30e14955ebf1352266dc2ff8067e68104607e750abb9d3b36582b8af909fcb58");
}

#[test]
fn second_names_of_a_file_count_each() {
    let lab = Lab::new();
    let collected = lab.run(25, |directory| {
        fs::write(directory.join("a"), "0123456789").unwrap();
        for name in ["b", "c", "d"] {
            fs::hard_link(directory.join("a"), directory.join(name)).unwrap();
        }
    });
    assert_eq!((paths(collected.kept()), collected.extent()), (vec!["a", "b"], Extent::BytesExceeded));
}

#[test]
fn more_names_than_are_looked_at_are_counted() {
    let lab = Lab::new();
    let collected = lab.run(MIB, |directory| {
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
fn paths_have_a_bound_together() {
    let lab = Lab::new();
    let collected = lab.run(MIB, |directory| {
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
