//! The host paths that a line names: a table of lines that ask for approval, one of lines that do
//! not, and laws on random lines.
//!
//! The list of allowed paths is empty. The laws hide a path in each construct that can contain one,
//! and check the rules on paths against a simple model.

#![expect(clippy::panic, reason = "a failed assumption is a failed test")]

use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::RngSeed;
use ringwall_policy::{CommandLine, Error, HostPath, PathStyle, blocked, normalise};

fn asked(line: &str) -> Result<Vec<String>, Error> {
    let named = CommandLine::read(line)?.operands("/workspace", "/home/sandbox")?;
    Ok(blocked(&named, &[]).into_iter().map(HostPath::to_string).collect())
}

fn asks(line: &str) -> Vec<String> {
    asked(line).unwrap_or_else(|error| panic!("{line}: {error}"))
}

/// Fails with all wrong lines at once.
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "{} lines\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn named_path_is_asked_for() {
    let mut wrong = Vec::new();
    for block in include_str!("lines/asked.txt").trim_end().split("\n---\n") {
        let (expected, line) = block.split_once('\n').expect("paths and a line");
        let found = asked(line).map(|paths| paths.join(", "));
        if found.as_deref() != Ok(expected) {
            wrong.push(format!("{line}\n    expected {expected}\n    found    {found:?}"));
        }
    }
    assert_none(&wrong);
}

#[test]
fn word_that_is_no_path_is_not_asked_for() {
    let mut wrong = Vec::new();
    for line in include_str!("lines/unasked.txt").trim_end().split("\n---\n") {
        let found = asked(line);
        if found != Ok(Vec::new()) {
            wrong.push(format!("{line}\n    found {found:?}"));
        }
    }
    assert_none(&wrong);
}

#[test]
fn relative_path_is_resolved_from_directory_and_home() {
    let line = CommandLine::read("cat a ~/b ../c; cd; cat d").expect("a line");
    let named = line.operands("/srv/work", "/home/me").expect("few paths");
    let named: Vec<&str> = named.iter().map(HostPath::as_str).collect();
    assert_eq!(named, ["/srv/work/a", "/home/me/b", "/srv/c", "/home/me", "/home/me/d"]);
}

#[test]
fn line_with_too_many_bytes_of_paths_is_rejected() {
    // Resolved, each word is as long as the directory.
    let directory = format!("/{}", "a".repeat(4000));
    let words: String = (0..1000).map(|number| format!(" {number}")).collect();
    assert_eq!(asked(&format!("cd {directory}; cat{words}")), Err(Error::CommandTooComplex));
    assert_eq!(asks(&format!("cat{words}")), [""; 0]);
}

/// Constructs that contain a path; `@` marks its place.
const HOLDERS: [&str; 33] = [
    "cat @",
    "cat x @ y",
    "ls; cat @",
    "ls && rm -rf @",
    "ls | tee @",
    "echo x > @",
    "cat < @",
    "(cat @)",
    "{ cat @; }",
    "! cat @",
    "time cat @",
    "A=b cat @",
    ">x cat @",
    "cat >x @",
    "echo $(cat @)",
    "echo \"a $(cat @) b\"",
    "echo ${x:-$(cat @)}",
    "x=$(cat @)",
    "diff <(cat @) a",
    "cat <<E\n$(cat @)\nE",
    "if cat @; then ls; fi",
    "while cat @; do ls; done",
    "for x in a; do cat @; done",
    "case a in a) cat @;; esac",
    "f() { cat @; }",
    "ls | xargs -n 1 cat @",
    "find . -exec cp {} @ \\;",
    "find @ -name x",
    "bash -c 'cat @'",
    "command cat @",
    "X=@; cat $X",
    "for f in a @; do cat $f; done",
    "frobnicate --x=@",
];

/// A fixed seed, so that every run has the same cases.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { rng_seed: RngSeed::Fixed(7), failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

/// Names, dots, separators and drives in any order.
fn path_text() -> impl Strategy<Value = String> {
    let part =
        select(&["/", "\\", ".", "..", "a", "B", "C:", "c:\\", "~", " ", "\\\\", "?", "UNC", "é", "user", "home"][..]);
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

fn base() -> impl Strategy<Value = &'static str> {
    select(&["/workspace", "/", "/home/u", "C:\\work", "\\\\server\\share\\a", ""][..])
}

fn host_path() -> impl Strategy<Value = HostPath> {
    (path_text(), base()).prop_filter_map("a path", |(text, base)| normalise(&text, base, Some("/home/u")).ok())
}

