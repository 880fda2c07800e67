//! Tests of the skills directory: valid and invalid manifests, changes on disk, planted files.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ringwall_policy::{Access, Field, LayerName, NetRequest, ProjectAccess};
use rustix::fs::{Mode, mkfifoat};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Catalogue, Error, Found, InvalidManifest, Skill, Skills};
use crate::skills::folder::MAX_SKILLS;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/skills/fixtures")
}

fn scratch() -> (TempDir, Skills) {
    let directory = tempfile::tempdir().expect("a directory");
    let skills = Skills::open(&directory.path().join("skills")).expect("skills");
    (directory, skills)
}

fn put(skills: &Skills, id: &str, text: &str) -> PathBuf {
    let folder = skills.root.join(id);
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("manifest.json");
    std::fs::write(&path, text).expect("a file");
    path
}

fn example(id: &str) -> Value {
    let text = std::fs::read(fixtures().join("text.count/manifest.json")).expect("a fixture");
    let mut manifest: Value = serde_json::from_slice(&text).expect("JSON");
    manifest["id"] = json!(id);
    manifest
}

fn find(skills: &Skills, id: &str) -> Result<Arc<Skill>, Option<Arc<InvalidManifest>>> {
    match skills.find(id).expect("the directory is there") {
        Found::Skill(skill) => Ok(skill),
        Found::Invalid(invalid) => Err(Some(invalid)),
        Found::Unknown => Err(None),
    }
}

/// A time at which all files have been unchanged for long.
fn later() -> SystemTime {
    SystemTime::now() + Duration::from_secs(3600)
}

#[test]
fn concurrent_lookups_during_changes_find_valid_skills() {
    let (_directory, skills) = scratch();
    let named = |name: &str| {
        let mut manifest = example("text.count");
        manifest["name"] = json!(name);
        put(&skills, "text.count", &manifest.to_string());
    };
    named("0");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    // A half-written file may be invalid; the lookup must not block.
                    skills.list().expect("the directory is there");
                    let _ = find(&skills, "text.count");
                }
            });
        }
        (1..20).for_each(|number| named(&number.to_string()));
    });
    named("last");
    assert_eq!(find(&skills, "text.count").expect("a skill").name, "last");
    assert!(skills.list().expect("the directory is there").skills.iter().any(|skill| skill.name == "last"));
}

fn ids(catalogue: &Catalogue) -> Vec<&str> {
    catalogue.skills.iter().map(|skill| skill.id.as_str()).collect()
}

#[test]
fn valid_manifests_are_listed_and_invalid_ones_give_reasons() {
    let skills = Skills::open(&fixtures()).expect("skills");
    let catalogue = skills.list().expect("a list");
    // The replacement of python.run is invalid; the shipped skill does not return in its place.
    assert_eq!(ids(&catalogue), ["good.docker", "good.minimal", "shell.run", "text.count"]);
    insta::assert_snapshot!(serde_json::to_string_pretty(&catalogue.invalid).expect("JSON"));
}

