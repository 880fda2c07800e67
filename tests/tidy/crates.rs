//! Rules about crates: which of ours may use which, and which foreign crates must not be linked. The tables are compared
//! with `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, PackageId};

use crate::source::{Finding, finding};

/// The dependencies among our own crates. A new crate is one entry here and one row in ARCHITECTURE.md.
pub(crate) const EDGES: &[(&str, Edges)] = &[
    (
        "ringwall",
        Edges::Exactly(&[
            "ringwall-executor",
            "ringwall-ids",
            "ringwall-jail",
            "ringwall-policy",
            "ringwall-record",
            "ringwall-risk",
            "ringwall-service",
        ]),
    ),
    (
        "ringwall-service",
        Edges::Exactly(&[
            "ringwall-browser",
            "ringwall-executor",
            "ringwall-ids",
            "ringwall-jail",
            "ringwall-policy",
            "ringwall-record",
            "ringwall-risk",
            "ringwall-workspace",
        ]),
    ),
    ("ringwall-record", Edges::Exactly(&["ringwall-ids"])),
    ("ringwall-workspace", Edges::Exactly(&["ringwall-ids"])),
    ("ringwall-ids", Edges::Exactly(&[])),
    ("ringwall-executor", Edges::Exactly(&["ringwall-jail", "ringwall-policy"])),
    ("ringwall-browser", Edges::Exactly(&[])),
    ("ringwall-policy", Edges::Exactly(&["ringwall-risk"])),
    ("ringwall-risk", Edges::Exactly(&[])),
    ("ringwall-jail", Edges::Exactly(&[])),
    (
        "bench",
        Edges::AtMost(&[
            "ringwall-browser",
            "ringwall-executor",
            "ringwall-ids",
            "ringwall-jail",
            "ringwall-policy",
            "ringwall-record",
        ]),
    ),
    ("tests", Edges::Exactly(&[])),
    ("ringwall-fuzz", Edges::Exactly(&["ringwall-executor", "ringwall-jail", "ringwall-policy", "ringwall-workspace"])),
];

/// Crates that a crate must not link, directly or indirectly. Development dependencies do not count.
pub(crate) const ABSENT: &[(&str, &[&str])] = &[
    ("ringwall-jail", &["tokio"]),
    ("ringwall-policy", &["tokio", "rustix", "libc"]),
    ("ringwall-risk", &["tokio", "rustix", "libc"]),
];

pub(crate) enum Edges {
    /// The crate uses all of these and no others.
    Exactly(&'static [&'static str]),
    /// The crate may use some of these.
    AtMost(&'static [&'static str]),
}

/// `actual` maps each member of the workspace to those members it depends on, in any way.
pub(crate) fn check_edges(table: &[(&str, Edges)], actual: &BTreeMap<String, BTreeSet<String>>) -> Vec<Finding> {
    let remedy = "Move the code to a crate that may use it, or change EDGES in tests/tidy/crates.rs.";
    let report = |rule: String| finding("Cargo.toml", 1, rule, remedy);
    let mut findings = Vec::new();
    for (name, uses) in actual {
        let Some((_, edges)) = table.iter().find(|(listed, _)| listed == name) else {
            findings.push(report(format!("crate `{name}` is not in the table")));
            continue;
        };
        let (allowed, is_exact) = match edges {
            Edges::Exactly(allowed) => (allowed, true),
            Edges::AtMost(allowed) => (allowed, false),
        };
        let extra = uses.iter().filter(|used| !allowed.contains(&used.as_str()));
        findings.extend(extra.map(|used| report(format!("crate `{name}` uses `{used}`, which it may not"))));
        let unused = allowed.iter().filter(|one| is_exact && !uses.contains(**one));
        findings.extend(unused.map(|one| report(format!("crate `{name}` no longer uses `{one}`"))));
    }
    let gone = table.iter().filter(|(listed, _)| !actual.contains_key(*listed));
    findings.extend(gone.map(|(listed, _)| report(format!("the table names `{listed}`, which is not a crate"))));
    findings
}

