//! Paths of the files API: `files/…` or `skills/…`, without `..`.
//!
//! Parsing checks the spelling only. The text as given is kept for messages, which show no other
//! path. `..` is rejected as a component, so the name `a..b` is valid. Backslashes are rejected,
//! because a Windows client would take `a\..\b` for a path that leads up.

use crate::relative_path::{PathProblem, RelativePath};

use super::error::FilesError;

/// Each skill has this file at its root; elsewhere below `skills/` it cannot be written.
pub(crate) const SKILL_FILE: &str = "SKILL.md";

/// A top directory of an agent's files or of a session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    Files,
    Skills,
    /// The only directory of a session.
    Work,
}

impl Section {
    /// The sections with which a path of an agent's files can start.
    pub const OF_AGENTS: [Section; 2] = [Section::Files, Section::Skills];

    /// Its name in paths and on disk.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Files => "files",
            Section::Skills => "skills",
            Section::Work => "work",
        }
    }
}

/// A path in a section. Without `inner` it names the section's directory itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPath {
    given: String,
    section: Section,
    inner: Option<RelativePath>,
    ending: Ending,
}

/// A path with a trailing slash cannot name a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Name,
    /// A trailing slash: the path names a directory.
    Slash,
}

impl AgentPath {
    /// Parses `files/…` or `skills/…`.
    pub fn parse(given: &str) -> Result<Self, FilesError> {
        check_spelling(given, given)?;
        let (first, rest) = given.split_once('/').map_or((given, None), |(first, rest)| (first, Some(rest)));
        let section = Section::OF_AGENTS.into_iter().find(|section| section.name() == first);
        let section = section.ok_or_else(|| FilesError::WrongStart(given.to_owned()))?;
        Self::beneath(section, rest.unwrap_or_default(), given)
    }

    /// Parses a path relative to `files/`.
    pub fn in_files(given: &str) -> Result<Self, FilesError> {
        check_spelling(given, given)?;
        Self::beneath(Section::Files, given, given)
    }

    /// Parses a path relative to a session's files.
    pub fn in_session(given: &str) -> Result<Self, FilesError> {
        check_spelling(given, given)?;
        Self::beneath(Section::Work, given, given)
    }

    /// Appends a path from a listing of this directory.
    pub(crate) fn join(&self, path: &str) -> Result<Self, FilesError> {
        let inner = self.inner.as_ref().map_or_else(|| path.to_owned(), |inner| format!("{}/{path}", inner.as_str()));
        Self::beneath(self.section, &inner, &inner)
    }

    /// Parses a path relative to a skill's directory. The skill need not exist.
    pub fn in_skill(skill: &str, given: &str) -> Result<Self, FilesError> {
        let directory = Self::skill(skill)?;
        check_spelling(given, given)?;
        let name = directory.inner.as_ref().map_or(skill, RelativePath::as_str);
        Self::beneath(Section::Skills, &format!("{name}/{given}"), given)
    }

    /// The directory of a skill.
    pub fn skill(name: &str) -> Result<Self, FilesError> {
        check_spelling(name, name)?;
        if name.contains('/') || matches!(name, "" | ".") {
            return Err(FilesError::OutOfScope(name.to_owned()));
        }
        Self::beneath(Section::Skills, name, name)
    }

    fn beneath(section: Section, text: &str, given: &str) -> Result<Self, FilesError> {
        // Repeated slashes count as one. Absolute paths were rejected before.
        let mut name = text.trim_start_matches('/');
        while let Some(shorter) = name.strip_suffix('/').or_else(|| name.strip_suffix("/.")) {
            name = shorter;
        }
        let ending = if text.ends_with(name) { Ending::Name } else { Ending::Slash };
        let inner = match name {
            "" | "." => None,
            name => Some(RelativePath::read(name).map_err(FilesError::Malformed)?),
        };
        Ok(Self { given: given.to_owned(), section, inner, ending })
    }

    /// The text that the caller gave.
    pub fn given(&self) -> &str {
        &self.given
    }

    pub fn section(&self) -> Section {
        self.section
    }

    /// The normalized path beneath the section. `None` for the section itself.
    pub fn inner(&self) -> Option<&RelativePath> {
        self.inner.as_ref()
    }

    /// The normalized path from the workspace on.
    pub fn plain(&self) -> String {
        let section = self.section.name();
        self.inner.as_ref().map_or_else(|| section.to_owned(), |inner| format!("{section}/{}", inner.as_str()))
    }

    /// The path beneath the section, if it can name a file.
    pub(crate) fn file(&self) -> Result<&RelativePath, FilesError> {
        match (&self.inner, self.ending) {
            (Some(inner), Ending::Name) => Ok(inner),
            (None, _) | (_, Ending::Slash) => Err(FilesError::IsDirectory(self.given.clone())),
        }
    }

    /// The name of the skill whose `SKILL.md` this is.
    pub fn skill_file_of(&self) -> Option<&str> {
        let (Section::Skills, Some(inner)) = (self.section, &self.inner) else { return None };
        inner.as_str().strip_suffix(SKILL_FILE)?.strip_suffix('/').filter(|skill| !skill.contains('/'))
    }

    /// Rejects `SKILL.md`, in any letter case, except at the root of a skill.
    pub fn check_writable(&self) -> Result<(), FilesError> {
        let (Section::Skills, Some(inner)) = (self.section, &self.inner) else { return Ok(()) };
        if inner.as_str().split('/').any(is_reserved) && self.skill_file_of().is_none_or(is_reserved) {
            return Err(FilesError::Reserved);
        }
        Ok(())
    }
}

/// True if a name equals `SKILL.md`, ignoring case.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.to_lowercase() == SKILL_FILE.to_lowercase()
}

