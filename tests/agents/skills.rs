//! Skills of contract 000: upload, list with metadata, healing and deletion.

use std::fs;

use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::workspace::{Workspace, snapshot};
use crate::zips::{self, Entry, zip};

pub(crate) fn upload_response_names_every_skill(fixture: &Fixture) {
    let agent = fixture.workspace();
    let response = agent.push(&zips::skill("one", "print(1)")).success();
    assert_eq!(response, "Upload successful. Details:\n- Skill [one] uploaded to [skills/one], Status: [Success]");
    assert_eq!(agent.listed("skills"), ["skills/one/SKILL.md", "skills/one/main.py"]);
    assert_eq!(agent.text("skills/one/main.py"), "print(1)");
    let two = zips::of(&[("b/SKILL.md", "x"), ("a/SKILL.md", "x"), ("a/lib/deep/x.txt", "deep"), ("b/x", "")]);
    let response = agent.push(&two).success();
    let mut lines: Vec<&str> = response.as_str().unwrap().lines().collect();
    assert_eq!(lines.remove(0), "Upload successful. Details:");
    lines.sort_unstable();
    let line = |name: &str| format!("- Skill [{name}] uploaded to [skills/{name}], Status: [Success]");
    assert_eq!(lines, [line("a"), line("b")]);
    assert_eq!(agent.text("skills/a/lib/deep/x.txt"), "deep");
}

pub(crate) fn upload_replaces_whole_skill(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.push(&zips::of(&[("s/SKILL.md", "name: s"), ("s/old.py", "old"), ("s/both", "old")])).success();
    agent.push(&zips::skill("other", "kept")).success();
    agent.push(&zips::of(&[("s/SKILL.md", "name: s"), ("s/new.py", "new"), ("s/both", "new")])).success();
    assert_eq!(agent.listed("skills/s"), ["skills/s/SKILL.md", "skills/s/both", "skills/s/new.py"]);
    assert_eq!(agent.text("skills/s/both"), "new");
    assert_eq!(agent.text("skills/other/main.py"), "kept");
    // All or none: the second skill is invalid, so the first is not installed either.
    let before = snapshot(&agent.on_disk(""));
    let half = zips::of(&[("s/SKILL.md", "name: s"), ("s/newest", "x"), ("bad/x", "no SKILL.md")]);
    assert_eq!(
        agent.push(&half).expect_error(400),
        "Validation Error: Skill [bad] is missing required 'SKILL.md' at its root."
    );
    assert_eq!(snapshot(&agent.on_disk("")), before);
}

pub(crate) fn archive_without_valid_skill_is_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.push(&zips::skill("s", "old")).success();
    let before = snapshot(&agent.on_disk(""));
    let none = "Validation Error: No valid skill directory found in ZIP.";
    let missing = |name: &str| format!("Validation Error: Skill [{name}] is missing required 'SKILL.md' at its root.");
    assert_eq!(agent.push(&zips::of(&[])).expect_error(400), none);
    assert_eq!(agent.push(&zips::of(&[("SKILL.md", "x")])).expect_error(400), none);
    assert_eq!(agent.push(&zips::of(&[("readme.txt", "x")])).expect_error(400), none);
    assert_eq!(agent.push(&zips::of(&[("__MACOSX/s/SKILL.md", "x"), (".DS_Store", "")])).expect_error(400), none);
    assert_eq!(agent.push(&zips::of(&[("s/main.py", "x")])).expect_error(400), missing("s"));
    assert_eq!(agent.push(&zips::of(&[("s/deep/SKILL.md", "x")])).expect_error(400), missing("s"));
    agent.push(&zips::of(&[("s/SKILL.md", "x"), ("stray.txt", "x")])).expect_error(400);
    for odd in [&b""[..], b"PK", b"no archive", &zips::skill("s", "new")[..60]] {
        agent.push(odd).expect_error(400);
    }
    let route = format!("/v1/skills/{}/upload", agent.agent);
    agent.client.send_form(&route, &[]).expect_error(400);
    assert_eq!(snapshot(&agent.on_disk("")), before);
}

