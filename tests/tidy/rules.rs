//! Rules about the text of one file: its first line, length, name, and words it must not contain. Each is a function from
//! a file to findings.

use std::collections::BTreeSet;

use crate::source::{Finding, Source, finding, lines_matching, words};

/// Crates whose functions depend on their arguments only, and the names that they must not mention.
const PURE_CRATES: &[&str] = &["crates/ringwall-policy/src/", "crates/ringwall-risk/src/"];
const IMPURE_MODULES: &[&str] = &["env", "fs", "net", "process", "thread"];
const IMPURE_WORDS: &[&str] = &["SystemTime", "Instant", "async"];

const UNSAFE_FILE: &str = "crates/ringwall-jail/src/sys.rs";
pub(crate) const DISPATCH_FILE: &str = "crates/ringwall/src/main.rs";
const MEANINGLESS_NAMES: &[&str] =
    &["utils", "util", "helpers", "helper", "misc", "common", "core", "types", "manager"];
/// Lines of one file. 100 to 600 are normal; one state machine may have more.
const MAX_LINES: usize = 900;
pub(crate) const MAX_DOCUMENT: &[(&str, usize)] = &[("README.md", 200), ("ARCHITECTURE.md", 250)];

pub(crate) fn opens_with_its_purpose(source: &Source) -> Vec<Finding> {
    let rule = "the file does not open with `//!`";
    let remedy = "Start the file with one sentence that says what the module does.";
    let is_broken = source.is_rust() && !source.text.starts_with("//!");
    is_broken.then(|| finding(&source.path, 1, rule, remedy)).into_iter().collect()
}

pub(crate) fn stays_short(source: &Source) -> Vec<Finding> {
    let document = MAX_DOCUMENT.iter().find(|(name, _)| *name == source.path);
    let longest = document.map_or(MAX_LINES, |(_, lines)| *lines);
    let rule = format!("the file has more than {longest} lines");
    let remedy =
        "Move a part that has its own callers into a file of its own, or delete code. Do not split one state machine.";
    let is_broken = source.text.lines().count() > longest;
    is_broken.then(|| finding(&source.path, longest + 1, rule, remedy)).into_iter().collect()
}

pub(crate) fn keeps_unsafe_in_one_file(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_used = false;
    for source in sources.iter().filter(|source| source.is_rust()) {
        for line in source.lines_with("unsafe") {
            if source.path == UNSAFE_FILE {
                is_used = true;
            } else {
                let rule = format!("`unsafe` outside {UNSAFE_FILE}");
                let remedy = "Use rustix if it has the call; otherwise put a safe function around it into that file.";
                findings.push(finding(&source.path, line, rule, remedy));
            }
        }
    }
    if !is_used {
        let remedy =
            "If the last one is gone, forbid `unsafe_code` in Cargo.toml; if the file moved, change this rule.";
        findings.push(finding(UNSAFE_FILE, 1, "the one file for `unsafe` has none", remedy));
    }
    findings
}

/// An attribute, `#[ignore]` or one under `cfg_attr`, or libtest-mimic's flag for the same.
pub(crate) fn skips_no_test(source: &Source) -> Vec<Finding> {
    let remedy = "Make it pass, or delete it. What a machine cannot run is counted and printed at run time.";
    let is_skip = |line: &str| {
        let attribute = line.split_once("#[").is_some_and(|(_, inside)| words(inside).any(|word| word == "ignore"));
        attribute || words(line).any(|word| word == "with_ignored_flag")
    };
    lines_matching(&source.code, is_skip).map(|line| finding(&source.path, line, "a test is ignored", remedy)).collect()
}

pub(crate) fn has_a_meaningful_name(source: &Source) -> Vec<Finding> {
    let remedy = "Name the module after what it contains.";
    let in_path = source.path.split('/').map(|part| part.strip_suffix(".rs").unwrap_or(part));
    let in_path = in_path.filter(|part| MEANINGLESS_NAMES.contains(part)).map(|part| (1, part));
    let in_code = source.code.lines().enumerate().filter_map(|(index, line)| {
        let name = words(line).skip_while(|word| *word != "mod").nth(1)?;
        MEANINGLESS_NAMES.contains(&name).then_some((index + 1, name))
    });
    in_path
        .chain(in_code)
        .map(|(line, name)| finding(&source.path, line, format!("a module is called `{name}`"), remedy))
        .collect()
}

pub(crate) fn is_pure(source: &Source) -> Vec<Finding> {
    if !PURE_CRATES.iter().any(|directory| source.path.starts_with(directory)) {
        return Vec::new();
    }
    let remedy = "This crate computes from its arguments only. Read the value in another crate and pass it in.";
    let report = |line, what: &str| finding(&source.path, line, format!("a pure crate mentions `{what}`"), remedy);
    let mut findings = Vec::new();
    for word in IMPURE_WORDS {
        findings.extend(source.lines_with(word).map(|line| report(line, word)));
    }
    for (index, _) in source.code.match_indices("std::") {
        let (before, after) = source.code.split_at(index);
        let line = before.matches('\n').count() + 1;
        let names = first_names(&after["std::".len()..]);
        let impure = IMPURE_MODULES.iter().filter(|name| names.contains(*name));
        findings.extend(impure.map(|name| report(line, name)));
    }
    findings
}

