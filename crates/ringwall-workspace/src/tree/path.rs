//! A path as a caller of the files' API names it: `files/…` or `skills/…`, straight down.
//!
//! Pure spelling. It keeps what was given, because messages show that and nothing else. `..` is a component and not a
//! part of a name, so `a..b` is fine; a backslash is refused, because on a client's Windows the same name would climb.

use crate::relative_path::{PathProblem, RelativePath};

use super::refusal::Refusal;

/// The one name under `skills/` that has a place of its own.
pub(crate) const SKILL_FILE: &str = "SKILL.md";

/// One of the two directories that an agent's files are in, or the one of a session's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    Files,
    Skills,
    /// A session's own, and its only one.
    Work,
}

impl Section {
    /// Those that a path of an agent's can begin with.
    pub const OF_AGENTS: [Section; 2] = [Section::Files, Section::Skills];

    /// Its name, in paths and on the disk.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Files => "files",
            Section::Skills => "skills",
            Section::Work => "work",
        }
    }
}

/// Where in which section. The section itself is a path too, where a directory makes sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentPath {
    given: String,
    section: Section,
    inner: Option<RelativePath>,
    ending: Ending,
}

/// Whether a path can be that of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Name,
    /// A slash, which says that a directory is meant.
    Slash,
}

impl AgentPath {
    /// Reads `files/…` or `skills/…`.
    pub fn parse(given: &str) -> Result<Self, Refusal> {
        check_spelling(given, given)?;
        let (first, rest) = given.split_once('/').map_or((given, None), |(first, rest)| (first, Some(rest)));
        let section = Section::OF_AGENTS.into_iter().find(|section| section.name() == first);
        let section = section.ok_or_else(|| Refusal::WrongStart(given.to_owned()))?;
        Self::beneath(section, rest.unwrap_or_default(), given)
    }

    /// Reads a path relative to `files/`.
    pub fn in_files(given: &str) -> Result<Self, Refusal> {
        check_spelling(given, given)?;
        Self::beneath(Section::Files, given, given)
    }

    /// Reads a path relative to a session's files.
    pub fn in_session(given: &str) -> Result<Self, Refusal> {
        check_spelling(given, given)?;
        Self::beneath(Section::Work, given, given)
    }

    /// What lies in this directory under a name that a listing found.
    pub(crate) fn join(&self, path: &str) -> Result<Self, Refusal> {
        let inner = self.inner.as_ref().map_or_else(|| path.to_owned(), |inner| format!("{}/{path}", inner.as_str()));
        Self::beneath(self.section, &inner, &inner)
    }

    /// Reads a path relative to a skill's directory. The skill is any one name.
    pub fn in_skill(skill: &str, given: &str) -> Result<Self, Refusal> {
        let directory = Self::skill(skill)?;
        check_spelling(given, given)?;
        let name = directory.inner.as_ref().map_or(skill, RelativePath::as_str);
        Self::beneath(Section::Skills, &format!("{name}/{given}"), given)
    }

    /// The directory of a skill.
    pub fn skill(name: &str) -> Result<Self, Refusal> {
        check_spelling(name, name)?;
        if name.contains('/') || matches!(name, "" | ".") {
            return Err(Refusal::OutOfScope(name.to_owned()));
        }
        Self::beneath(Section::Skills, name, name)
    }

    fn beneath(section: Section, text: &str, given: &str) -> Result<Self, Refusal> {
        // Doubled slashes at the start are slashes like any other here; an absolute path was refused before.
        let mut name = text.trim_start_matches('/');
        while let Some(shorter) = name.strip_suffix('/').or_else(|| name.strip_suffix("/.")) {
            name = shorter;
        }
        let ending = if text.ends_with(name) { Ending::Name } else { Ending::Slash };
        let inner = match name {
            "" | "." => None,
            name => Some(RelativePath::read(name).map_err(Refusal::Malformed)?),
        };
        Ok(Self { given: given.to_owned(), section, inner, ending })
    }

    /// As the caller said it.
    pub fn given(&self) -> &str {
        &self.given
    }

    pub fn section(&self) -> Section {
        self.section
    }

    /// Beneath the section, in its plain form; nothing when the section itself is meant.
    pub fn inner(&self) -> Option<&RelativePath> {
        self.inner.as_ref()
    }

    /// In its plain form from the workspace on.
    pub fn plain(&self) -> String {
        let section = self.section.name();
        self.inner.as_ref().map_or_else(|| section.to_owned(), |inner| format!("{section}/{}", inner.as_str()))
    }

    /// Beneath the section, if the path can be a file's.
    pub(crate) fn file(&self) -> Result<&RelativePath, Refusal> {
        match (&self.inner, self.ending) {
            (Some(inner), Ending::Name) => Ok(inner),
            (None, _) | (_, Ending::Slash) => Err(Refusal::IsDirectory(self.given.clone())),
        }
    }

