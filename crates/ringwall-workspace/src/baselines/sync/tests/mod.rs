//! Checkouts on a real file system: compared with a model, with concurrent changes, and
//! interrupted.

#![expect(clippy::disallowed_methods, reason = "the tests change their directories as a box or an operator could")]

pub(crate) mod fixture;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use fixture::{Fixture, agent, contents, list, name, owner, texts};

impl Fixture {
    /// A sync that is interrupted after `count` steps.
    fn cut_off(&self, tree: &Tree, count: usize) {
        let snapshot = self.baselines.snapshot(&agent()).unwrap();
        let mut index = Index::load(tree.workspace()).unwrap();
        if index.generation == snapshot.generation {
            return;
        }
        let mut steps = plan(tree, &snapshot, &mut index).unwrap();
        steps.sort_by_key(|step| step.action != Action::Add);
        record_intent(&steps, &snapshot, &mut index);
        index.save(tree.workspace()).unwrap();
        let mut applier = Applier { tree, checkout_dir: CheckoutDir::new(tree.workspace()).unwrap() };
        let copies = applier.copy(&steps, &snapshot).unwrap();
        for (step, copy) in steps.iter().zip(copies).take(count) {
            let known = index.skills[&step.skill].files.get(&step.path).map(|file| file.known.clone());
            applier.apply(step, copy.as_deref(), &known.unwrap_or_default()).unwrap();
        }
    }
}

#[test]
fn changes_of_one_user_affect_neither_baseline_nor_others() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.tree("one"), fixture.tree("two"));
    assert_eq!(fixture.sync_state(&one), SyncState::UpToDate, "no baseline was published yet");
    fixture.publish(&[("s/SKILL.md", "v1"), ("s/run.sh", "#!"), ("s/d/a", "a1")]);
    assert_eq!(fixture.sync_state(&one), SyncState::Outdated);
    fixture.sync(&one);
    fixture.sync(&two);
    let before = contents(&fixture.directory.path().join("baselines"));
    let skills = fixture.skills("one");
    let status = |file: &str| fs::metadata(skills.join(file)).unwrap();
    for (file, mode) in [("s", 0o755), ("s/d", 0o755), ("s/SKILL.md", 0o644), ("s/run.sh", 0o755), ("s/d/a", 0o644)] {
        assert_eq!((status(file).uid(), status(file).mode() & 0o7777), (owner().uid, mode), "{file}");
    }
    fs::write(skills.join("s/SKILL.md"), "mine").unwrap();
    fs::remove_file(skills.join("s/d/a")).unwrap();
    fs::rename(skills.join("s/run.sh"), skills.join("s/moved.sh")).unwrap();
    let all = texts(&[("s/SKILL.md", "v1"), ("s/run.sh", "#!"), ("s/d/a", "a1")]);
    assert_eq!(contents(&fixture.skills("two")), all);
    assert_eq!(contents(&fixture.directory.path().join("baselines")), before, "the baselines are unchanged");
    fixture.publish(&[("s/SKILL.md", "v2"), ("s/run.sh", "#!2"), ("s/d/a", "a2"), ("s/new", "n")]);
    fixture.sync(&one);
    fixture.sync(&two);
    let own = texts(&[("s/SKILL.md", "mine"), ("s/moved.sh", "#!"), ("s/new", "n")]);
    assert_eq!(contents(&skills), own);
    let all = texts(&[("s/SKILL.md", "v2"), ("s/run.sh", "#!2"), ("s/d/a", "a2"), ("s/new", "n")]);
    assert_eq!(contents(&fixture.skills("two")), all);
    assert_eq!(list(&fixture.directory.path().join("workspaces/one/agent/.staging")), [""; 0]);
}