/// The names after `std::`: one name, or all names of a group, nested groups included.
fn first_names(path: &str) -> BTreeSet<&str> {
    if !path.starts_with('{') {
        return words(path).take(1).collect();
    }
    let mut depth = 0_usize;
    let end = path.find(|character| {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    words(&path[..end.unwrap_or(path.len())]).collect()
}

/// The binary uses boxes through `executor`. It names the jail only where a re-executed process takes its role.
pub(crate) fn knows_the_jail_in_one_place(source: &Source) -> Vec<Finding> {
    if !source.path.starts_with("crates/ringwall/") || source.path == DISPATCH_FILE {
        return Vec::new();
    }
    let rule = format!("`ringwall_jail` is mentioned outside {DISPATCH_FILE}");
    let remedy = "Go through `executor`; only the dispatch of a re-executed binary needs the jail itself.";
    source.lines_with("ringwall_jail").map(|line| finding(&source.path, line, rule.clone(), remedy)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(findings: &[Finding]) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn missing_module_head_is_found() {
        let missing = Source::new("a.rs", "use std::fmt;\n//! too late\n");
        assert_eq!(lines(&opens_with_its_purpose(&missing)), [1]);
        assert!(opens_with_its_purpose(&Source::new("a.rs", "//! Does one thing.\n")).is_empty());
        assert!(opens_with_its_purpose(&Source::new("README.md", "# Ringwall\n")).is_empty());
    }

    #[test]
    fn long_file_is_found() {
        for (path, longest) in [("a.rs", 900), ("README.md", 200), ("ARCHITECTURE.md", 250)] {
            assert!(stays_short(&Source::new(path, &"x\n".repeat(longest))).is_empty(), "{path}");
            let long = Source::new(path, &"x\n".repeat(longest + 1));
            assert_eq!(lines(&stays_short(&long)), [longest + 1], "{path}");
        }
    }

    #[test]
    fn unsafe_outside_its_file_is_found() {
        let home = || Source::new(UNSAFE_FILE, "unsafe { call() }");
        let stray = Source::new("crates/ringwall-jail/src/run.rs", "// unsafe\nunsafe { call() }");
        let findings = keeps_unsafe_in_one_file(&[home(), stray]);
        assert_eq!(lines(&findings), [2]);
        assert_eq!(findings[0].file, "crates/ringwall-jail/src/run.rs");
        assert!(keeps_unsafe_in_one_file(&[home()]).is_empty());
        assert_eq!(lines(&keeps_unsafe_in_one_file(&[Source::new(UNSAFE_FILE, "")])), [1]);
    }

    #[test]
    fn ignored_test_is_found() {
        let attribute = "#[test]\n#[ignore = \"slow\"]\nfn a() {}";
        let conditional = "#[cfg_attr(miri, ignore)]\nfn a() {}";
        let mimic = "trial\n    .with_ignored_flag(true)";
        for (text, line) in [(attribute, 2), (conditional, 1), (mimic, 2)] {
            assert_eq!(lines(&skips_no_test(&Source::new("a.rs", text))), [line], "{text}");
        }
        assert!(skips_no_test(&Source::new("a.rs", "// #[ignore]\nlet ignore = 1;")).is_empty());
    }

    #[test]
    fn meaningless_module_name_is_found() {
        for path in ["crates/ringwall-policy/src/utils.rs", "crates/common/src/lib.rs", "tests/misc/mod.rs"] {
            assert_eq!(lines(&has_a_meaningful_name(&Source::new(path, ""))), [1], "{path}");
        }
        let inline = Source::new("a.rs", "//! A.\npub(crate) mod helpers {}");
        assert_eq!(lines(&has_a_meaningful_name(&inline)), [2]);
        let fine = "use core::fmt;\nmod commonplace;\nmod tests {}";
        assert!(has_a_meaningful_name(&Source::new("a.rs", fine)).is_empty());
    }

    #[test]
    fn impure_name_in_pure_crate_is_found() {
        let path = "crates/ringwall-policy/src/decide.rs";
        let impure = [
            ("//! Pure.\nuse std::fs;", 2),
            ("use std::net::IpAddr;", 1),
            ("\nuse std::{\n    fmt,\n    process::Command,\n};", 2),
            ("use std::fmt;\nfn a() { std::env::var(b); }", 2),
            ("fn a() {\n    let b = c;\n\n    let d = std::fs::read(e);\n}", 4),
            ("use std::{collections::{BTreeMap, BTreeSet}, net};", 1),
            ("fn a(b: std::fmt::Arguments) {\n    std::fs::read(c)\n}", 2),
            ("use std::time::{Duration,\n    Instant};", 2),
            ("let now = SystemTime::now();", 1),
            ("async fn decide() {}", 1),
        ];
        for (text, line) in impure {
            assert_eq!(lines(&is_pure(&Source::new(path, text))), [line], "{text}");
        }
        let pure = "use std::{fmt, collections::BTreeMap};\nlet net = a.fs;\n// std::fs\nlet b = \"std::fs\";";
        assert!(is_pure(&Source::new(path, pure)).is_empty());
        assert_eq!(lines(&is_pure(&Source::new("crates/ringwall-risk/src/assess.rs", "use std::fs;"))), [1]);
        assert!(is_pure(&Source::new("crates/ringwall-executor/src/run.rs", "use std::fs;")).is_empty());
    }

    #[test]
    fn jail_named_in_second_file_is_found() {
        let text = "use ringwall_executor::Box;\nuse ringwall_jail::Plan;";
        let door = Source::new("crates/ringwall/src/run.rs", text);
        assert_eq!(lines(&knows_the_jail_in_one_place(&door)), [2]);
        for path in [DISPATCH_FILE, "crates/ringwall-executor/src/run.rs"] {
            assert!(knows_the_jail_in_one_place(&Source::new(path, text)).is_empty(), "{path}");
        }
    }
}
