//! Disk usage of a workspace, compared with a simple count, also for unusual trees.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use ringwall_ids::ExecId;
use ringwall_workspace::{AgentPath, Change, Lines, Processes, Usage};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::fixture::{Fixture, input, own_by_box, set_owner};

const ANY: u64 = u64::MAX;

/// Reference model: counts everything beneath a directory, but not the directory itself.
fn model(directory: &Path, seen: &mut HashSet<u64>) -> Usage {
    let mut usage = Usage::default();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let status = path.symlink_metadata().unwrap();
        usage.files += 1;
        if status.is_dir() || status.nlink() == 1 || seen.insert(status.ino()) {
            usage.bytes += status.blocks() * 512;
        }
        if status.is_dir() {
            usage = usage.plus(model(&path, seen));
        }
    }
    usage
}

fn expected(fixture: &Fixture) -> Usage {
    let mut seen = HashSet::new();
    let counted = ["files", "skills", "sessions", ".staging", "projects/p/inputs", "projects/p/work"]
        .map(|name| fixture.host_path(name));
    // The project's directory, `inputs` and `work` count as names.
    let frame = ["projects/p", "projects/p/inputs", "projects/p/work"].map(|name| fixture.host_path(name));
    let blocks = frame.iter().map(|path| path.symlink_metadata().unwrap().blocks() * 512).sum();
    let frame = Usage { bytes: blocks, files: frame.len() as u64 };
    counted.iter().filter(|path| path.exists()).fold(frame, |sum, path| sum.plus(model(path, &mut seen)))
}

fn measured(fixture: &Fixture) -> Usage {
    fixture.workspace.measure(ANY).unwrap()
}

/// A step that fills a tree. Numbers are taken modulo the number of existing entries.
#[derive(Debug, Clone)]
enum Act {
    Directory(usize, u8),
    File(usize, u8, usize),
    Sparse(usize, u8),
    Link(usize, u8, usize),
    Symlink(usize, u8),
    Pipe(usize, u8),
}

fn act() -> impl Strategy<Value = Act> {
    let location = 0..64_usize;
    prop_oneof![
        3 => (location.clone(), any::<u8>()).prop_map(|(location, name)| Act::Directory(location, name)),
        4 => (location.clone(), any::<u8>(), 0..20_000_usize).prop_map(|(location, name, size)| Act::File(location, name, size)),
        1 => (location.clone(), any::<u8>()).prop_map(|(location, name)| Act::Sparse(location, name)),
        2 => (location.clone(), any::<u8>(), 0..64_usize).prop_map(|(location, name, of)| Act::Link(location, name, of)),
        1 => (location.clone(), any::<u8>()).prop_map(|(location, name)| Act::Symlink(location, name)),
        1 => (location, any::<u8>()).prop_map(|(location, name)| Act::Pipe(location, name)),
    ]
}

