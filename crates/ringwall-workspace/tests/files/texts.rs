//! Reading, editing and replacing lines, compared with a simple model in memory.

use proptest::prelude::*;
use ringwall_workspace::{AgentPath, Change, Error, FilesError, Lines, Tree};

use crate::fixture::Fixture;

fn at(path: &str) -> AgentPath {
    AgentPath::parse(path).unwrap()
}

fn files_error<T: std::fmt::Debug>(outcome: Result<T, Error>) -> FilesError {
    match outcome {
        Err(Error::Files(files_error)) => files_error,
        other => panic!("{other:?}"),
    }
}

fn whole(tree: &Tree, path: &str) -> String {
    tree.read(&at(path), Lines::ALL).unwrap().into_content()
}

/// The lines of a text. A final newline starts no further line.
fn split(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.split('\n').collect();
    if lines.last() == Some(&"") {
        lines.pop();
    }
    lines
}

fn page_of(text: &str, first: usize, count: usize) -> (String, Vec<String>) {
    let lines = split(text);
    let page: Vec<&str> = lines.iter().skip(first).take(count).copied().collect();
    let mut content = page.join("\n");
    if !page.is_empty() && first + page.len() == lines.len() && text.ends_with('\n') {
        content.push('\n');
    }
    (content, page.into_iter().map(str::to_owned).collect())
}

/// The text after lines `start..end`, counted from 0, were replaced. `None` if they start after its
/// end.
fn replaced(text: &str, start: usize, end: usize, body: &str) -> Option<String> {
    let lines = split(text);
    if start > lines.len() {
        return None;
    }
    if text.is_empty() {
        return Some(body.to_owned());
    }
    let mut all: Vec<&str> = lines[..start].to_vec();
    if !body.is_empty() {
        all.push(body.strip_suffix('\n').unwrap_or(body));
    }
    all.extend(&lines[end.clamp(start, lines.len())..]);
    let end = if text.ends_with('\n') && !all.is_empty() { "\n" } else { "" };
    Some(all.join("\n") + end)
}

proptest! {
    #[test]
    fn page_matches_model(text in "[ab\né\r]{0,30}", offset in 1_u64..12, limit in 1_u64..12) {
        let fixture = Fixture::new();
        let tree = fixture.workspace.tree().unwrap();
        tree.write(&at("files/a"), text.as_bytes()).unwrap();
        let read = |offset, limit| {
            let read = tree.read(&at("files/a"), Lines::page(offset, limit).unwrap()).unwrap();
            (read.content().to_owned(), read.lines().map(str::to_owned).collect::<Vec<_>>())
        };
        let first = usize::try_from(offset).unwrap() - 1;
        let count = usize::try_from(limit).unwrap();
        prop_assert_eq!(read(None, None), (text.clone(), split(&text).into_iter().map(str::to_owned).collect()));
        prop_assert_eq!(read(Some(offset), Some(limit)), page_of(&text, first, count));
        prop_assert_eq!(read(Some(offset), None), page_of(&text, first, usize::MAX));
        prop_assert_eq!(read(None, Some(limit)), page_of(&text, 0, count));
    }

    #[test]
    fn edit_replaces_expected_count_or_nothing(text in "[ab\n]{0,30}", old in "[ab\n]{1,3}", new in "[abc]{0,3}", expected in 0_u64..4) {
        let fixture = Fixture::new();
        let tree = fixture.workspace.tree().unwrap();
        tree.write(&at("files/a"), text.as_bytes()).unwrap();
        let found = text.matches(old.as_str()).count() as u64;
        let outcome = tree.edit(&at("files/a"), &old, &new, expected).and_then(Change::apply);
        if found == expected {
            prop_assert!(outcome.is_ok());
            prop_assert_eq!(whole(&tree, "files/a"), text.replace(old.as_str(), &new));
        } else {
            prop_assert_eq!(files_error(outcome), FilesError::Mismatch { old, found, expected });
            prop_assert_eq!(whole(&tree, "files/a"), text);
        }
    }

    #[test]
    fn range_edit_matches_model(
        text in "[ab\n]{0,20}",
        body in "[xy\n]{0,6}",
        start in proptest::option::of(1_u64..9),
        end in proptest::option::of(1_u64..9),
    ) {
        let fixture = Fixture::new();
        let tree = fixture.workspace.tree().unwrap();
        tree.write(&at("files/a"), text.as_bytes()).unwrap();
        match Lines::range(start, end) {
            Err(files_error) => {
                prop_assert!(end.unwrap() < start.unwrap());
                prop_assert_eq!(files_error, FilesError::Backwards);
            }
            Ok(lines) => {
                let index = |line: u64| usize::try_from(line).unwrap();
                let expected = replaced(&text, index(start.unwrap_or(1)) - 1, end.map_or(usize::MAX, index), &body);
                let outcome = tree.replace_lines(&at("files/a"), Some(lines), body.as_bytes()).and_then(Change::apply);
                match &expected {
                    Some(_) => prop_assert!(outcome.is_ok(), "{outcome:?}"),
                    None => prop_assert_eq!(files_error(outcome), FilesError::PastEnd { line: start.unwrap() }),
                }
                prop_assert_eq!(whole(&tree, "files/a"), expected.unwrap_or(text));
            }
        }
    }
}