pub(crate) fn macos_metadata_is_skipped(fixture: &Fixture) {
    let agent = fixture.workspace();
    let files = [
        ("s/SKILL.md", "x"),
        ("__MACOSX/s/._SKILL.md", "junk"),
        ("__MACOSX/._s", "junk"),
        (".DS_Store", "junk"),
        ("s/.DS_Store", "junk"),
        ("s/sub/.DS_Store", "junk"),
        ("s/sub/x", "x"),
    ];
    agent.push(&zips::of(&files)).success();
    assert_eq!(agent.listed("skills"), ["skills/s/SKILL.md", "skills/s/sub/x"]);
}

pub(crate) fn utf8_and_gbk_names_are_decoded(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.push(&zips::of(&[("天气/SKILL.md", "name: 天气查询\n"), ("天气/工具.py", "1")])).success();
    // The same names in GBK, without the UTF-8 flag: 技能/SKILL.md and 技能/说明.txt.
    let gbk = [
        Entry::file("", b"name: x\n").named(b"\xbc\xbc\xc4\xdc/SKILL.md"),
        Entry::file("", b"text").named(b"\xbc\xbc\xc4\xdc/\xcb\xb5\xc3\xf7.txt"),
    ];
    let response = agent.push(&zip(&gbk)).success();
    assert_eq!(response, "Upload successful. Details:\n- Skill [技能] uploaded to [skills/技能], Status: [Success]");
    let expected = ["skills/天气/SKILL.md", "skills/天气/工具.py", "skills/技能/SKILL.md", "skills/技能/说明.txt"];
    assert_eq!(agent.listed("skills"), expected);
    assert_eq!(agent.text("skills/技能/说明.txt"), "text");
    // UTF-8 without the flag is accepted too.
    let unflagged = [Entry::file("", b"name: y\n").named("技/SKILL.md".as_bytes())];
    agent.push(&zip(&unflagged)).success();
    assert_eq!(agent.listed("skills/技"), ["skills/技/SKILL.md"]);
    // A GBK name that contains `..` is rejected.
    let before = snapshot(&agent.on_disk(""));
    let hostile = [Entry::file("", b"x").named(b"\xbc\xbc/SKILL.md"), Entry::file("", b"x").named(b"\xbc\xbc/../../x")];
    agent.push(&zip(&hostile)).expect_error(400);
    assert_eq!(snapshot(&agent.on_disk("")), before);
}

/// The entry in the list of a skill with this `SKILL.md`.
fn listed_skill(agent: &Workspace, text: &str) -> Value {
    agent.put("skills/folder/SKILL.md", text);
    let skills = agent.skills();
    assert_eq!(skills.as_array().unwrap().len(), 1, "{skills}");
    let mut skill = skills[0].clone();
    skill.as_object_mut().unwrap().remove("warnings");
    skill
}

