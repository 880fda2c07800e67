//! Uploads that fail or are killed while they are swapped in: all skills are old, or all are new.

use std::fs;
use std::io::{Cursor, Seek};
use std::path::PathBuf;

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::sweep::Recorded;
use crate::workspaces::Workspaces;

struct Lab {
    directory: tempfile::TempDir,
    workspaces: Workspaces,
    tree: Tree,
}

impl Lab {
    /// A workspace with the skills `a` and `c`.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&directory.path().join("workspaces")).unwrap();
        let workspace = workspaces.workspace(&"u".parse().unwrap(), &"a".parse().unwrap(), Owner::server()).unwrap();
        let lab = Self { tree: workspace.tree().unwrap(), directory, workspaces };
        lab.unpack("old", &["a", "c"]).install().unwrap();
        lab
    }

    fn unpack(&self, text: &str, skills: &[&str]) -> StagedSkills {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        for skill in skills {
            writer.start_file(format!("{skill}/SKILL.md"), SimpleFileOptions::default()).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
        }
        let mut upload = self.tree.workspace().upload_file().unwrap();
        upload.write_all(&writer.finish().unwrap().into_inner()).unwrap();
        upload.rewind().unwrap();
        self.tree
            .judge_skills(upload, ArchiveLimits { bytes: 1000, entries: 10 })
            .and_then(PackedSkills::unpack)
            .unwrap()
    }

    fn host(&self, place: &str) -> PathBuf {
        self.directory.path().join("workspaces/u/a").join(place)
    }

    fn text(&self, skill: &str) -> Option<String> {
        fs::read_to_string(self.host("skills").join(skill).join(SKILL_FILE)).ok()
    }

    fn texts(&self) -> [Option<String>; 3] {
        ["a", "b", "c"].map(|skill| self.text(skill))
    }

    /// What the next start of the server does.
    fn restart(&self) {
        let swept = self.workspaces.sweep(|_| false, |_| Recorded::Unclear);
        assert_eq!((swept.failed, swept.removed), (0, 1), "{:?}", swept.first_failure);
        assert_eq!(fs::read_dir(self.host(".staging")).unwrap().count(), 0);
    }
}

const SKILL_FILE: &str = "SKILL.md";

fn texts(a: &str, b: Option<&str>, c: &str) -> [Option<String>; 3] {
    [Some(a.to_owned()), b.map(str::to_owned), Some(c.to_owned())]
}

#[test]
fn a_swap_that_fails_takes_the_others_back() {
    let lab = Lab::new();
    let upload = lab.unpack("new", &["a", "b", "c"]);
    let mut names = upload.staged.skills.clone();
    // One that is not there cannot be swapped in; it comes last.
    names.insert("d".parse().unwrap());
    let skills = lab.tree.section(Section::Skills);
    let failed = swap_all(&upload.staged.new, skills, &names).unwrap_err();
    assert!(matches!(&failed, Error::InstallSkill { skill, .. } if skill.as_str() == "d"), "{failed:?}");
    assert_eq!(lab.texts(), texts("old", None, "old"));
    upload.install().unwrap();
    assert_eq!(lab.texts(), texts("new", Some("new"), "new"));
    drop(upload);
    assert_eq!(fs::read_dir(lab.host(".staging")).unwrap().count(), 0);
}

#[test]
fn a_server_killed_between_two_swaps_goes_on_at_the_next_start() {
    for done in 0..=3 {
        let lab = Lab::new();
        let upload = lab.unpack("new", &["a", "b", "c"]);
        upload.staged.write_journal().unwrap();
        for skill in upload.names().take(done) {
            swap(&upload.staged.new, lab.tree.section(Section::Skills), skill.as_str()).unwrap();
        }
        std::mem::forget(upload);
        lab.restart();
        assert_eq!(lab.texts(), texts("new", Some("new"), "new"), "{done}");
    }
}

#[test]
fn a_server_killed_before_the_swaps_leaves_the_old() {
    let lab = Lab::new();
    std::mem::forget(lab.unpack("new", &["a", "b", "c"]));
    lab.restart();
    assert_eq!(lab.texts(), texts("old", None, "old"));
    // The journal itself may be cut off.
    let upload = lab.unpack("new", &["a", "b", "c"]);
    upload.staged.write_journal().unwrap();
    let journal = lab.host(".staging").join(&upload.staged.name).join(JOURNAL);
    let text = fs::read(&journal).unwrap();
    fs::write(&journal, &text[..text.len() / 2]).unwrap();
    std::mem::forget(upload);
    lab.restart();
    assert_eq!(lab.texts(), texts("old", None, "old"));
}

#[test]
fn single_files_on_their_way_are_swept_too() {
    let lab = Lab::new();
    fs::write(lab.host(".staging").join(format!("{UNFINISHED}1")), "half an index").unwrap();
    lab.restart();
}