/// `reached` maps each member of the workspace to the names of all crates that it links.
pub(crate) fn check_absent(absent: &[(&str, &[&str])], reached: &BTreeMap<String, BTreeSet<String>>) -> Vec<Finding> {
    let remedy = "`cargo tree -e normal -i CRATE` shows which dependency links it. Remove that dependency.";
    let mut findings = Vec::new();
    for (member, unwanted) in absent {
        let found = unwanted.iter().filter(|one| reached.get(*member).is_none_or(|all| all.contains(**one)));
        findings.extend(found.map(|one| {
            let manifest = format!("crates/{member}/Cargo.toml");
            finding(&manifest, 1, format!("`{member}` links `{one}`"), remedy)
        }));
    }
    findings
}

/// The members of the workspace that each member depends on directly, in any kind of dependency.
pub(crate) fn members_used(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let members = metadata.workspace_packages();
    let names: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let used = members.iter().map(|member| {
        let uses = member.dependencies.iter().map(|dependency| dependency.name.as_str());
        (member.name.to_string(), uses.filter(|name| names.contains(name)).map(str::to_owned).collect())
    });
    used.collect()
}

/// All crates that each member links, directly or indirectly.
pub(crate) fn crates_reached(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let nodes: BTreeMap<&PackageId, _> = nodes.map(|node| (&node.id, node)).collect();
    let mut reached = BTreeMap::new();
    for member in metadata.workspace_packages() {
        let (mut seen, mut waiting) = (BTreeSet::new(), vec![&member.id]);
        while let Some(node) = waiting.pop().and_then(|id| nodes.get(id)) {
            for dependency in &node.deps {
                let is_linked = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
                if is_linked && seen.insert(&dependency.pkg) {
                    waiting.push(&dependency.pkg);
                }
            }
        }
        let names = metadata.packages.iter().filter(|package| seen.contains(&package.id));
        reached.insert(member.name.to_string(), names.map(|package| package.name.to_string()).collect());
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    type Uses = &'static [(&'static str, &'static [&'static str])];

    const SAMPLE: &[(&str, Edges)] =
        &[("door", Edges::Exactly(&["hands"])), ("hands", Edges::Exactly(&[])), ("bench", Edges::AtMost(&["hands"]))];

    fn graph(edges: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        edges.iter().map(|(name, uses)| ((*name).to_owned(), owned(uses))).collect()
    }

    fn text(findings: &[Finding]) -> String {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn listed_dependencies_are_accepted() {
        let boxes = graph(&[("door", &["hands"]), ("hands", &[]), ("bench", &[])]);
        assert!(check_edges(SAMPLE, &boxes).is_empty());
    }

    #[test]
    fn unlisted_or_unused_dependency_is_found() {
        let broken: &[(Uses, &str)] = &[
            (&[("door", &["hands"]), ("hands", &["door"]), ("bench", &[])], "`hands` uses `door`"),
            (&[("door", &["hands"]), ("hands", &[]), ("bench", &["door"])], "`bench` uses `door`"),
            (&[("door", &[]), ("hands", &[]), ("bench", &[])], "`door` no longer uses `hands`"),
            (&[("door", &["hands"]), ("hands", &[])], "names `bench`"),
            (&[("door", &["hands"]), ("hands", &[]), ("bench", &[]), ("shed", &[])], "`shed` is not in the table"),
        ];
        for (edges, expected) in broken {
            let findings = check_edges(SAMPLE, &graph(edges));
            assert_eq!(findings.len(), 1, "{expected}");
            assert!(text(&findings).contains(expected), "{}", text(&findings));
        }
    }

    #[test]
    fn forbidden_linked_crate_is_found() {
        let absent: &[(&str, &[&str])] = &[("jail", &["tokio"])];
        assert!(check_absent(absent, &graph(&[("jail", &["rustix"])])).is_empty());
        let findings = check_absent(absent, &graph(&[("jail", &["rustix", "tokio"])]));
        assert!(text(&findings).contains("`jail` links `tokio`"), "{}", text(&findings));
        assert_eq!(check_absent(absent, &graph(&[])).len(), 1, "a crate that is not in the graph");
    }
}