pub(crate) fn list_shows_names_and_descriptions(fixture: &Fixture) {
    let agent = fixture.workspace();
    assert_eq!(agent.skills(), json!([]));
    for (text, name, description) in [
        ("---\nname: front\ndescription: matter\n---\n# x\n", "front", "matter"),
        ("---\nname: 'quoted: yes'\ndescription: >\n  folded\n  text\n---\n", "quoted: yes", "folded text\n"),
        ("---\r\nname: windows\r\ndescription: lines\r\n---\r\n", "windows", "lines"),
        ("\u{feff}---\nname: marked\ndescription: by a mark\n---\n", "marked", "by a mark"),
        ("# Title\nname: plain\ndescription: lines\n", "plain", "lines"),
        ("Name: any\nDESCRIPTION: case\n", "any", "case"),
        ("name：全角\ndescription：冒号\n", "全角", "冒号"),
        ("nothing of the kind\n", "folder", "No description available."),
        ("", "folder", "No description available."),
        ("---\ndescription: only this\n---\n", "folder", "only this"),
        ("---\nname: only that\n---\n", "only that", "No description available."),
    ] {
        let found = listed_skill(&agent, text);
        let response = found["description"].as_str().unwrap().trim_end();
        assert_eq!((found["name"].as_str().unwrap(), response), (name, description.trim_end()), "{text:?}");
        assert_eq!(found.as_object().unwrap().len(), 2, "{found}");
    }
    // Malicious metadata: the server must respond in time.
    let bomb = "---\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
        d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
        g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f]\nname: [*g,*g,*g,*g,*g,*g,*g,*g,*g]\n---\n";
    let deep = format!("---\nname: {}\n---\n", "[".repeat(50_000));
    let long = format!("---\nname: x\ndescription: {}\n---\n", "y".repeat(3_000_000));
    for text in [bomb, &deep, &long, "---\nname: [a\n---\n", "---\nname: {a: 1}\n---\n", "---\nnever closed"] {
        let found = listed_skill(&agent, text);
        assert!(found["name"].is_string() && found["description"].is_string(), "{found}");
    }
    agent.script("printf '\\xff\\xfe' > skills/folder/SKILL.md");
    assert_eq!(agent.skills()[0]["name"], "folder");
}

pub(crate) fn list_contains_only_folders_with_skill_file(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.push(&zips::of(&[("b/SKILL.md", "name: b"), ("a/SKILL.md", "name: a")])).success();
    agent.script(
        "cd skills; mkdir empty; echo x > stray; mkdir code; echo x > code/main.py; ln -s a link; ln -s /etc out; \
         mkdir linked; ln -s ../a/SKILL.md linked/SKILL.md; mkdir piped; mkfifo piped/SKILL.md",
    );
    assert_eq!(agent.skill_names(), ["a", "b"]);
}

pub(crate) fn nested_skill_file_is_moved_to_root(fixture: &Fixture) {
    let agent = fixture.workspace();
    // Healed by a list.
    agent.script(
        "mkdir -p skills/a/b/c skills/a/x; echo 'name: deep' > skills/a/b/c/SKILL.md; \
         echo 'name: shallow' > skills/a/x/SKILL.md; echo code > skills/a/x/main.py",
    );
    assert_eq!(agent.skill_names(), ["shallow"]);
    let expected = ["skills/a/SKILL.md", "skills/a/b/c/SKILL.md", "skills/a/x/main.py"];
    assert_eq!(agent.listed("skills"), expected, "other files stay");
    // Healed by a read; of two files at the same depth the first by name is moved.
    agent.script(
        "mkdir -p skills/r/b skills/r/a; echo 'name: second' > skills/r/b/SKILL.md; \
         echo 'name: first' > skills/r/a/SKILL.md",
    );
    assert_eq!(agent.text("skills/r/SKILL.md"), "name: first\n");
    assert_eq!(agent.listed("skills/r"), ["skills/r/SKILL.md", "skills/r/b/SKILL.md"]);
    // Healing follows no symlink and stays within the skill.
    agent.put("files/d/SKILL.md", "name: foreign\n");
    agent.script("mkdir skills/l; ln -s ../../files/d skills/l/d; ln -s ../../files/d/SKILL.md skills/l/SKILL.md.d");
    assert_eq!(agent.content("skills/l/SKILL.md").expect_error(404), "Path not found: skills/l/SKILL.md");
    assert_eq!(agent.text("files/d/SKILL.md"), "name: foreign\n");
    assert_eq!(agent.skill_names(), ["shallow", "first"]);
    assert_eq!(agent.content("skills/none/SKILL.md").expect_error(404), "Path not found: skills/none/SKILL.md");
    // A skill with a `SKILL.md` at its root keeps it; further ones are reported only.
    agent.script("mkdir -p skills/a/n; echo 'name: planted' > skills/a/n/SKILL.md");
    let skills = agent.skills();
    let warned = skills.as_array().unwrap().iter().find(|skill| skill["name"] == "shallow").unwrap();
    assert!(warned["warnings"].to_string().contains("SKILL.md"), "{skills}");
    assert_eq!(fs::read(agent.on_disk("skills/a/n/SKILL.md")).unwrap(), b"name: planted\n");
}

