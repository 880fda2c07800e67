//! The rule about cycles between the top-level modules of a crate. A module that is in no cycle can be read, tested and
//! moved alone; a large cycle can only be understood as a whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Finding, Source, finding, words};

/// The largest cycle that each crate may have. All other crates have none. The target is 3; a number above it may only be
/// lowered.
pub(crate) const LARGEST_CYCLES: &[(&str, usize)] = &[
    ("ringwall", 3),
    ("ringwall-browser", 2),
    ("ringwall-jail", 2),
    ("ringwall-policy", 16),
    ("ringwall-record", 14),
    ("ringwall-service", 3),
    ("ringwall-workspace", 10),
];

/// Which top-level modules a module mentions by a path that starts with `crate::`, tests aside.
type Graph = BTreeMap<String, BTreeSet<String>>;

pub(crate) fn check_cycles(limits: &[(&str, usize)], sources: &[Source]) -> Vec<Finding> {
    let remedy = "Move the shared item into the module below, or below both. If the cycle is smaller than the table says, \
                  lower the number in tests/tidy/modules.rs.";
    let mut findings = Vec::new();
    for (name, graph) in graphs(sources) {
        let largest = largest_cycle(&graph);
        let limit = limits.iter().find(|(of, _)| *of == name).map_or(0, |(_, limit)| *limit);
        if largest.len() != limit {
            let rule = format!(
                "the largest cycle of modules has {} members, the table says {limit}: {}",
                largest.len(),
                largest.into_iter().collect::<Vec<_>>().join(", ")
            );
            findings.push(finding(&format!("crates/{name}/src/lib.rs"), 1, rule, remedy));
        }
    }
    findings
}

/// The graph of each crate by its name.
fn graphs(sources: &[Source]) -> BTreeMap<String, Graph> {
    let mut graphs: BTreeMap<String, Graph> = BTreeMap::new();
    for (name, module, code) in sources.iter().filter_map(place) {
        let mentioned = code.split("crate::").skip(1).flat_map(mentioned_modules);
        let graph = graphs.entry(name.to_owned()).or_default();
        let own = graph.entry(module.to_owned()).or_default();
        own.extend(mentioned.filter(|other| *other != module).map(str::to_owned));
    }
    for graph in graphs.values_mut() {
        let modules: BTreeSet<String> = graph.keys().cloned().collect();
        graph.values_mut().for_each(|used| used.retain(|other| modules.contains(other)));
    }
    graphs
}

/// The crate, the top-level module and the code without tests of a source file; `None` outside the crates.
fn place(source: &Source) -> Option<(&str, &str, &str)> {
    let (name, path) = source.path.strip_prefix("crates/")?.split_once("/src/")?;
    let module = path.split('/').next()?.trim_end_matches(".rs");
    let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
    if !source.is_rust() || is_test || ["lib", "main"].contains(&module) {
        return None;
    }
    let code = source.code.split("\n#[cfg(test)]\n").next()?;
    Some((name, module, code))
}

/// The modules named right after `crate::`: one name, or the names that open the members of a list in braces.
fn mentioned_modules(after: &str) -> Vec<&str> {
    let Some(list) = after.strip_prefix('{') else { return words(after).take(1).collect() };
    let (mut depth, mut opens, mut found) = (0, true, Vec::new());
    for (index, character) in list.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => opens = true,
            _ if opens && !character.is_whitespace() => {
                opens = false;
                found.extend(words(&list[index..]).next());
            }
            _ => {}
        }
    }
    found
}

/// The largest set of modules that all reach each other; empty if there is no cycle.
fn largest_cycle(graph: &Graph) -> BTreeSet<String> {
    let reached: BTreeMap<&String, BTreeSet<String>> =
        graph.keys().map(|module| (module, reached_from(graph, module))).collect();
    let cycle_of = |module: &String| -> BTreeSet<String> {
        reached[module].iter().filter(|other| reached[other].contains(module)).cloned().collect()
    };
    graph.keys().map(cycle_of).max_by_key(BTreeSet::len).unwrap_or_default()
}

fn reached_from(graph: &Graph, module: &str) -> BTreeSet<String> {
    let (mut reached, mut open) = (BTreeSet::new(), vec![module]);
    while let Some(next) = open.pop() {
        for other in graph.get(next).into_iter().flatten() {
            if reached.insert(other.clone()) {
                open.push(other);
            }
        }
    }
    reached
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Vec<Source> {
        vec![
            Source::new("crates/x/src/lib.rs", "mod a;\nmod b;\nmod c;\nuse crate::a::A;\n"),
            Source::new(
                "crates/x/src/a.rs",
                "use crate::{b::{B, self}, c::C};\n#[cfg(test)]\nmod tests { use crate::d::D; }",
            ),
            Source::new("crates/x/src/b/mod.rs", "// crate::d\nfn f() { crate::a::g() }\n"),
            Source::new("crates/x/src/c.rs", "use std::fmt;\n"),
            Source::new("crates/x/src/d.rs", "use crate::a::A;\n"),
            Source::new("tests/x.rs", "use crate::a::A;\n"),
        ]
    }

    #[test]
    fn cycle_of_another_size_than_the_table_is_found() {
        assert!(check_cycles(&[("x", 2)], &sources()).is_empty());
        for limits in [&[("x", 3)][..], &[]] {
            let findings = check_cycles(limits, &sources());
            let [finding] = findings.as_slice() else { panic!("{} findings", findings.len()) };
            assert!(finding.to_string().contains("2 members") && finding.to_string().contains("a, b"), "{finding}");
        }
    }
}
