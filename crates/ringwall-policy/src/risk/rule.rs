//! A rule: what it is about, how much care that deserves, in whose words, and examples that show where it ends.
//!
//! Most rules are nothing but the names that they look for. A name is a path through modules and members, with `()` for the
//! result of a call and `[]` for a part that is not known: `requests.Session().get`. Patterns are such a path, or
//! `a.*` (anything in a), `a.b*` (members of a that begin so, and nothing that comes from them), `a..z` (a member z of anything
//! that came from a), `..z` (of anything).

use std::collections::HashMap;

use super::level::{Level, Locale};

/// Whether the strict mode refuses outright instead of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Asked,
    Refused,
}

/// When a name counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Wherever it is mentioned: whoever holds a function can call it elsewhere.
    Mentioned,
    Called,
    Imported,
}

#[derive(Debug)]
pub struct Rule {
    pub id: &'static str,
    pub level: Level,
    pub refusal: Refusal,
    pub english: &'static str,
    pub chinese: &'static str,
    /// Contents that it must find something in, and contents that it must not.
    pub matches: &'static [&'static str],
    pub differs: &'static [&'static str],
    /// Patterns, parted by blanks.
    pub(crate) names: &'static str,
    pub(crate) when: Use,
}

impl Rule {
    pub(crate) const fn new(
        id: &'static str,
        level: Level,
        english: &'static str,
        chinese: &'static str,
        names: &'static str,
    ) -> Self {
        let (refusal, when) = (Refusal::Asked, Use::Mentioned);
        Rule { id, level, refusal, english, chinese, matches: &[], differs: &[], names, when }
    }

    pub(crate) const fn refused(self) -> Self {
        Rule { refusal: Refusal::Refused, ..self }
    }

    pub(crate) const fn called(self) -> Self {
        Rule { when: Use::Called, ..self }
    }

    pub(crate) const fn imported(self) -> Self {
        Rule { when: Use::Imported, ..self }
    }

    pub(crate) const fn shown_by(self, matches: &'static [&'static str], differs: &'static [&'static str]) -> Self {
        Rule { matches, differs, ..self }
    }

    pub fn sentence(&self, locale: Locale) -> &'static str {
        match locale {
            Locale::English => self.english,
            Locale::Chinese => self.chinese,
        }
    }
}

enum Pattern {
    /// Anything in it.
    Within(&'static str),
    /// A name that begins so.
    Begins(&'static str),
    /// A member of this name of anything that begins with the path.
    Member(&'static str, &'static str),
}

/// The rules of one language, to be found by a path.
pub(crate) struct Index {
    exact: HashMap<&'static str, Vec<&'static Rule>>,
    by_root: HashMap<&'static str, Vec<(Pattern, &'static Rule)>>,
    by_member: HashMap<&'static str, Vec<&'static Rule>>,
    by_id: HashMap<&'static str, &'static Rule>,
}

impl Index {
    pub(crate) fn new(rules: &'static [Rule]) -> Self {
        let (exact, by_root) = (HashMap::new(), HashMap::new());
        let mut index = Index { exact, by_root, by_member: HashMap::new(), by_id: HashMap::new() };
        for rule in rules {
            index.by_id.insert(rule.id, rule);
            for name in rule.names.split_ascii_whitespace() {
                if let Some(member) = name.strip_prefix("..") {
                    index.by_member.entry(member).or_default().push(rule);
                    continue;
                }
                let patterns = index.by_root.entry(root(name)).or_default();
                match (name.split_once(".."), name.strip_suffix('*')) {
                    (Some((path, member)), _) => patterns.push((Pattern::Member(path, member), rule)),
                    (None, Some(prefix)) if prefix.ends_with('.') => patterns.push((Pattern::Within(prefix), rule)),
                    (None, Some(prefix)) => patterns.push((Pattern::Begins(prefix), rule)),
                    (None, None) => index.exact.entry(name).or_default().push(rule),
                }
            }
        }
        index
    }

    pub(crate) fn by_id(&self, id: &str) -> Option<&'static Rule> {
        self.by_id.get(id).copied()
    }

    /// Whether any rule is about something of this root.
    pub(crate) fn knows(&self, path: &str) -> bool {
        self.by_root.contains_key(root(path))
    }

    /// The rules that a path falls under when it is used so.
    pub(crate) fn find(&self, path: &str, when: Use) -> Vec<&'static Rule> {
        let last = last_member(path);
        let fits = |pattern: &Pattern| match pattern {
            Pattern::Within(prefix) => path.starts_with(prefix),
            Pattern::Begins(prefix) => path.strip_prefix(prefix).is_some_and(|rest| !rest.contains(['.', '(', '['])),
            Pattern::Member(from, member) => {
                let rest = path.strip_prefix(from).filter(|rest| rest.starts_with(['.', '(', '[']));
                rest.is_some() && last == Some(member)
            }
        };
        let rooted = self.by_root.get(root(path)).into_iter().flatten();
        let rooted = rooted.filter(|(pattern, _)| fits(pattern)).map(|(_, rule)| *rule);
        let exact = self.exact.get(path).into_iter().flatten().copied();
        let members = last.and_then(|last| self.by_member.get(last)).into_iter().flatten().copied();
        exact.chain(rooted).chain(members).filter(|rule| rule.when == when).collect()
    }
}

/// The first name of a path.
pub(crate) fn root(path: &str) -> &str {
    path.split(['.', '(', '[', '*']).next().unwrap_or_default()
}

/// The last name of a path, if that is a member of something.
pub(crate) fn last_member(path: &str) -> Option<&str> {
    path.rsplit_once('.').map(|(_, last)| last)
}

#[cfg(test)]
mod tests {
    use super::*;

    static RULES: [Rule; 5] = [
        Rule::new("exact", Level::High, "", "", "os.kill"),
        Rule::new("prefix", Level::High, "", "", "os.exec* net.*"),
        Rule::new("member", Level::High, "", "", "pathlib..unlink"),
        Rule::new("any", Level::High, "", "", "..__globals__"),
        Rule::new("called", Level::High, "", "", "fetch").called(),
    ];

    #[test]
    fn patterns_find_their_paths_and_no_others() {
        let index = Index::new(&RULES);
        let found = |path| index.find(path, Use::Mentioned).iter().map(|rule| rule.id).collect::<Vec<_>>();
        let table: [(&str, &[&str]); 14] = [
            ("os.kill", &["exact"]),
            ("os.killer", &[]),
            ("os.kill()", &[]),
            ("os.execv", &["prefix"]),
            ("os.execv()", &[]),
            ("os.execv().x", &[]),
            ("net.x.y", &["prefix"]),
            ("net", &[]),
            ("network.x", &[]),
            ("pathlib.Path().unlink", &["member"]),
            ("pathlib.Path().glob()[].unlink", &["member"]),
            ("pathlibx.unlink", &[]),
            ("?.__globals__", &["any"]),
            ("fetch", &[]),
        ];
        for (path, expected) in table {
            assert_eq!(found(path), expected, "{path}");
        }
        assert_eq!(index.find("fetch", Use::Called).len(), 1);
    }
}