fn grow(fixture: &Fixture, acts: &[Act]) {
    fixture.workspace.tree().unwrap();
    let mut directories: Vec<_> = ["files", "skills", "projects/p/work"].map(|top| fixture.host_path(top)).into();
    let mut files = Vec::new();
    for act in acts {
        let at = |location: &usize, name: &u8| directories[location % directories.len()].join(format!("n{name}"));
        // Fails if the name exists.
        match act {
            Act::Directory(location, name) => {
                let path = at(location, name);
                if fs::create_dir(&path).is_ok() {
                    directories.push(path);
                }
            }
            Act::File(location, name, size) => {
                let path = at(location, name);
                if !path.exists() && path.symlink_metadata().is_err() {
                    fs::write(&path, vec![7; *size]).unwrap();
                    files.push(path);
                }
            }
            Act::Sparse(location, name) => {
                if let Ok(file) = fs::File::create_new(at(location, name)) {
                    file.set_len(1 << 30).unwrap();
                }
            }
            Act::Link(location, name, of) if !files.is_empty() => {
                let _ = fs::hard_link(&files[of % files.len()], at(location, name));
            }
            Act::Link(..) => {}
            Act::Symlink(location, name) => drop(symlink(fixture.outside(), at(location, name))),
            Act::Pipe(location, name) => {
                let _ = rustix::fs::mknodat(CWD, at(location, name), FileType::Fifo, Mode::RWXU, 0);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn measure_matches_model(acts in prop::collection::vec(act(), 0..120)) {
        let fixture = Fixture::new();
        grow(&fixture, &acts);
        prop_assert_eq!(measured(&fixture), expected(&fixture));
        fixture.check();
    }

    #[test]
    fn limited_measure_reports_more_than_limit(acts in prop::collection::vec(act(), 0..120), max in 0..60_u64) {
        let fixture = Fixture::new();
        grow(&fixture, &acts);
        let (all, stopped) = (measured(&fixture), fixture.workspace.measure(max).unwrap());
        prop_assert_eq!(stopped.files, all.files.min(max + 1));
        prop_assert!(stopped.bytes <= all.bytes);
    }
}

/// The caller has reserved space for files in `.staging`, and a replaced file must not count twice.
#[test]
fn files_the_server_is_writing_do_not_count() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    let before = measured(&fixture);
    let mut staged = fixture.workspace.stage().unwrap();
    staged.write_all(&[1; 50_000]).unwrap();
    fs::create_dir(fixture.host_path(".staging/upload-0123")).unwrap();
    fs::write(fixture.host_path(".staging/upload-0123/file"), vec![1; 50_000]).unwrap();
    assert_eq!(measured(&fixture), before);
    tree.persist(staged, &AgentPath::parse("files/a").unwrap()).unwrap();
    assert_eq!(measured(&fixture).files, before.files + 1);
    // Files of a box with such a name count.
    let files = fixture.begin();
    for location in [files.artifacts().unwrap().path().to_owned(), fixture.host_path("files")] {
        fs::write(location.join("arriving-0123"), vec![1; 50_000]).unwrap();
    }
    assert!(measured(&fixture).bytes >= before.bytes + 150_000);
}

/// The predicted growth is at least the growth that is measured after the change.
#[test]
fn predicted_growth_covers_measured_growth() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    let at = |path| AgentPath::parse(path).unwrap();
    let (plain, sparse, twice) = (at("files/plain"), at("files/sparse"), at("files/twice"));
    tree.write(&plain, &[b'x'; 100_000]).unwrap();
    tree.write(&twice, &[b'x'; 100_000]).unwrap();
    fs::hard_link(fixture.host_path("files/twice"), fixture.host_path("files/other name")).unwrap();
    let file = fs::File::create(fixture.host_path("files/sparse")).unwrap();
    file.write_all_at(b"x\n", 0).unwrap();
    file.set_len(1 << 20).unwrap();
    set_owner(&fixture.host_path("files/sparse"));
    let body = vec![b'y'; 20_000];
    let line = Some(Lines::range(Some(1), Some(1)).unwrap());
    let mut grown = Vec::new();
    let mut make = |change: Result<Change<'_>, ringwall_workspace::Error>| {
        let (before, change) = (measured(&fixture), change.unwrap());
        let predicted = change.growth();
        change.apply().unwrap();
        let after = measured(&fixture);
        assert!(after.minus(before).fits(predicted), "{before:?} {after:?} {predicted:?}");
        grown.push((predicted.bytes, predicted.files));
    };
    let deep = at("files/new/deep/file");
    make(tree.replace_lines(&deep, None, &body));
    make(tree.replace_lines(&deep, None, &body));
    make(tree.edit(&plain, "x", "yy", 100_000));
    make(tree.edit(&plain, "yy", "", 100_000));
    make(tree.edit(&sparse, "x", "y", 1));
    make(tree.replace_lines(&sparse, line, &body));
    make(tree.replace_lines(&sparse, line, b""));
    make(tree.edit(&twice, &"x".repeat(100_000), "y", 1));
    assert_eq!(grown, [(28_672, 3), (0, 0), (98_304, 0), (0, 0), (1_044_480, 0), (20_480, 0), (0, 0), (4096, 0)]);
}

