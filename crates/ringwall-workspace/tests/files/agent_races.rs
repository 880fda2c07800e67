//! Races: a box exchanges directories and symlinks during operations of the files API; writers and
//! readers use one file.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use ringwall_workspace::{AgentPath, Change, Lines};

use crate::fixture::{Fixture, own_by_box};
use crate::races::{plant, swapping};

fn at(path: &str) -> AgentPath {
    AgentPath::parse(path).unwrap()
}

#[test]
fn reads_never_leave_the_tree() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    plant(&fixture.host_path("files"), &fixture.outside());
    own_by_box(&fixture.host_path("files"));
    let (mut inside, mut error) = (0, 0);
    let swaps = swapping(&fixture.host_path("files"), || {
        for _ in 0..100_000 {
            match tree.read(&at("files/d/canary"), Lines::ALL) {
                Ok(text) => {
                    assert_eq!(text.content(), "inside");
                    inside += 1;
                }
                Err(_) => error += 1,
            }
        }
    });
    println!("100000 reads, {swaps} swaps, {inside} inside, {error} refused, 0 canaries");
    assert!(inside > 0);
    fixture.check();
}

#[test]
fn writes_and_edits_never_leave_the_tree() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    plant(&fixture.host_path("files"), &fixture.outside());
    own_by_box(&fixture.host_path("files"));
    let mut written = 0;
    let swaps = swapping(&fixture.host_path("files"), || {
        for _ in 0..5_000 {
            written += u64::from(tree.write(&at("files/d/canary"), b"written").is_ok());
            written += u64::from(tree.write(&at("files/d/new/deeper"), b"written").is_ok());
            written +=
                u64::from(tree.edit(&at("files/d/canary"), "written", "edited", 1).and_then(Change::apply).is_ok());
        }
    });
    println!("15000 changes, {swaps} swaps, {written} inside, 0 canaries");
    assert!(written > 0);
    assert!(fixture.staged().is_empty());
    fixture.check();
}

#[test]
fn lists_and_downloads_never_leave_the_tree() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    plant(&fixture.host_path("files"), &fixture.outside());
    fs::write(fixture.outside().join("canary2"), "x").unwrap();
    own_by_box(&fixture.host_path("files"));
    swapping(&fixture.host_path("files"), || {
        for _ in 0..3_000 {
            for path in tree.list(&at("files")).unwrap().whole() {
                assert!(matches!(path.as_str(), "files/d/canary" | "files/l/canary"), "{path}");
            }
            if let Ok(ringwall_workspace::Download::Directory(archive)) = tree.download(&at("files")) {
                let mut bytes = Vec::new();
                archive.write(&mut bytes).unwrap();
                let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
                for index in 0..zip.len() {
                    // The archive may contain a directory that was replaced before its files were
                    // read.
                    let entry = zip.by_index(index).unwrap();
                    let expected = if entry.is_dir() { "" } else { "inside" };
                    assert_eq!(std::io::read_to_string(entry).unwrap(), expected);
                }
            }
        }
    });
}

#[test]
fn deletions_never_leave_the_tree() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    let mut deleted = 0;
    for _ in 0..300 {
        fs::create_dir(fixture.host_path("files/t")).unwrap();
        for number in 0..20 {
            fs::create_dir_all(fixture.host_path(&format!("files/t/{number}/a/b"))).unwrap();
        }
        plant(&fixture.host_path("files/t"), &fixture.outside());
        own_by_box(&fixture.host_path("files"));
        swapping(&fixture.host_path("files/t"), || {
            deleted += u64::from(tree.delete(&at("files/t/d/canary")).is_ok_and(|removed| removed.erase().is_ok()));
            tree.delete(&at("files/t")).unwrap().erase().unwrap();
        });
        fixture.check();
        assert!(fixture.staged().is_empty());
    }
    println!("300 trees, {deleted} files deleted before their tree");
}

#[test]
fn concurrent_read_returns_one_version() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    let version = |letter: &str| letter.repeat(300_000);
    tree.write(&at("files/f"), version("a").as_bytes()).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for letter in ["a", "b", "c"] {
            let (tree, over, content) = (&tree, &over, version(letter));
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    tree.write(&at("files/f"), content.as_bytes()).unwrap();
                }
            });
        }
        for _ in 0..500 {
            let text = tree.read(&at("files/f"), Lines::ALL).unwrap().into_content();
            assert_eq!(text.len(), 300_000);
            let first = &text[..1];
            assert!(text.bytes().all(|byte| [byte] == first.as_bytes()), "two versions in one");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(fixture.staged().is_empty());
}
