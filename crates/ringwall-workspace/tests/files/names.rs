//! Files with any names are collected or reported as skipped, and every listed file can be opened.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;

use proptest::prelude::*;
use ringwall_workspace::Processes;
use serde_json::json;

use crate::fixture::{Fixture, MIB, own_by_box};

/// One path component of arbitrary bytes.
fn name() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'.'), Just(b'\\'), 1_u8..=255], 1..12)
        .prop_filter("valid for the kernel", |name| !name.contains(&b'/') && !matches!(name.as_slice(), b"." | b".."))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn listed_path_can_be_opened(trees in proptest::collection::vec(proptest::collection::vec(name(), 1..4), 0..12)) {
        let fixture = Fixture::new();
        let files = fixture.begin();
        let exec = files.exec().clone();
        let mut made = 0;
        for components in &trees {
            let mut path = files.artifacts().unwrap().path().to_owned();
            path.extend(components.iter().map(|component| OsStr::from_bytes(component)));
            // Some paths exclude each other.
            let parent = path.parent().unwrap();
            if fs::create_dir_all(parent).is_ok() && fs::File::create_new(&path).is_ok() {
                fs::write(&path, components.concat()).unwrap();
                made += 1;
            }
        }
        own_by_box(files.artifacts().unwrap().path());
        let collected = files.collect(MIB, Processes::Dead).unwrap();
        prop_assert!(collected.kept().len() <= made);
        prop_assert!(collected.kept().len() == made || collected.skipped_total() > 0);
        let kept = collected.kept().to_vec();
        collected.finish(&json!({})).unwrap();
        let listed = fixture.project.artifacts(&exec).unwrap();
        prop_assert!(kept.iter().all(|file| listed.contains(file)));
        for file in listed {
            let mut content = Vec::new();
            fixture.project.open_artifact(&exec, &file.path).unwrap().file.read_to_end(&mut content).unwrap();
            prop_assert_eq!(content.len() as u64, file.size);
            if kept.contains(&file) {
                prop_assert_eq!(content, file.path.as_str().replace('/', "").into_bytes());
            }
        }
        prop_assert!(fixture.staged().is_empty());
    }
}
