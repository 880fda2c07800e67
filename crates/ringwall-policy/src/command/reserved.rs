//! The rule for `SKILL.md` in any letter case: in the workspace, outside of `files/`, it may be
//! only at the root of a skill, and exactly in this case.
//!
//! A word with an expansion is not checked. If the command creates a misplaced file with it, the
//! skills are repaired after the exec.

const FILE: &str = "SKILL.md";
const WORKSPACE: &str = "/workspace";

/// True if a word names a misplaced `SKILL.md`. `from` is the directory to which the word is
/// relative, as a path in the workspace; empty for the workspace itself.
pub(super) fn is_misplaced(word: &str, from: &str) -> bool {
    // The value of an option is checked by itself.
    let path = match word.split_once('=') {
        Some((option, value)) if option.starts_with('-') => value,
        _ => word,
    };
    names_misplaced(path, from)
}

fn names_misplaced(path: &str, from: &str) -> bool {
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    if !name.eq_ignore_ascii_case(FILE) || above.contains(['$', '`']) || path.contains("://") {
        return false;
    }
    let below = match path.strip_prefix('/') {
        Some(_) => match path.strip_prefix(WORKSPACE).and_then(|below| below.strip_prefix('/')) {
            Some(below) => below.to_owned(),
            // A path of the box outside of the workspace.
            None => return false,
        },
        None => match path.split('/').find(|part| !matches!(*part, "" | ".")) {
            Some(first) if first.contains(char::is_whitespace) => return false,
            _ => format!("{from}/{path}"),
        },
    };
    let mut parts = Vec::new();
    for part in below.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    // Only the exact name is allowed at the root of a skill.
    !matches!(parts[..], ["files", ..] | ["skills", _, FILE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skill_file_is_allowed_at_root_of_skill_only() {
        let top = "";
        for fine in [
            "skills/a/SKILL.md",
            "skills//a/./SKILL.md",
            "/workspace/skills/a/SKILL.md",
            "files/SKILL.md",
            "files/a/b/SKILL.md",
            "skills/*/SKILL.md",
            "$D/SKILL.md",
            "skills/$x/y/SKILL.md",
            "/tmp/SKILL.md",
            "https://example.org/a/b/SKILL.md",
            "see SKILL.md",
            "see skills/a/b/SKILL.md",
            "SKILL.md.bak",
            "skills/a/b/../SKILL.md",
            "--out=skills/a/SKILL.md",
            "my-SKILL.md",
            "SKILL.md/x",
            "skills/a b/SKILL.md",
        ] {
            assert!(!is_misplaced(fine, top), "{fine}");
        }
        for bad in [
            "SKILL.md",
            "skill.md",
            "./SKILL.md",
            "skills/SKILL.md",
            "skills/a/b/SKILL.md",
            "skills/a/b/Skill.MD",
            "./skills/a/skill.MD",
            "/workspace/skills/a/b/SKILL.md",
            "skills/a/../SKILL.md",
            "a/SKILL.md",
            "--out=skills/a/b/SKILL.md",
            "/workspace/SKILL.md",
            "files/../skills/a/b/SKILL.md",
        ] {
            assert!(is_misplaced(bad, top), "{bad}");
        }
        let within = |word| is_misplaced(word, "skills/a");
        assert!(!within("SKILL.md") && within("b/SKILL.md") && !within("../b/SKILL.md") && within("../SKILL.md"));
        assert!(!is_misplaced("a/SKILL.md", "files"));
    }
}