    /// The skill whose `SKILL.md` this is, if it is one.
    pub fn skill_file_of(&self) -> Option<&str> {
        let (Section::Skills, Some(inner)) = (self.section, &self.inner) else { return None };
        inner.as_str().strip_suffix(SKILL_FILE)?.strip_suffix('/').filter(|skill| !skill.contains('/'))
    }

    /// Refuses to write to `SKILL.md`, in any letter case, anywhere but at the root of a skill.
    pub fn check_writable(&self) -> Result<(), Refusal> {
        let (Section::Skills, Some(inner)) = (self.section, &self.inner) else { return Ok(()) };
        if inner.as_str().split('/').any(is_reserved) && self.skill_file_of().is_none_or(is_reserved) {
            return Err(Refusal::Reserved);
        }
        Ok(())
    }
}

/// Whether a name is that of a skill's own file, in whatever letter case.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.to_lowercase() == SKILL_FILE.to_lowercase()
}

/// What no path may have, before it is asked where it begins.
fn check_spelling(text: &str, given: &str) -> Result<(), Refusal> {
    if text.len() > RelativePath::MAX_LEN {
        return Err(Refusal::Malformed(PathProblem::LongPath));
    }
    if text.contains('\0') {
        return Err(Refusal::NulByte(given.to_owned()));
    }
    if text.starts_with('/') || text.contains('\\') || text.split('/').any(|component| component == "..") {
        return Err(Refusal::OutOfScope(given.to_owned()));
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
    fn a_path_begins_with_a_section() {
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
            assert_eq!(AgentPath::parse(given).unwrap_err(), Refusal::WrongStart(given.to_owned()), "{given:?}");
        }
    }

    #[test]
    fn what_leads_out_is_refused_with_what_was_given() {
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
            let refusal = AgentPath::parse(given).unwrap_err();
            assert_eq!(refusal, Refusal::OutOfScope(given.to_owned()), "{given:?}");
            assert_eq!(refusal.to_string(), format!("Security Error: Access out of scope. Path: {given}"));
        }
        assert_eq!(AgentPath::parse("files/a\0b").unwrap_err(), Refusal::NulByte("files/a\0b".to_owned()));
        for (given, problem) in [
            (format!("files/{}", "a".repeat(256)), PathProblem::LongName),
            ("files/".to_owned() + &"a/".repeat(3000), PathProblem::LongPath),
            ("files/".to_owned() + &"a/".repeat(65), PathProblem::TooDeep),
        ] {
            assert_eq!(AgentPath::parse(&given).unwrap_err(), Refusal::Malformed(problem));
        }
    }

    #[test]
    fn relative_paths_stay_in_their_directory() {
        assert_eq!(AgentPath::in_files("a/b").unwrap().plain(), "files/a/b");
        assert_eq!(AgentPath::in_files("").unwrap().plain(), "files");
        assert_eq!(AgentPath::in_skill("技能", "./main.py").unwrap().plain(), "skills/技能/main.py");
        assert_eq!(AgentPath::in_skill("x", "").unwrap().plain(), "skills/x");
        assert_eq!(AgentPath::in_session("output/./a").unwrap().inner().unwrap().as_str(), "output/a");
        for given in ["../x", "/etc/passwd", "a/../../b", "a\\b"] {
            assert_eq!(AgentPath::in_session(given), Err(Refusal::OutOfScope(given.to_owned())));
        }
        for (skill, given) in
            [("x", "../y"), ("..", "a"), (".", "a"), ("", "a"), ("a/b", "c"), ("a\\b", "c"), ("x", "/a")]
        {
            let refusal = AgentPath::in_skill(skill, given).unwrap_err();
            assert!(matches!(refusal, Refusal::OutOfScope(_)), "{skill:?} {given:?}");
        }
    }

    #[test]
    fn a_skills_own_file_is_written_at_its_root_alone() {
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
            assert_eq!(check(given), Err(Refusal::Reserved), "{given}");
        }
        assert_eq!(AgentPath::parse("skills/x/SKILL.md").unwrap().skill_file_of(), Some("x"));
        assert_eq!(AgentPath::parse("skills/x/y/SKILL.md").unwrap().skill_file_of(), None);
        assert_eq!(AgentPath::parse("files/x/SKILL.md").unwrap().skill_file_of(), None);
    }

    proptest! {
        /// Whatever is accepted lies straight beneath a section, and says the same when it is read again.
        #[test]
        fn accepted_paths_stay_beneath(rest in "([a.\\\\/\0é]|\\.\\./){0,30}", start in "(files|skills|)/?") {
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