#[test]
fn artifacts_and_baseline_index_do_not_count() {
    let fixture = Fixture::new();
    fixture.project.write_inputs(&ExecId::random().unwrap(), &[input("a/b", "x")]).unwrap();
    let before = measured(&fixture);
    assert_eq!(before, expected(&fixture));
    let files = fixture.begin();
    fs::write(files.artifacts().unwrap().path().join("result"), vec![1; 50_000]).unwrap();
    assert_eq!(measured(&fixture), expected(&fixture), "the box's files count");
    assert!(measured(&fixture).bytes >= before.bytes + 50_000);
    own_by_box(files.artifacts().unwrap().path());
    files.collect(1 << 20, Processes::Dead).unwrap();
    fs::create_dir(fixture.host_path(".baseline")).unwrap();
    fs::write(fixture.host_path(".baseline/index.json"), vec![1; 50_000]).unwrap();
    assert_eq!(measured(&fixture), before);
    // Only directories named `artifacts` directly in a project are excluded.
    for location in ["files/artifacts", "projects/p/work/artifacts"] {
        fs::create_dir_all(fixture.host_path(location)).unwrap();
        fs::write(fixture.host_path(location).join("x"), "x").unwrap();
    }
    fs::create_dir_all(fixture.host_path("sessions/s1/work")).unwrap();
    assert_eq!(measured(&fixture), expected(&fixture));
    assert!(measured(&fixture).files >= before.files + 6);
}

/// Creates nested directories deeper than PATH_MAX, each with a file and a closed directory beside
/// it.
fn dig(top: &Path, depth: usize) {
    let mut deepest: OwnedFd = fs::File::open(top).unwrap().into();
    for _ in 0..depth {
        rustix::fs::mkdirat(&deepest, "d", Mode::RWXU).unwrap();
        rustix::fs::mkdirat(&deepest, "beside", Mode::empty()).unwrap();
        rustix::fs::openat(&deepest, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
        deepest = rustix::fs::openat(&deepest, "d", OFlags::DIRECTORY | OFlags::PATH, Mode::empty()).unwrap();
    }
}

#[test]
fn deep_and_closed_directories_are_measured() {
    const DEPTH: usize = 5000;
    let fixture = Fixture::new();
    fixture.workspace.tree().unwrap();
    let before = measured(&fixture).files;
    dig(&fixture.host_path("files"), DEPTH);
    assert_eq!(measured(&fixture).files, before + 3 * DEPTH as u64);
    assert_eq!(measured(&fixture).files, before + 3 * DEPTH as u64);

    let work = fixture.host_path("projects/p/work");
    for (number, mode) in [0o000, 0o100, 0o200, 0o400, 0o500].into_iter().enumerate() {
        let closed = work.join(format!("closed-{number}"));
        fs::create_dir_all(closed.join("inner")).unwrap();
        fs::write(closed.join("inner/file"), vec![1; 10_000]).unwrap();
        own_by_box(&closed);
        set_owner(&closed);
        fs::set_permissions(closed.join("inner"), Permissions::from_mode(mode)).unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(measured(&fixture).files, before + 3 * DEPTH as u64 + 5 * 3);
    // Removed here, because the tree is too deep for the removal of the temporary directory.
    fixture.workspace.remove_project(&"p".parse().unwrap()).unwrap();
    fixture
        .workspace
        .tree()
        .unwrap()
        .delete(&ringwall_workspace::AgentPath::parse("files/d").unwrap())
        .unwrap()
        .erase()
        .unwrap();
}

#[test]
fn wide_directories_are_measured_at_every_depth() {
    let fixture = Fixture::new();
    fixture.workspace.tree().unwrap();
    let mut deep = fixture.host_path("files");
    for _ in 0..80 {
        deep.push("d");
    }
    fs::create_dir_all(&deep).unwrap();
    for top in [fixture.host_path("skills"), deep] {
        for number in 0..600 {
            let directory = top.join(format!("{number}-{}", "n".repeat(200)));
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("file"), "x").unwrap();
            fs::write(top.join(format!("file-{number}")), "x").unwrap();
        }
    }
    assert_eq!(measured(&fixture), expected(&fixture));
}

#[test]
fn measure_of_changing_tree_succeeds() {
    let fixture = Fixture::new();
    fixture.workspace.tree().unwrap();
    let files = fixture.host_path("files");
    dig(&files, 200);
    let before = measured(&fixture);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (one, other) = (files.join("d/d/d"), files.join("elsewhere"));
            while !over.load(Ordering::Relaxed) {
                fs::rename(&one, &other).unwrap();
                fs::create_dir_all(files.join("new/a/b/c")).unwrap();
                symlink(fixture.outside(), files.join("new/link")).unwrap();
                fs::rename(&other, &one).unwrap();
                fs::remove_dir_all(files.join("new")).unwrap();
            }
        });
        for _ in 0..300 {
            let found = measured(&fixture);
            // A directory that is moved may be counted at both places.
            assert!(found.files <= 2 * before.files + 10, "{found:?}");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(measured(&fixture), before);
    fixture.check();
}