#[test]
fn file_removed_from_baseline_is_removed_unless_changed() {
    let fixture = Fixture::new();
    let tree = fixture.tree("one");
    fixture.publish(&[("s/SKILL.md", "1"), ("s/x/y/kept", "1"), ("s/x/z/gone", "1"), ("s/changed", "1")]);
    fixture.sync(&tree);
    fs::write(fixture.skills("one").join("s/changed"), "mine").unwrap();
    fixture.publish(&[("s/SKILL.md", "1"), ("s/x/y/kept", "1")]);
    fixture.sync(&tree);
    let left = texts(&[("s/SKILL.md", "1"), ("s/changed", "mine"), ("s/x/y/kept", "1")]);
    assert_eq!(contents(&fixture.skills("one")), left);
    assert_eq!(list(&fixture.skills("one").join("s/x")), ["y"], "an empty directory is removed with its last file");
}

#[test]
fn deleted_skill_stays_deleted_until_uploaded() {
    let fixture = Fixture::new();
    let (tree, other) = (fixture.tree("one"), fixture.tree("two"));
    fixture.publish(&[("s/SKILL.md", "1"), ("t/SKILL.md", "1")]);
    fixture.sync(&tree);
    fixture.sync(&other);
    fixture.baselines.delete(&agent(), &tree, &name("s")).unwrap().erase().unwrap();
    // By a box; the server is not notified.
    fs::remove_dir_all(fixture.skills("one").join("t")).unwrap();
    fixture.publish(&[("s/SKILL.md", "2"), ("s/more", "2"), ("t/SKILL.md", "2"), ("t/more", "2")]);
    fixture.sync(&tree);
    fixture.sync(&other);
    assert_eq!(contents(&fixture.skills("one")), BTreeMap::new());
    assert_eq!(contents(&fixture.skills("two")).len(), 4);
    fixture.upload(&tree, &[("s/SKILL.md", "own"), ("s/mine", "m")]);
    let union = texts(&[("s/SKILL.md", "own"), ("s/mine", "m"), ("s/more", "2")]);
    assert_eq!(contents(&fixture.skills("one")), union);
    fixture.publish(&[("s/SKILL.md", "3"), ("s/more", "3")]);
    fixture.sync(&tree);
    let union = texts(&[("s/SKILL.md", "own"), ("s/mine", "m"), ("s/more", "3")]);
    assert_eq!(contents(&fixture.skills("one")), union);
}

#[test]
fn upload_overrides_baseline_and_earlier_changes() {
    let fixture = Fixture::new();
    let tree = fixture.tree("one");
    fixture.publish(&[("s/SKILL.md", "1"), ("s/d/a", "1"), ("s/b", "1"), ("s/f", "1")]);
    fixture.sync(&tree);
    fs::write(fixture.skills("one").join("s/b"), "mine").unwrap();
    fs::remove_file(fixture.skills("one").join("s/d/a")).unwrap();
    fixture.upload(&tree, &[("s/SKILL.md", "own"), ("s/f/inside", "own")]);
    let union = texts(&[("s/SKILL.md", "own"), ("s/b", "1"), ("s/d/a", "1"), ("s/f/inside", "own")]);
    assert_eq!(contents(&fixture.skills("one")), union);
    let status = fs::metadata(fixture.skills("one").join("s/d")).unwrap();
    assert_eq!(status.uid(), owner().uid);
}

#[test]
fn symlinks_and_files_in_place_of_directories_are_kept() {
    let fixture = Fixture::new();
    let tree = fixture.tree("one");
    let outside = fixture.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let skills = fixture.skills("one");
    symlink(&outside, skills.join("linked")).unwrap();
    fs::write(skills.join("filed"), "x").unwrap();
    fs::create_dir(skills.join("s")).unwrap();
    symlink(&outside, skills.join("s/d")).unwrap();
    fs::write(skills.join("s/e"), "x").unwrap();
    let files = ["linked/SKILL.md", "filed/SKILL.md", "s/SKILL.md", "s/d/a", "s/e/a"].map(|file| (file, "1"));
    fixture.publish(&files);
    fixture.sync(&tree);
    assert_eq!(fs::read_to_string(skills.join("s/SKILL.md")).unwrap(), "1");
    fixture.publish(&files.map(|(file, _)| (file, "2")));
    fixture.sync(&tree);
    assert_eq!(fs::read_to_string(skills.join("s/SKILL.md")).unwrap(), "2");
    assert_eq!(list(&outside), [""; 0]);
    assert!(fs::symlink_metadata(skills.join("s/d")).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(skills.join("s/e")).unwrap(), "x");
}

