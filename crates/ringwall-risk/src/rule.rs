//! A rule: the names it looks for, its level, its message, and examples of what it matches and does
//! not match.
//!
//! A name is a path through modules and members, with `()` for the result of a call and `[]` for an
//! unknown element: `requests.Session().get`. Patterns are such a path, or `a.*` (anything in `a`),
//! `a.b*` (members of `a` that start with `b`, but not their results), `a..z` (a member `z` of
//! anything that comes from `a`), `..z` (a member `z` of anything).

use std::collections::HashMap;

use super::level::{Level, Locale};

/// How strict mode treats code with this finding: it asks, or it denies without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    Asked,
    Refused,
}

/// The use of a name that the rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Every mention, because a function value may be called elsewhere.
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
    /// Contents in which the rule must, and must not, find something.
    pub matches: &'static [&'static str],
    pub differs: &'static [&'static str],
    /// Patterns, separated by spaces.
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
    /// Any path that starts with this prefix.
    Within(&'static str),
    /// A member whose name starts with this prefix.
    Begins(&'static str),
    /// A member of this name of anything that starts with the path.
    Member(&'static str, &'static str),
}

/// The rules of one language, indexed by path.
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

    /// True if any rule has a pattern with the first name of this path.
    pub(crate) fn knows(&self, path: &str) -> bool {
        self.by_root.contains_key(root(path))
    }

    /// The rules that match a path in this use.
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

/// The last name of a path with at least two.
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
    fn pattern_matches_its_paths_only() {
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