#[test]
fn guide_example_is_valid_skill() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/skills.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let (_, after) = guide.split_once("```json\n").expect("an example");
    let (manifest, _) = after.split_once("```").expect("its end");
    let (_directory, skills) = scratch();
    put(&skills, "text.count", manifest);
    let skill = find(&skills, "text.count").expect("a valid example");
    skill.validate_inputs(&json!({"text": "one two three"})).expect("valid inputs");
    let error = skill.validate_inputs(&json!({"txt": "one"})).expect_err("invalid inputs");
    assert!(guide.contains(&format!("`{error}`")), "{error}");
    for key in crate::skills::RESERVED {
        assert!(guide.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn listed_skill_has_documented_keys() {
    let skills = Skills::open(&fixtures()).expect("skills");
    let catalogue = serde_json::to_value(skills.list().expect("a list")).expect("JSON");
    let listed = catalogue["skills"].as_array().and_then(|skills| skills.last()).expect("text.count");
    let manifest = example("text.count");
    assert_eq!(
        *listed,
        json!({
            "id": "text.count", "name": manifest["name"], "description": manifest["description"],
            "runtime": manifest["runtime"], "interface": manifest["interface"], "permissions": manifest["permissions"],
            "limits": {"timeout_ms": 5000, "memory_mb": 128, "cpu_cores": 0.5},
        })
    );
    let minimal = &catalogue["skills"][1];
    assert_eq!(minimal["permissions"], json!({"fs": {"read": [], "write": []}, "net": {"mode": "none"}}));
    assert_eq!(minimal["limits"], json!({}));
}

#[test]
fn skill_permissions_become_layer_and_mounts() {
    let skills = Skills::open(&fixtures()).expect("skills");
    let skill = find(&skills, "text.count").expect("a skill");
    let layer = skill.layer();
    assert_eq!(layer.name, LayerName::Skill);
    assert_eq!(layer.net, Some(NetRequest::default()));
    assert_eq!(layer.limits, [(Field::TimeoutMs, 5000), (Field::MemoryMb, 128), (Field::CpuMillis, 500)].into());
    let expected = ProjectAccess { inputs: Access::ReadOnly, work: Access::Empty, artifacts: Access::ReadWrite };
    assert_eq!(skill.project_access(), expected);
}

#[test]
fn found_skill_equals_listed_skill() {
    let skills = Skills::open(&fixtures()).expect("skills");
    let catalogue = skills.list().expect("a list");
    for listed in &catalogue.skills {
        assert_eq!(find(&skills, &listed.id).expect("a skill").id, listed.id);
    }
    for listed in &catalogue.invalid {
        assert_eq!(find(&skills, &listed.id).expect_err("a bad manifest"), Some(Arc::clone(listed)));
    }
    let long = "a".repeat(300);
    for id in ["", ".", "..", "no.such", "../fixtures/text.count", "text.count/", "_ignored", "_schema", "a\0", &long] {
        assert_eq!(find(&skills, id).expect_err(id), None, "{id:?}");
    }
}

#[test]
fn shipped_skills_are_there_and_can_be_replaced() {
    let (_directory, skills) = scratch();
    assert_eq!(ids(&skills.list().expect("a list")), ["python.run", "shell.run"]);
    let mut manifest: Value = serde_json::from_str(crate::skills::shipped::Builtin::Shell.manifest()).expect("JSON");
    manifest["limits"] = json!({"timeout_ms": 1000});
    let path = put(&skills, "shell.run", &manifest.to_string());
    assert_eq!(find(&skills, "shell.run").expect("a skill").limits, [(Field::TimeoutMs, 1000)].into());
    std::fs::write(&path, "{}").expect("a file");
    assert!(find(&skills, "shell.run").is_err());
    std::fs::remove_file(&path).expect("removed");
    std::fs::remove_dir(skills.root.join("shell.run")).expect("removed");
    assert!(find(&skills, "shell.run").expect("the shipped one").limits.is_empty());
}

#[test]
fn unchanged_manifest_is_not_validated_again() {
    let (_directory, skills) = scratch();
    for index in 0..20 {
        let id = format!("many.s{index}");
        put(&skills, &id, &example(&id).to_string());
    }
    put(&skills, "bad.one", "{}");
    let first = skills.list_at(later()).expect("a list");
    let second = skills.list_at(later()).expect("a list");
    assert_eq!(first.skills.len(), 22);
    for (before, after) in first.skills.iter().zip(&second.skills) {
        assert!(Arc::ptr_eq(before, after));
    }
    assert!(Arc::ptr_eq(&first.invalid[0], &second.invalid[0]));
    // A lookup uses the cache of the list.
    let listed = first.skills.iter().find(|skill| skill.id == "many.s3").expect("listed");
    assert!(Arc::ptr_eq(&find(&skills, "many.s3").expect("a skill"), listed));
}

#[test]
fn changed_manifest_is_effective_at_once() {
    let (_directory, skills) = scratch();
    let name = |expected: &str| find(&skills, "a.b").is_ok_and(|skill| skill.name == expected);
    // Files of equal length, so that only the times differ, written as fast as possible.
    for round in 0..200 {
        let mut manifest = example("a.b");
        manifest["name"] = json!(format!("name {round:03}"));
        put(&skills, "a.b", &manifest.to_string());
        assert!(name(&format!("name {round:03}")), "{round}");
    }
    // Replaced by another file with the same times, size and content length.
    let path = skills.root.join("a.b/manifest.json");
    let times = std::fs::metadata(&path).and_then(|metadata| metadata.modified()).expect("times");
    skills.list_at(later()).expect("a list");
    let mut manifest = example("a.b");
    manifest["name"] = json!("name abc");
    let other = skills.root.join("a.b/other");
    std::fs::write(&other, manifest.to_string()).expect("a file");
    std::fs::File::options().write(true).open(&other).and_then(|file| file.set_modified(times)).expect("times");
    std::fs::rename(&other, &path).expect("a rename");
    assert!(name("name abc"));
    // Removed, together with its cache entry.
    std::fs::remove_file(&path).expect("removed");
    std::fs::remove_dir(skills.root.join("a.b")).expect("removed");
    assert_eq!(find(&skills, "a.b").expect_err("gone"), None);
    assert!(skills.kept.lock().is_empty());
}

#[test]
fn fresh_manifest_is_not_cached() {
    let (_directory, skills) = scratch();
    put(&skills, "a.b", &example("a.b").to_string());
    let first = skills.list_at(SystemTime::UNIX_EPOCH).expect("a list");
    let second = skills.list_at(SystemTime::UNIX_EPOCH).expect("a list");
    assert!(!Arc::ptr_eq(&first.skills[0], &second.skills[0]));
}

#[test]
fn link_out_of_skills_directory_is_refused() {
    let (directory, skills) = scratch();
    let outside = directory.path().join("outside.json");
    std::fs::write(&outside, example("out.file").to_string()).expect("a file");
    let elsewhere = directory.path().join("out.folder");
    std::fs::create_dir(&elsewhere).expect("a folder");
    std::fs::write(elsewhere.join("manifest.json"), example("out.folder").to_string()).expect("a file");
    std::fs::create_dir(skills.root.join("out.file")).expect("a folder");
    symlink(&outside, skills.root.join("out.file/manifest.json")).expect("a link");
    symlink(&elsewhere, skills.root.join("out.folder")).expect("a link");
    std::fs::create_dir(skills.root.join("out.relative")).expect("a folder");
    symlink("../../outside.json", skills.root.join("out.relative/manifest.json")).expect("a link");
    std::fs::create_dir(skills.root.join("out.loop")).expect("a folder");
    symlink("manifest.json", skills.root.join("out.loop/manifest.json")).expect("a link");
    std::fs::create_dir(skills.root.join("out.proc")).expect("a folder");
    symlink("/proc/self/fd/0", skills.root.join("out.proc/manifest.json")).expect("a link");

    // Control: the same file is a valid skill inside the directory, also through a link that stays
    // inside.
    std::fs::create_dir_all(skills.root.join("in.side/data")).expect("a folder");
    std::fs::write(skills.root.join("in.side/data/it.json"), example("in.side").to_string()).expect("a file");
    symlink("data/it.json", skills.root.join("in.side/manifest.json")).expect("a link");

    let catalogue = skills.list().expect("a list");
    assert_eq!(ids(&catalogue), ["in.side", "python.run", "shell.run"]);
    let reasons: Vec<(&str, &str)> =
        catalogue.invalid.iter().map(|invalid| (invalid.id.as_str(), invalid.reasons[0].as_str())).collect();
    let out = "a link leads out of the skills directory; copy manifest.json here";
    let endless = "manifest.json could not be opened: Too many levels of symbolic links (os error 40)";
    assert_eq!(
        reasons,
        [("out.file", out), ("out.folder", out), ("out.loop", endless), ("out.proc", out), ("out.relative", out)]
    );
}

#[test]
fn unreadable_manifest_file_is_refused_unread() {
    let (_directory, skills) = scratch();
    let folder = |id: &str| {
        let path = skills.root.join(id);
        std::fs::create_dir(&path).expect("a folder");
        path
    };
    let fifo = folder("odd.fifo").join("manifest.json");
    mkfifoat(rustix::fs::CWD, &fifo, Mode::from_raw_mode(0o600)).expect("a FIFO");
    std::fs::create_dir(folder("odd.folder").join("manifest.json")).expect("a folder");
    let large = std::fs::File::create(folder("odd.large").join("manifest.json")).expect("a file");
    large.set_len(1 << 40).expect("a sparse file");
    let mut fitting = example("odd.fits").to_string();
    fitting.push_str(&" ".repeat((1 << 20) - fitting.len()));
    put(&skills, "odd.fits", &fitting);
    put(&skills, "odd.over", &(fitting + " "));
    std::fs::write(skills.root.join("odd.file"), "not a folder").expect("a file");
    std::fs::create_dir(skills.root.join(std::ffi::OsStr::from_bytes(b"odd.\xff"))).expect("a folder");

    let catalogue = skills.list().expect("a list");
    assert_eq!(ids(&catalogue), ["odd.fits", "python.run", "shell.run"]);
    let reasons: Vec<(&str, &str)> =
        catalogue.invalid.iter().map(|invalid| (invalid.id.as_str(), invalid.reasons[0].as_str())).collect();
    assert_eq!(
        reasons,
        [
            ("odd.fifo", "manifest.json is not a file"),
            ("odd.folder", "manifest.json is not a file"),
            ("odd.large", "manifest.json is larger than 1048576 bytes"),
            ("odd.over", "manifest.json is larger than 1048576 bytes"),
        ]
    );
}

#[test]
fn there_are_not_endlessly_many_skills() {
    let (_directory, skills) = scratch();
    for index in 0..=MAX_SKILLS {
        std::fs::create_dir(skills.root.join(format!("s{index}"))).expect("a folder");
    }
    assert!(matches!(skills.list(), Err(Error::TooManySkills { .. })));
    assert!(find(&skills, "shell.run").is_ok());
}

#[test]
fn schema_is_written_to_schema_folder() {
    let (_directory, skills) = scratch();
    let path = skills.root.join("_schema/manifest.schema.json");
    for before in [None, Some("{}"), Some(crate::skills::shipped::SCHEMA)] {
        if let Some(before) = before {
            std::fs::write(&path, before).expect("a file");
        }
        skills.publish_schema().expect("published");
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), crate::skills::shipped::SCHEMA);
    }
    let entries = std::fs::read_dir(skills.root.join("_schema")).expect("a folder").count();
    assert_eq!(entries, 1, "a temporary file was left");
}

#[test]
fn schema_folder_that_is_link_is_refused() {
    let (directory, skills) = scratch();
    let elsewhere = directory.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("a folder");
    symlink(&elsewhere, skills.root.join("_schema")).expect("a link");
    assert!(matches!(skills.publish_schema(), Err(Error::WriteSchema { .. })));
    assert_eq!(std::fs::read_dir(&elsewhere).expect("a folder").count(), 0);
}