#[test]
fn file_replaced_during_sync_is_kept() {
    let fixture = Fixture::new();
    let tree = fixture.tree("one");
    let file = fixture.skills("one").join("s/file");
    for round in 0..100 {
        fixture.publish(&[("s/SKILL.md", "1"), ("s/file", &format!("version {round}"))]);
        if round == 0 {
            fixture.sync(&tree);
            continue;
        }
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begun.store(true, Ordering::SeqCst);
                let beside = file.with_extension("new");
                fs::write(&beside, "mine").unwrap();
                fs::rename(&beside, &file).unwrap();
            });
            while !begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            fixture.sync(&tree);
        });
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine", "{round}");
        // Restore the baseline's content.
        fs::write(&file, format!("version {round}")).unwrap();
    }
}

#[test]
fn version_is_kept_while_snapshot_is_held() {
    let fixture = Fixture::new();
    fixture.publish(&[("s/SKILL.md", "1"), ("t/SKILL.md", "1")]);
    let held = fixture.baselines.snapshot(&agent()).unwrap();
    fixture.publish(&[("s/SKILL.md", "2")]);
    assert_eq!(fixture.versions("s"), ["1", "1.json", "2", "2.json"]);
    assert_eq!(fixture.versions("t"), ["1", "1.json"]);
    drop(held);
    fixture.sync(&fixture.tree("one"));
    assert_eq!(fixture.versions("s"), ["2", "2.json"]);
    fixture.publish(&[("s/SKILL.md", "3")]);
    assert_eq!(fixture.versions("s"), ["3", "3.json"]);
    assert_eq!(list(&fixture.directory.path().join("baselines/.staging")), [""; 0]);
}

#[test]
fn restart_removes_unpublished_versions() {
    let fixture = Fixture::new();
    let tree = fixture.tree("one");
    fixture.publish(&[("s/SKILL.md", "1")]);
    fixture.sync(&tree);
    let root = fixture.directory.path().join("baselines");
    // Leftovers of uploads that were interrupted before their publication.
    for stray in ["agent/s/2", "agent/new/1", "other/s/1", ".staging/upload-1/new/s"] {
        fs::create_dir_all(root.join(stray)).unwrap();
        fs::write(root.join(stray).join("SKILL.md"), "half").unwrap();
    }
    fs::write(root.join("agent/s/2.json"), "{").unwrap();
    let Fixture { directory, workspaces, baselines } = fixture;
    drop(baselines);
    let baselines = Baselines::open(&root).unwrap();
    let fixture = Fixture { directory, workspaces, baselines };
    assert_eq!(fixture.versions("s"), ["1", "1.json"]);
    assert_eq!(list(&root.join("agent/new")), [""; 0]);
    assert_eq!(list(&root.join(".staging")), [""; 0]);
    fixture.sync(&tree);
    fixture.publish(&[("s/SKILL.md", "2")]);
    fixture.sync(&tree);
    assert_eq!(contents(&fixture.skills("one")), texts(&[("s/SKILL.md", "2")]));
}