/// Few names, so that paths often cover each other.
fn near_path() -> impl Strategy<Value = HostPath> {
    let name = select(&["a", "A", "ab", "b"][..]);
    let names = proptest::collection::vec(name, 0..4);
    (select(&["/", "C:\\", "\\\\s\\"][..]), names)
        .prop_filter_map("a path", |(root, names)| normalise(&format!("{root}{}", names.join("/")), "/", None).ok())
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn normalised_path_is_unchanged_by_normalising(path in host_path()) {
        let again = normalise(path.as_str(), "/elsewhere", None).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(again.as_str(), path.as_str());
        let separator = match path.style() { PathStyle::Linux => '/', PathStyle::Windows => '\\' };
        prop_assert!(path.as_str().split(separator).all(|part| part != ".." && part != "."), "{}", path);
    }

    #[test]
    fn covering_is_a_partial_order(one in near_path(), two in near_path(), three in near_path()) {
        prop_assert!(one.covers(&one));
        prop_assert!(!(one.covers(&two) && two.covers(&one)) || one == two, "{} {}", one, two);
        prop_assert!(!(one.covers(&two) && two.covers(&three)) || one.covers(&three), "{} {} {}", one, two, three);
    }

    #[test]
    fn path_with_longer_name_is_not_covered(path in near_path(), more in "[a-z]{1,3}") {
        prop_assume!(!path.as_str().ends_with(['/', '\\']));
        let longer = normalise(&format!("{path}{more}"), "/", None).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert!(!path.covers(&longer) && !longer.covers(&path));
    }

    #[test]
    fn covered_path_is_not_blocked(path in near_path(), entries in proptest::collection::vec(near_path(), 0..4)) {
        let named = [path];
        let left = blocked(&named, &entries);
        prop_assert_eq!(left.is_empty(), entries.iter().any(|entry| entry.covers(&named[0])));
    }
}

proptest! {
    #![proptest_config(cases(600))]

    #[test]
    fn path_is_found_in_any_construct(
        holder in select(&HOLDERS[..]),
        names in proptest::collection::vec("[b-y]{2,6}", 1..4),
        spelling in 0u8..5,
    ) {
        let path = format!("/data/{}", names.join("/"));
        let (first, rest) = path.split_at(3);
        let spelled = match spelling {
            _ if holder.contains('\'') => path.clone(),
            0 => path.clone(),
            1 => format!("\"{path}\""),
            2 => format!("{first}\\{rest}"),
            3 => format!("{first}\"{rest}\""),
            _ => format!("/data/../data//./{}", names.join("/")),
        };
        let line = holder.replace('@', &spelled);
        prop_assert_eq!(asks(&line), [path], "{}", line);
    }

    #[test]
    fn workspace_path_is_not_asked_for(
        name in select(&["cat", "rm", "grep", "sed", "find", "tar", "frobnicate", "cp", "python3", "chmod", "git", "dd"][..]),
        words in proptest::collection::vec("-{0,2}[a-z]{1,4}(=[a-z]{1,3}(/[a-z*]{1,3}){0,2})?|[a-z]{1,4}(/[a-z*]{1,3}){0,2}", 0..6),
    ) {
        prop_assert_eq!(asks(&format!("{name} {}", words.join(" "))), [""; 0]);
    }

    #[test]
    fn any_text_is_read_without_panic(text in any::<String>()) {
        let _ = asked(&text);
    }

    #[test]
    fn any_shell_fragments_are_read_without_panic(parts in proptest::collection::vec(select(&PARTS[..]), 0..120)) {
        let line = parts.concat();
        let _ = asked(&line);
        // Most fragments are no valid line; as words of one command they nearly always are.
        let words = line.replace(['\n', ';', '(', ')', '&', '|', '<', '>', '\'', '"', '`', '#'], " ");
        let _ = asked(&format!("cat {words}"));
    }
}

const PARTS: [&str; 44] = [
    "(",
    ")",
    "{",
    "}",
    "{a,b}",
    "{1..3}",
    "[",
    "]",
    "[ -f ",
    "$(",
    "${",
    "$X",
    "${X}",
    "X=",
    "`",
    "\"",
    "'",
    "$'",
    "<<E",
    "\nE\n",
    "<<<",
    "<(",
    ">",
    "2>&1",
    "|",
    "&&",
    "&",
    ";",
    "\n",
    " ",
    "\\",
    "~",
    "..",
    "/",
    "/etc",
    "*",
    ",",
    "C:\\",
    "cd ",
    "for X in ",
    "; do ",
    "done",
    "find ",
    "é\u{1F980}",
];