/// Renames a file on the host, so that neither a write nor the end of an exec heals the skill
/// before the tested request.
fn plant_skill_file(agent: &Workspace, path: &str, text: &str) {
    agent.put(&format!("{path}.planted"), text);
    fs::rename(agent.on_disk(&format!("{path}.planted")), agent.on_disk(path)).unwrap();
}

/// Each route alone, without another one that heals before.
pub(crate) fn read_and_list_heal_skills(fixture: &Fixture) {
    let agent = fixture.workspace();
    plant_skill_file(&agent, "skills/r/b/SKILL.md", "name: second\n");
    plant_skill_file(&agent, "skills/r/a/SKILL.md", "name: first\n");
    assert_eq!(agent.listed("skills/r"), ["skills/r/a/SKILL.md", "skills/r/b/SKILL.md"], "control");
    assert_eq!(agent.text("skills/r/SKILL.md"), "name: first\n");
    assert_eq!(agent.listed("skills/r"), ["skills/r/SKILL.md", "skills/r/b/SKILL.md"]);
    plant_skill_file(&agent, "skills/l/b/c/SKILL.md", "name: deep\n");
    plant_skill_file(&agent, "skills/l/x/SKILL.md", "name: shallow\n");
    assert_eq!(agent.skill_names(), ["shallow", "first"]);
    assert_eq!(agent.listed("skills/l"), ["skills/l/SKILL.md", "skills/l/b/c/SKILL.md"]);
    // Also through the routes of contract 001.
    plant_skill_file(&agent, "skills/o/a/SKILL.md", "name: other\n");
    let found = agent.client.get(&agent.skill_route("o/content?path=SKILL.md")).success();
    assert_eq!(found["content"], "name: other\n");
    plant_skill_file(&agent, "skills/p/a/SKILL.md", "name: last\n");
    let listed = agent.client.get(&agent.skill_route("list")).success();
    assert!(listed.as_array().unwrap().iter().any(|skill| skill["name"] == "last"), "{listed}");
    assert_eq!(agent.listed("skills/p"), ["skills/p/SKILL.md"]);
}

pub(crate) fn skill_is_deleted_by_folder_name(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.push(&zips::of(&[("a/SKILL.md", "name: other"), ("a/x/y", ""), ("b/SKILL.md", "")])).success();
    assert_eq!(agent.delete_skill("a").success(), "Successfully deleted skill: a");
    assert_eq!(agent.listed("skills"), ["skills/b/SKILL.md"]);
    agent.delete_skill("a").expect_error(404);
    let before = snapshot(&agent.on_disk(""));
    for name in ["..", ".", "", "b/..", "../files", "b/SKILL.md", "/etc", "b\0", "a/b"] {
        agent.delete_skill(name).expect_error_of(&[400, 403]);
    }
    assert_eq!(snapshot(&agent.on_disk("")), before);
}

/// Names and descriptions that break the agentskills rules cause warnings, not errors.
pub(crate) fn broken_metadata_rules_cause_warnings(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("skills/good-name/SKILL.md", "---\nname: good-name\ndescription: It does one thing.\n---\n");
    assert!(agent.skills()[0].get("warnings").is_none(), "{}", agent.skills());
    for text in [
        "---\nname: Bad Name\ndescription: x\n---\n",
        "---\nname: other-than-its-folder\ndescription: x\n---\n",
        "---\nname: good-name\n---\n",
        "no head at all\n",
    ] {
        agent.put("skills/good-name/SKILL.md", text);
        let warnings = agent.skills()[0]["warnings"].clone();
        assert!(warnings.as_array().is_some_and(|list| !list.is_empty()), "{text}: {warnings}");
    }
}
