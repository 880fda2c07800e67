//! Installing, healing, listing and deleting skills.

use std::fs::{self, File, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use ringwall_workspace::{ArchiveLimits, Error, FilesError, HealOutcome, SkillArchive, SkillName, SkillSummary, Tree};

use crate::fixture::{Fixture, MIB, names, own_by_box, owner, set_owner};
use crate::zips::{deflated, file, folder, skill, zip};

pub const LIMITS: ArchiveLimits = ArchiveLimits { bytes: 64 * MIB, entries: 1000 };

pub fn spool(fixture: &Fixture, bytes: &[u8]) -> File {
    let mut upload = fixture.workspace.upload_file().unwrap();
    upload.write_all(bytes).unwrap();
    upload.rewind().unwrap();
    upload
}

pub fn tree(fixture: &Fixture) -> Tree {
    fixture.workspace.tree().unwrap()
}

pub fn install(fixture: &Fixture, bytes: &[u8]) -> Result<Vec<String>, Error> {
    let staged = tree(fixture).check_skill_archive(spool(fixture, bytes), LIMITS).and_then(SkillArchive::unpack)?;
    staged.install()?;
    Ok(staged.names().map(SkillName::to_string).collect())
}

pub fn name(text: &str) -> SkillName {
    text.parse().unwrap()
}

fn read(fixture: &Fixture, location: &str) -> String {
    fs::read_to_string(fixture.host_path(location)).unwrap()
}

#[test]
fn upload_replaces_whole_skill() {
    let fixture = Fixture::new();
    let first = deflated(&[("a/SKILL.md", b"one"), ("a/sub/old.txt", b"old"), ("b/SKILL.md", b"other")]);
    assert_eq!(install(&fixture, &first).unwrap(), ["a", "b"]);
    assert_eq!(read(&fixture, "skills/a/sub/old.txt"), "old");
    assert_eq!(install(&fixture, &deflated(&[("a/SKILL.md", b"two"), ("a/new.txt", b"new")])).unwrap(), ["a"]);
    assert_eq!(names(&fixture.host_path("skills/a")), ["SKILL.md", "new.txt"]);
    assert_eq!(read(&fixture, "skills/a/SKILL.md"), "two");
    assert_eq!(read(&fixture, "skills/b/SKILL.md"), "other");
    assert!(fixture.staged().is_empty(), "{:?}", fixture.staged());
    fixture.check();
}

#[test]
fn unpacked_files_have_owner_and_plain_modes() {
    let fixture = Fixture::new();
    let mut parts = skill("x", "text");
    parts.push(folder("x/empty/"));
    for (name, mode) in [("run.sh", 0o100_755), ("setuid", 0o106_777), ("closed", 0o100_000), ("none", 0)] {
        parts.push(crate::zips::Part { mode, ..file(format!("x/bin/{name}"), "#!") });
    }
    install(&fixture, &zip(&parts)).unwrap();
    for (location, mode) in [
        ("x", 0o755),
        ("x/empty", 0o755),
        ("x/bin", 0o755),
        ("x/SKILL.md", 0o644),
        ("x/bin/run.sh", 0o755),
        ("x/bin/setuid", 0o755),
        ("x/bin/closed", 0o644),
        ("x/bin/none", 0o644),
    ] {
        let status = fs::symlink_metadata(fixture.host_path("skills").join(location)).unwrap();
        assert_eq!(status.mode() & 0o7777, mode, "{location}");
        assert_eq!((status.uid(), status.gid()), (owner().uid, owner().gid), "{location}");
    }
}

#[test]
fn failed_upload_changes_nothing() {
    let fixture = Fixture::new();
    install(&fixture, &zip(&skill("a", "kept"))).unwrap();
    let mut parts = skill("a", "new");
    parts.extend(skill("b", "new"));
    parts.push(crate::zips::Part { crc: 7, ..file("b/damaged", "data") });
    assert!(matches!(install(&fixture, &zip(&parts)), Err(Error::Files(FilesError::Archive(_)))));
    assert_eq!(names(&fixture.host_path("skills")), ["a"]);
    assert_eq!(read(&fixture, "skills/a/SKILL.md"), "kept");
    assert!(fixture.staged().is_empty());
}

#[test]
fn symlink_or_file_with_skill_name_is_replaced() {
    let fixture = Fixture::new();
    tree(&fixture);
    let skills = fixture.host_path("skills");
    symlink(fixture.outside(), skills.join("link")).unwrap();
    fs::write(skills.join("file"), "x").unwrap();
    fs::create_dir_all(skills.join("closed/inner")).unwrap();
    own_by_box(&skills);
    fs::set_permissions(skills.join("closed"), Permissions::from_mode(0o000)).unwrap();
    for name in ["link", "file", "closed"] {
        install(&fixture, &zip(&skill(name, "new"))).unwrap();
        assert!(fs::symlink_metadata(skills.join(name)).unwrap().is_dir());
        assert_eq!(read(&fixture, &format!("skills/{name}/SKILL.md")), "new");
    }
    assert!(fixture.staged().is_empty());
    fixture.check();
}

#[test]
fn install_during_swaps_changes_nothing_outside() {
    let fixture = Fixture::new();
    let tree = tree(&fixture);
    let location = fixture.host_path("skills/x");
    let aside = fixture.host_path("skills/aside");
    let bytes = zip(&skill("x", "new"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // Each call may fail, because the upload acts at the same time.
                let _ = fs::rename(&location, &aside);
                let _ = symlink(fixture.outside(), &location);
                let _ = fs::remove_file(&location);
                let _ = fs::remove_dir_all(&aside);
            }
        });
        for _ in 0..300 {
            let staged =
                tree.check_skill_archive(spool(&fixture, &bytes), LIMITS).and_then(SkillArchive::unpack).unwrap();
            // An install may fail after too many attempts; no other error is expected.
            if let Err(error) = staged.install() {
                assert!(matches!(error, Error::InstallSkill { .. }), "{error:?}");
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(fixture.staged().is_empty());
    fixture.check();
}

#[test]
fn nested_skill_file_is_moved_to_root() {
    let fixture = Fixture::new();
    let tree = tree(&fixture);
    let skills = fixture.host_path("skills");
    for (location, text) in [
        ("deep/z/SKILL.md", "shallow z"),
        ("deep/a/b/SKILL.md", "deeper a"),
        ("deep/m/skill.md", "shallow m"),
        ("whole/SKILL.md", "own"),
        ("whole/sub/SKILL.md", "nested"),
        ("letters/skill.MD", "own"),
        ("none/readme.md", "x"),
    ] {
        let location = skills.join(location);
        fs::create_dir_all(location.parent().unwrap()).unwrap();
        fs::write(location, text).unwrap();
    }
    // Neither symlinks nor other skills are searched.
    fs::create_dir(skills.join("linked")).unwrap();
    symlink(fixture.outside(), skills.join("linked/out")).unwrap();
    symlink(skills.join("whole"), skills.join("linked/in")).unwrap();
    fs::create_dir(skills.join("taken")).unwrap();
    symlink(fixture.outside().join("canary"), skills.join("taken/SKILL.md")).unwrap();
    symlink(skills.join("whole"), skills.join("skill-link")).unwrap();
    own_by_box(&skills);
    for (skill, healing) in [
        ("deep", HealOutcome::Moved),
        ("deep", HealOutcome::Intact),
        ("whole", HealOutcome::Intact),
        ("letters", HealOutcome::Moved),
        ("none", HealOutcome::Missing),
        ("linked", HealOutcome::Missing),
        ("taken", HealOutcome::Missing),
        ("skill-link", HealOutcome::Missing),
        ("nowhere", HealOutcome::Missing),
    ] {
        assert_eq!(tree.heal_skill(&name(skill)).unwrap(), healing, "{skill}");
    }
    assert_eq!(read(&fixture, "skills/deep/SKILL.md"), "shallow m");
    assert_eq!(names(&skills.join("deep/m")), [""; 0]);
    assert_eq!(read(&fixture, "skills/deep/z/SKILL.md"), "shallow z");
    assert_eq!(read(&fixture, "skills/whole/sub/SKILL.md"), "nested");
    assert_eq!(names(&skills.join("letters")), ["SKILL.md"]);
    let listed: Vec<String> = tree.list_skills().unwrap().into_iter().map(|skill| skill.name).collect();
    assert_eq!(listed, ["deep", "letters", "whole"]);
    fixture.check();
}

/// A rootless server has the box's user and must restore modes that the box removed.
#[test]
fn closed_skill_is_healed() {
    let fixture = Fixture::new();
    let tree = tree(&fixture);
    let skills = fixture.host_path("skills");
    for (number, (own, inner)) in
        [(0o555, 0o755), (0o600, 0o755), (0o000, 0o000), (0o755, 0o000), (0o755, 0o555), (0o311, 0o311)]
            .into_iter()
            .enumerate()
    {
        let location = skills.join(format!("s{number}"));
        fs::create_dir_all(location.join("d/e")).unwrap();
        fs::write(location.join("d/e/skill.md"), "x").unwrap();
        own_by_box(&skills);
        for (directory, mode) in [("d/e", inner), ("d", inner), ("", own)] {
            fs::set_permissions(location.join(directory), Permissions::from_mode(mode)).unwrap();
        }
        assert_eq!(tree.heal_skill(&name(&format!("s{number}"))).unwrap(), HealOutcome::Moved, "{own:o} {inner:o}");
        assert_eq!(read(&fixture, &format!("skills/s{number}/SKILL.md")), "x");
    }
    assert_eq!(tree.list_skills().unwrap().len(), 6);
}

#[test]
fn skill_file_beside_skills_is_renamed() {
    let fixture = Fixture::new();
    let tree = tree(&fixture);
    install(&fixture, &zip(&skill("s", "1"))).unwrap();
    let plant = |name: &str, text: &str| fs::write(fixture.host_path("skills").join(name), text).unwrap();
    plant("SKILL.md", "first");
    plant("skill.MD", "other letters");
    plant("notes.md", "notes");
    tree.heal_skills().unwrap();
    plant("SKILL.md", "second");
    assert_eq!(tree.list_skills().unwrap().len(), 1);
    let expected =
        ["SKILL.md.misplaced", "SKILL.md.misplaced-2", "notes.md", "s", "skill.MD.misplaced"].map(str::to_owned);
    assert_eq!(names(&fixture.host_path("skills")), expected);
    assert_eq!(read(&fixture, "skills/SKILL.md.misplaced"), "first");
    assert_eq!(read(&fixture, "skills/SKILL.md.misplaced-2"), "second");
}

#[test]
fn only_folders_count_and_too_many_are_an_error() {
    let fixture = Fixture::new();
    let tree = tree(&fixture);
    install(&fixture, &zip(&skill("s", "1"))).unwrap();
    for number in 0..10_000 {
        fs::write(fixture.host_path(&format!("skills/{number}")), "").unwrap();
    }
    assert_eq!(tree.list_skills().unwrap().len(), 1, "files do not count");
    for number in 0..10_000 {
        fs::create_dir(fixture.host_path(&format!("skills/d{number}"))).unwrap();
    }
    let error = tree.list_skills().unwrap_err();
    assert!(matches!(error, Error::Files(FilesError::TooManySkills { max: 10_000 })), "{error:?}");
}

#[test]
fn skills_are_listed_with_metadata_and_warnings() {
    let fixture = Fixture::new();
    let tree = tree(&fixture);
    let skills = fixture.host_path("skills");
    for (folder, text) in [
        ("a-good", "---\nname: a-good\ndescription: Does it.\n---\n"),
        ("b-bare", "# nothing\n"),
        ("c-lines", "Name： 分析\nDESCRIPTION: by lines\n"),
        ("d-bytes", ""),
        ("数据", "---\nname: 数据\ndescription: 分析\n---"),
    ] {
        fs::create_dir_all(skills.join(folder)).unwrap();
        fs::write(skills.join(folder).join("SKILL.md"), text).unwrap();
    }
    fs::write(skills.join("d-bytes/SKILL.md"), b"name: \xff\xfe\n").unwrap();
    fs::create_dir_all(skills.join("a-good/sub")).unwrap();
    fs::set_permissions(skills.join("b-bare/SKILL.md"), Permissions::from_mode(0o000)).unwrap();
    fs::create_dir(skills.join("e-empty")).unwrap();
    fs::write(skills.join("f-file"), "x").unwrap();
    symlink(fixture.outside(), skills.join("g-link")).unwrap();
    own_by_box(&skills);
    fs::set_permissions(skills.join("b-bare"), Permissions::from_mode(0o000)).unwrap();
    let summary = |name: &str, description: &str| (name.to_owned(), description.to_owned());
    let listed = tree.list_skills().unwrap();
    let summaries: Vec<_> = listed.iter().map(|skill| (skill.name.clone(), skill.description.clone())).collect();
    let none = "No description available.";
    assert_eq!(
        summaries,
        [
            summary("a-good", "Does it."),
            summary("b-bare", none),
            summary("分析", "by lines"),
            summary("\u{fffd}\u{fffd}", none),
            summary("数据", "分析"),
        ]
    );
    let warned: Vec<bool> = listed.iter().map(|skill| !skill.warnings.is_empty()).collect();
    assert_eq!(warned, [false, true, true, true, false]);
    let json = serde_json::to_value(&listed[0]).unwrap();
    assert_eq!(json, serde_json::json!({"name": "a-good", "description": "Does it."}));
    fs::write(skills.join("a-good/sub/Skill.md"), "x").unwrap();
    let nested: Vec<SkillSummary> = tree.list_skills().unwrap();
    assert_eq!(nested[0].warnings, ["The skill contains another SKILL.md, which is ignored: \"sub/Skill.md\"."]);
    fixture.check();
}

#[test]
fn skill_file_of_other_user_is_not_listed() {
    if !crate::fixture::is_root() {
        eprintln!("skipped: only root can change the owner of a file");
        return;
    }
    let fixture = Fixture::new();
    let tree = tree(&fixture);
    let location = fixture.host_path("skills/x");
    fs::create_dir(&location).unwrap();
    fs::write(location.join("SKILL.md"), "name: x").unwrap();
    own_by_box(&fixture.host_path("skills"));
    assert_eq!(tree.list_skills().unwrap().len(), 1);
    std::os::unix::fs::chown(location.join("SKILL.md"), Some(54_399), None).unwrap();
    assert_eq!(tree.list_skills().unwrap(), []);
}

#[test]
fn search_for_skill_file_is_bounded() {
    let fixture = Fixture::new();
    let tree = tree(&fixture);
    let mut location = fixture.host_path("skills/deep");
    fs::create_dir(&location).unwrap();
    for _ in 0..200 {
        location.push("d");
        fs::create_dir(&location).unwrap();
    }
    fs::write(location.join("SKILL.md"), "too deep").unwrap();
    fs::create_dir(fixture.host_path("skills/wide")).unwrap();
    for number in 0..12_000 {
        fs::write(fixture.host_path(&format!("skills/wide/{number}")), "").unwrap();
    }
    assert_eq!(tree.heal_skill(&name("deep")).unwrap(), HealOutcome::Missing);
    assert_eq!(tree.heal_skill(&name("wide")).unwrap(), HealOutcome::Missing);
    assert_eq!(tree.list_skills().unwrap(), []);
}

#[test]
fn deleted_skill_is_removed_without_following_symlinks() {
    let fixture = Fixture::new();
    install(&fixture, &zip(&[skill("x", "1"), skill("y", "2")].concat())).unwrap();
    let tree = tree(&fixture);
    symlink(fixture.outside(), fixture.host_path("skills/x/out")).unwrap();
    symlink(fixture.outside(), fixture.host_path("skills/link")).unwrap();
    set_owner(&fixture.host_path("skills/x/out"));
    fs::set_permissions(fixture.host_path("skills/x"), Permissions::from_mode(0o000)).unwrap();
    tree.delete_skill(&name("x")).unwrap().erase().unwrap();
    assert_eq!(names(&fixture.host_path("skills")), ["link", "y"]);
    for missing in ["x", "nowhere", "link"] {
        let error = tree.delete_skill(&name(missing)).unwrap_err();
        assert!(matches!(error, Error::Files(FilesError::SkillMissing(_))), "{missing}: {error:?}");
    }
    assert!(fixture.staged().is_empty());
    fixture.check();
}
