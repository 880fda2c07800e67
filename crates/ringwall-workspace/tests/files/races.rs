//! Races: another thread exchanges directories and symlinks during collection, reading and removal.
//! Each test prints how often both sides acted.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ringwall_workspace::Processes;
use rustix::fs::{CWD, RenameFlags};
use serde_json::json;

use crate::fixture::{CANARY, Fixture, MIB, own_by_box, path};

/// Creates the directory `d` with a file `canary`, and the symlink `l` to the directory of the real
/// canary.
pub fn plant(directory: &Path, outside: &Path) {
    fs::create_dir(directory.join("d")).unwrap();
    fs::write(directory.join("d/canary"), "inside").unwrap();
    symlink(outside, directory.join("l")).unwrap();
}

fn swap(directory: &Path) -> rustix::io::Result<()> {
    rustix::fs::renameat_with(CWD, directory.join("d"), CWD, directory.join("l"), RenameFlags::EXCHANGE)
}

/// Runs `act` while another thread exchanges `d` and `l`. Returns the number of exchanges.
pub fn swapping(directory: &Path, act: impl FnOnce()) -> u64 {
    let (over, swaps, begun) = (AtomicBool::new(false), AtomicU64::new(0), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            begun.wait();
            while !over.load(Ordering::Relaxed) {
                swaps.fetch_add(u64::from(swap(directory).is_ok()), Ordering::Relaxed);
            }
        });
        begun.wait();
        let _over = Ending(&over);
        act();
    });
    swaps.into_inner()
}

/// Stops the other thread even if `act` panics; otherwise the scope would wait for it forever.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn control_reads_canary_by_path() {
    let fixture = Fixture::new();
    let directory = tempfile::tempdir().unwrap();
    plant(directory.path(), &fixture.outside());
    swap(directory.path()).unwrap();
    assert_eq!(fs::read_to_string(directory.path().join("d/canary")).unwrap(), CANARY);
}

#[test]
fn collection_never_leaves_box_directory() {
    let fixture = Fixture::new();
    let (mut swaps, mut kept) = (0, 0);
    for _ in 0..500 {
        let files = fixture.begin();
        let exec = files.exec().clone();
        let directory = files.artifacts().unwrap().path().to_owned();
        plant(&directory, &fixture.outside());
        own_by_box(&directory);
        swaps += swapping(&directory, || {
            let finished = files.collect(MIB, Processes::Dead).unwrap().finish(&json!({})).unwrap();
            for file in finished.iter().filter(|file| file.path.as_str().ends_with("canary")) {
                kept += 1;
                let mut content = String::new();
                let mut artifact = fixture.project.open_artifact(&exec, &file.path).unwrap();
                artifact.file.read_to_string(&mut content).unwrap();
                assert_eq!(content, "inside");
            }
        });
        fixture.check();
    }
    println!("500 collections, {swaps} swaps, {kept} files kept, 0 canaries");
    assert!(kept > 0);
}

#[test]
fn reads_never_leave_exec_directory() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    let exec = files.exec().clone();
    let directory = fixture.host_path(&format!("projects/p/artifacts/{exec}"));
    plant(&directory, &fixture.outside());
    let (mut read, mut error) = (0, 0);
    let swaps = swapping(&directory, || {
        for _ in 0..100_000 {
            match fixture.project.open_artifact(&exec, &path("d/canary")) {
                Ok(mut artifact) => {
                    let mut content = String::new();
                    artifact.file.read_to_string(&mut content).unwrap();
                    assert_eq!(content, "inside");
                    read += 1;
                }
                Err(_) => error += 1,
            }
        }
    });
    println!("100000 openings, {swaps} swaps, {read} read inside, {error} refused, 0 canaries");
    fixture.check();
}

#[test]
fn input_writes_never_leave_inputs() {
    let fixture = Fixture::new();
    let directory = fixture.host_path("projects/p/inputs");
    plant(&directory, &fixture.outside());
    let mut written = 0;
    let swaps = swapping(&directory, || {
        for _ in 0..5_000 {
            let exec = ringwall_ids::ExecId::random().unwrap();
            let inputs = [crate::fixture::input("d/canary", "overwritten")];
            written += u64::from(fixture.project.write_inputs(&exec, &inputs).is_ok());
        }
    });
    println!("5000 writes, {swaps} swaps, {written} written inside, 0 canaries");
    assert!(fixture.staged().is_empty());
    fixture.check();
}

#[test]
fn removal_never_leaves_removed_tree() {
    let fixture = Fixture::new();
    let mut swaps = 0;
    for _ in 0..300 {
        let files = fixture.begin();
        let exec = files.exec().clone();
        let directory = files.artifacts().unwrap().path().to_owned();
        for number in 0..20 {
            fs::create_dir_all(directory.join(format!("{number}/a/b"))).unwrap();
        }
        plant(&directory, &fixture.outside());
        swaps += swapping(&directory, || fixture.project.remove_artifacts(&exec).unwrap());
        fixture.check();
        assert!(fixture.staged().is_empty());
    }
    println!("300 removals, {swaps} swaps, 0 canaries");
}
