//! The rule for `SKILL.md`, whatever its letters' case: under `skills/` it lies at the root of a skill or nowhere.
//!
//! A word that only the shell can complete is let pass: what becomes of it is put right when the exec is over.

const FILE: &str = "SKILL.md";
const WORKSPACE: &str = "/workspace";

/// Whether a word names a `SKILL.md` where none may be. It is read from a directory, which is relative to the workspace, and
/// the workspace itself where it is empty.
pub(super) fn is_misplaced(word: &str, from: &str) -> bool {
    // What an option is given is a word of its own.
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
            // Another place of the box's own.
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
    // In other letters it is not the skill's own.
    !matches!(parts[..], ["files", ..] | ["skills", _, FILE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_at_the_root_of_a_skill() {
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