/// Empty files as after a power cut or a disk error.
#[test]
fn unreadable_document_affects_one_workspace_or_agent() {
    let fixture = Fixture::new();
    let (tree, other): (_, AgentId) = (fixture.tree("one"), "other".parse().unwrap());
    fixture.publish(&[("s/SKILL.md", "1"), ("s/deleted", "1"), ("s/changed", "1")]);
    fixture.sync(&tree);
    let (skill, root) = (fixture.skills("one").join("s"), fixture.directory.path().join("baselines"));
    fs::remove_file(skill.join("deleted")).unwrap();
    fs::write(skill.join("changed"), "mine").unwrap();
    // A new index is built from the files, and the user's own files stay.
    let index = fixture.directory.path().join("workspaces/one/agent/.baseline");
    fs::write(index.join("index.json"), "").unwrap();
    fixture.publish(&[("s/SKILL.md", "2"), ("s/deleted", "1"), ("s/changed", "1")]);
    fixture.sync(&tree);
    let left = [("s/SKILL.md", "1"), ("s/deleted", "1"), ("s/changed", "mine")];
    assert_eq!(contents(&fixture.skills("one")), texts(&left), "a file that differs from the baseline is the user's");
    assert_eq!(list(&index), ["index.json", "unreadable.json"]);

    // Nothing of an agent with unknown versions is removed, and other agents are not affected.
    fs::create_dir_all(root.join("other/t/1")).unwrap();
    for cut_off in [".current/agent.json", "agent/s/2.json"] {
        let whole = fs::read(root.join(cut_off)).unwrap();
        fs::write(root.join(cut_off), "").unwrap();
        let baselines = Baselines::open(&root).unwrap();
        assert_eq!(fixture.versions("s"), ["2", "2.json"]);
        let refused = baselines.snapshot(&agent()).unwrap_err();
        assert!(matches!(&refused, Error::BaselinesUnreadable { agent: of, .. } if *of == agent()), "{refused:?}");
        assert_eq!(baselines.unreadable().len(), usize::from(cut_off.starts_with(".current")));
        assert_eq!(baselines.snapshot(&other).unwrap().generation, 0);
        fs::write(root.join(cut_off), whole).unwrap();
        assert_eq!(baselines.snapshot(&agent()).unwrap().generation, 2, "readable again after it was restored");
    }
}

#[test]
fn recreated_workspace_gets_all_baselines() {
    let fixture = Fixture::new();
    fixture.publish(&[("s/SKILL.md", "1")]);
    fixture.sync(&fixture.tree("one"));
    fs::remove_dir_all(fixture.directory.path().join("workspaces/one")).unwrap();
    let tree = fixture.tree("one");
    assert_eq!(fixture.sync_state(&tree), SyncState::Outdated);
    fixture.sync(&tree);
    assert_eq!(contents(&fixture.skills("one")), texts(&[("s/SKILL.md", "1")]));
}

#[test]
fn concurrent_uploads_are_serialized() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let fixture = &fixture;
            scope.spawn(move || {
                let own = format!("own-{number}/SKILL.md");
                fixture.publish(&[("s/SKILL.md", &number.to_string()), (&own, "x")]);
            });
        }
    });
    let snapshot = fixture.baselines.snapshot(&agent()).unwrap();
    assert_eq!((snapshot.generation, snapshot.skills.len()), (8, 9));
    assert_eq!(snapshot.skills[&name("s")].number, 8);
    assert_eq!(Arc::strong_count(&snapshot.skills[&name("s")]), 1);
    drop(snapshot);
    fixture.sync(&fixture.tree("one"));
    assert_eq!(fixture.versions("s"), ["8", "8.json"]);
}

/// An event in the life of one skill.
#[derive(Debug, Clone)]
enum Event {
    Publish(BTreeMap<usize, u8>),
    Write(usize, u8),
    Delete(usize),
    Sync,
    Kill(usize),
}

const PATHS: [&str; 4] = ["SKILL.md", "a", "d/b", "d/c"];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0_u8..3, proptest::collection::btree_map(1_usize..4, 0_u8..3, 0..4)).prop_map(|(own, mut files)| {
            files.insert(0, own);
            Event::Publish(files)
        }),
        (0_usize..4, 0_u8..4).prop_map(|(path, content)| Event::Write(path, content)),
        (0_usize..4).prop_map(Event::Delete),
        Just(Event::Sync),
        (0_usize..4).prop_map(Event::Kill),
    ]
}