/// Several strides of the index long, with lines across their borders.
fn long_text() -> String {
    let mut state = 1_u64;
    let mut text = String::new();
    for number in 0..40_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let length = usize::try_from((state >> 33) % 60).unwrap();
        text.push_str(&format!("{number}{}\n", "é".repeat(length)));
    }
    // One line is longer than a stride.
    text.push_str(&"x".repeat(600_000));
    text + "\nlast"
}

#[test]
fn pages_of_long_file_match_model() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    let text = long_text();
    tree.write(&at("files/long"), text.as_bytes()).unwrap();
    for round in 0..2 {
        for first in [0_usize, 1, 39_999, 40_000, 40_001, 40_002, 20_000, 5, 12_345, 33_333] {
            let lines = Lines::page(Some(first as u64 + 1), Some(7)).unwrap();
            let read = tree.read(&at("files/long"), lines).unwrap();
            let found: Vec<String> = read.lines().map(str::to_owned).collect();
            assert_eq!((read.content().to_owned(), found), page_of(&text, first, 7), "round {round}, line {first}");
        }
    }
    // Replacing lines in the middle leaves the others unchanged.
    let lines = Lines::range(Some(20_001), Some(20_003)).unwrap();
    tree.replace_lines(&at("files/long"), Some(lines), b"new").and_then(Change::apply).unwrap();
    assert_eq!(whole(&tree, "files/long"), replaced(&text, 20_000, 20_003, "new").unwrap());
}

#[test]
fn changed_file_is_counted_again() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    for round in 0..20_u64 {
        let line = "y".repeat(usize::try_from(round).unwrap() + 1);
        let text = format!("{line}\n").repeat(100_000);
        std::fs::write(fixture.host_path("files/changing"), &text).unwrap();
        crate::fixture::set_owner(&fixture.host_path("files/changing"));
        let read = tree.read(&at("files/changing"), Lines::page(Some(99_999), None).unwrap()).unwrap();
        assert_eq!(read.content(), format!("{line}\n{line}\n"));
    }
}

#[test]
fn binary_or_too_large_text_is_rejected() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    tree.write(&at("files/bytes"), b"good\n\xff\xfe\ngood\n").unwrap();
    assert_eq!(files_error(tree.read(&at("files/bytes"), Lines::ALL)), FilesError::NotText("files/bytes".to_owned()));
    // Only the requested page must be UTF-8.
    assert_eq!(tree.read(&at("files/bytes"), Lines::page(Some(3), None).unwrap()).unwrap().content(), "good\n");
    let sparse = std::fs::File::create(fixture.host_path("files/huge")).unwrap();
    sparse.set_len(65 << 20).unwrap();
    crate::fixture::set_owner(&fixture.host_path("files/huge"));
    for lines in [Lines::ALL, Lines::page(Some(1), Some(1)).unwrap()] {
        assert!(matches!(files_error(tree.read(&at("files/huge"), lines)), FilesError::TooLarge { .. }));
    }
    assert!(matches!(
        files_error(tree.edit(&at("files/huge"), "a", "b", 1).and_then(Change::apply)),
        FilesError::TooLarge { .. }
    ));
    sparse.set_len(1 << 40).unwrap();
    let far = Lines::page(Some(2), Some(1)).unwrap();
    assert!(matches!(files_error(tree.read(&at("files/huge"), far)), FilesError::TooLarge { .. }));
    // An edit whose result is too large changes nothing.
    tree.write(&at("files/short"), &[b'a'; 4096]).unwrap();
    let outcome = tree.edit(&at("files/short"), "a", &"b".repeat(1 << 20), 4096).and_then(Change::apply);
    assert!(matches!(files_error(outcome), FilesError::TooLarge { .. }));
    assert_eq!(whole(&tree, "files/short"), "a".repeat(4096));
}

#[test]
fn errors_of_edits_have_contract_text() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    tree.write(&at("files/a"), b"one two one").unwrap();
    let message = |outcome| files_error(outcome).to_string();
    assert_eq!(
        message(tree.edit(&at("files/a"), "one", "1", 1).and_then(Change::apply)),
        "Edit Mismatch: 'one' found 2 times, but expected 1 times. Please refine your search string."
    );
    assert_eq!(
        message(tree.edit(&at("files/a"), "", "1", 1).and_then(Change::apply)),
        "Security Error: 'old_string' cannot be empty for replacement operation."
    );
    assert_eq!(message(tree.edit(&at("files/b"), "x", "1", 1).and_then(Change::apply)), "Path not found: files/b");
    assert_eq!(
        message(tree.replace_lines(&at("files/b"), Some(Lines::ALL), b"x").and_then(Change::apply)),
        "Path not found: files/b"
    );
    for (offset, limit) in [(Some(0), None), (None, Some(0))] {
        assert!(matches!(Lines::page(offset, limit), Err(FilesError::CountFromOne { .. })));
    }
    for (start, end) in [(Some(0), None), (None, Some(0)), (Some(0), Some(0))] {
        assert!(matches!(Lines::range(start, end), Err(FilesError::CountFromOne { .. })));
    }
}