/// Checks that apply before the section is parsed.
fn check_spelling(text: &str, given: &str) -> Result<(), FilesError> {
    if text.len() > RelativePath::MAX_LEN {
        return Err(FilesError::Malformed(PathProblem::LongPath));
    }
    if text.contains('\0') {
        return Err(FilesError::NulByte(given.to_owned()));
    }
    if text.starts_with('/') || text.contains('\\') || text.split('/').any(|component| component == "..") {
        return Err(FilesError::OutOfScope(given.to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(given: &str) -> String {
        AgentPath::parse(given).unwrap().plain()
    }

    #[test]
    fn path_starts_with_section() {
        for (given, expected) in [
            ("files", "files"),
            ("skills/", "skills"),
            ("files/.", "files"),
            ("files/./", "files"),
            ("files//", "files"),
            ("files/a", "files/a"),
            ("files//a/./b/", "files/a/b"),
            ("skills/技能/SKILL.md", "skills/技能/SKILL.md"),
            ("files/a..b.txt", "files/a..b.txt"),
            ("files/...", "files/..."),
            ("files/C:x", "files/C:x"),
        ] {
            assert_eq!(plain(given), expected, "{given:?}");
        }
        for given in ["", "a", "file/a", "filesx/a", "Files/a", ".", "./.", "./files/a", " files/a", "skillsx", "~/x"] {
            assert_eq!(AgentPath::parse(given).unwrap_err(), FilesError::WrongStart(given.to_owned()), "{given:?}");
        }
    }

    #[test]
    fn path_out_of_scope_is_rejected_with_given_text() {
        for given in [
            "..",
            "../x",
            "a/../../x",
            "/etc/passwd",
            "//",
            "files/..",
            "skills/..",
            "skills/../files/a",
            "files/a/..",
            "files/a/../b",
            "C:\\x",
            "\\\\host\\share",
            "files/a\\..\\b",
            "files\\a",
        ] {
            let error = AgentPath::parse(given).unwrap_err();
            assert_eq!(error, FilesError::OutOfScope(given.to_owned()), "{given:?}");
            assert_eq!(error.to_string(), format!("Security Error: Access out of scope. Path: {given}"));
        }
        assert_eq!(AgentPath::parse("files/a\0b").unwrap_err(), FilesError::NulByte("files/a\0b".to_owned()));
        for (given, problem) in [
            (format!("files/{}", "a".repeat(256)), PathProblem::LongName),
            ("files/".to_owned() + &"a/".repeat(3000), PathProblem::LongPath),
            ("files/".to_owned() + &"a/".repeat(65), PathProblem::TooDeep),
        ] {
            assert_eq!(AgentPath::parse(&given).unwrap_err(), FilesError::Malformed(problem));
        }
    }

    #[test]
    fn relative_path_stays_in_its_directory() {
        assert_eq!(AgentPath::in_files("a/b").unwrap().plain(), "files/a/b");
        assert_eq!(AgentPath::in_files("").unwrap().plain(), "files");
        assert_eq!(AgentPath::in_skill("技能", "./main.py").unwrap().plain(), "skills/技能/main.py");
        assert_eq!(AgentPath::in_skill("x", "").unwrap().plain(), "skills/x");
        assert_eq!(AgentPath::in_session("output/./a").unwrap().inner().unwrap().as_str(), "output/a");
        for given in ["../x", "/etc/passwd", "a/../../b", "a\\b"] {
            assert_eq!(AgentPath::in_session(given), Err(FilesError::OutOfScope(given.to_owned())));
        }
        for (skill, given) in
            [("x", "../y"), ("..", "a"), (".", "a"), ("", "a"), ("a/b", "c"), ("a\\b", "c"), ("x", "/a")]
        {
            let error = AgentPath::in_skill(skill, given).unwrap_err();
            assert!(matches!(error, FilesError::OutOfScope(_)), "{skill:?} {given:?}");
        }
    }

    #[test]
    fn skill_file_is_writable_only_at_skill_root() {
        let check = |given: &str| AgentPath::parse(given).unwrap().check_writable();
        for allowed in
            ["skills/x/SKILL.md", "skills/x//SKILL.md", "skills/x/main.py", "skills/x/SKILL.mdx", "files/SKILL.md"]
        {
            assert_eq!(check(allowed), Ok(()), "{allowed}");
        }
        for given in [
            "skills/SKILL.md",
            "skills/skill.MD",
            "skills/x/skill.md",
            "skills/x/y/SKILL.md",
            "skills/x/y/Skill.md",
            "skills/x/SKILL.md/y",
            "skills/SKILL.md/SKILL.md",
            "skills/x/S\u{212a}ILL.md",
        ] {
            assert_eq!(check(given), Err(FilesError::Reserved), "{given}");
        }
        assert_eq!(AgentPath::parse("skills/x/SKILL.md").unwrap().skill_file_of(), Some("x"));
        assert_eq!(AgentPath::parse("skills/x/y/SKILL.md").unwrap().skill_file_of(), None);
        assert_eq!(AgentPath::parse("files/x/SKILL.md").unwrap().skill_file_of(), None);
    }

    proptest! {
        #[test]
        fn accepted_path_stays_beneath_section(rest in "([a.\\\\/\0é]|\\.\\./){0,30}", start in "(files|skills|)/?") {
            if let Ok(path) = AgentPath::parse(&format!("{start}{rest}")) {
                let plain = path.plain();
                let mut components = plain.split('/');
                prop_assert!(matches!(components.next(), Some("files" | "skills")));
                prop_assert!(components.all(|name| !matches!(name, "" | "." | "..") && !name.contains(['\0', '\\'])));
                prop_assert_eq!(AgentPath::parse(&plain).unwrap().plain(), plain);
            }
        }
    }
}