#[test]
fn file_created_after_both_deleted_it_is_users_own() {
    let fixture = Fixture::new();
    let tree = fixture.tree("one");
    let skill = fixture.skills("one").join("s");
    fixture.publish(&[("s/SKILL.md", "name: s\n"), ("s/a", "shared")]);
    fixture.sync(&tree);
    fs::remove_file(skill.join("a")).unwrap();
    fixture.publish(&[("s/SKILL.md", "name: s\n")]);
    fixture.sync(&tree);
    fs::write(skill.join("a"), "shared").unwrap();
    fixture.publish(&[("s/SKILL.md", "name: s\ndescription: x\n")]);
    fixture.sync(&tree);
    assert_eq!(fs::read_to_string(skill.join("a")).unwrap(), "shared", "equals a former baseline, but is the user's");
}

/// Reference model: the visible files, and the content that the baseline last offered for each
/// path.
#[derive(Debug, Default)]
struct Model {
    /// `None` if the user deleted the file before the baseline did; a file created there is the
    /// user's.
    offered: BTreeMap<usize, Option<u8>>,
    shown: BTreeMap<usize, u8>,
    baseline: BTreeMap<usize, u8>,
    /// A sync changes nothing if there was no new publication.
    is_outdated: bool,
}

impl Model {
    fn sync(&mut self) {
        if !std::mem::take(&mut self.is_outdated) {
            return;
        }
        for path in 0..PATHS.len() {
            let (offered, shown) = (self.offered.get(&path).copied(), self.shown.get(&path).copied());
            let new = self.baseline.get(&path).copied();
            let is_own = shown.is_some() && Some(shown) != offered;
            let is_deleted = shown.is_none() && offered.is_some();
            if !is_own && !is_deleted {
                match new {
                    Some(content) => drop(self.shown.insert(path, content)),
                    None => drop(self.shown.remove(&path)),
                }
            }
            match new {
                Some(content) => drop(self.offered.insert(path, Some(content))),
                None if is_deleted => drop(self.offered.insert(path, None)),
                None => drop(self.offered.remove(&path)),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn checkout_matches_model(events in proptest::collection::vec(event(), 1..14)) {
        let fixture = Fixture::new();
        let tree = fixture.tree("one");
        let skill = fixture.skills("one").join("s");
        let mut model = Model::default();
        for event in events {
            // The service syncs a workspace before each use. During a crash no user changes
            // anything.
            if matches!(event, Event::Write(..) | Event::Delete(_) | Event::Sync) {
                fixture.sync(&tree);
                model.sync();
            }
            match event {
                Event::Publish(files) => {
                    let named: Vec<(String, String)> = files
                        .iter()
                        .map(|(path, content)| (format!("s/{}", PATHS[*path]), format!("content {content}")))
                        .collect();
                    let named: Vec<(&str, &str)> = named.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
                    fixture.publish(&named);
                    model.baseline = files;
                    model.is_outdated = true;
                }
                Event::Write(path, content) => {
                    let file = skill.join(PATHS[path]);
                    fs::create_dir_all(file.parent().unwrap()).unwrap();
                    fs::write(file, format!("content {content}")).unwrap();
                    model.shown.insert(path, content);
                }
                Event::Delete(path) => {
                    let _ = fs::remove_file(skill.join(PATHS[path]));
                    model.shown.remove(&path);
                }
                Event::Sync => {}
                Event::Kill(count) => fixture.cut_off(&tree, count),
            }
        }
        fixture.sync(&tree);
        model.sync();
        let expected: BTreeMap<String, String> =
            model.shown.iter().map(|(path, content)| (PATHS[*path].to_owned(), format!("content {content}"))).collect();
        prop_assert_eq!(contents(&skill), expected);
    }
}
