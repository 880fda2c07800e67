//! Holds the rules of the house that no compiler holds: which crate may use which, what a pure crate may not mention,
//! where `unsafe` lives, how a file opens and how long it may grow.
//!
//! It reads the source tree and `cargo metadata`, and never builds or runs anything. Every rule is a function of what was
//! read, so that each has tests of its own showing that it can fail; a rule that cannot fail holds nothing.

use std::error::Error;
use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, MetadataCommand};

use source::{Finding, Source};

#[path = "tidy/crates.rs"]
mod crates;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/versions.rs"]
mod versions;

type Outcome = Result<(), Box<dyn Error>>;

#[test]
fn every_file_opens_with_its_purpose() -> Outcome {
    each_source(rules::opens_with_its_purpose)
}

#[test]
fn every_file_stays_short() -> Outcome {
    each_source(rules::stays_short)
}

#[test]
fn every_module_has_a_telling_name() -> Outcome {
    each_source(rules::has_a_telling_name)
}

#[test]
fn no_test_is_ignored() -> Outcome {
    each_source(rules::skips_no_test)
}

#[test]
fn unsafe_is_in_one_file() -> Outcome {
    assert_none(&rules::keeps_unsafe_at_home(&read_sources()?));
    Ok(())
}

#[test]
fn the_decision_is_pure() -> Outcome {
    each_source(rules::is_pure)
}

#[test]
fn the_doors_know_the_jail_in_one_place() -> Outcome {
    each_source(rules::knows_the_jail_in_one_place)
}

#[test]
fn the_rooms_use_only_whom_they_may() -> Outcome {
    let used = crates::members_used(&read_metadata()?);
    assert_none(&crates::check_edges(crates::EDGES, &used));
    Ok(())
}

#[test]
fn the_rooms_are_without_what_they_promise_to_be_without() -> Outcome {
    let reached = crates::crates_reached(&read_metadata()?);
    // Something that is surely linked: a walk that finds nothing would make every promise look kept.
    assert!(reached.get("ringwall-jail").is_some_and(|crates| crates.contains("rustix")), "{reached:?}");
    assert_none(&crates::check_absent(crates::ABSENT, &reached));
    Ok(())
}

#[test]
fn parts_of_a_release_have_one_version() -> Outcome {
    let metadata = read_metadata()?;
    let packages: Vec<_> =
        metadata.workspace_packages().into_iter().filter(|package| package.name != "tests").collect();
    let expected = packages.iter().find(|package| package.name == "ringwall").ok_or("no crate `ringwall`")?;
    let mut parts: Vec<(&str, Option<String>)> =
        packages.iter().map(|package| (package.name.as_str(), Some(package.version.to_string()))).collect();
    for (file, pointer) in [("web/package.json", "/version"), ("docs/openapi.json", "/info/version")] {
        let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(root().join(file))?)?;
        parts.push((file, document.pointer(pointer).and_then(|version| version.as_str()).map(str::to_owned)));
    }
    let changelog = std::fs::read_to_string(root().join("CHANGELOG.md"))?;
    parts.push(("CHANGELOG.md", versions::newest_section(&changelog)));
    assert_none(&versions::are_equal(&expected.version.to_string(), &parts));
    Ok(())
}

fn each_source(rule: impl Fn(&Source) -> Vec<Finding>) -> Outcome {
    assert_none(&read_sources()?.iter().flat_map(rule).collect::<Vec<_>>());
    Ok(())
}

fn assert_none(findings: &[Finding]) {
    let list: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{} broken rules\n{}", list.len(), list.join("\n"));
}

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap_or(tests).to_owned()
}

/// Everything written by hand, as far as a rule speaks of it: sources, scripts, and the two documents with a limit.
fn read_sources() -> Result<Vec<Source>, Box<dyn Error>> {
    let root = root();
    let mut sources = Vec::new();
    let mut waiting = vec![root.clone()];
    while let Some(directory) = waiting.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if entry.file_type()?.is_dir() {
                if !name.starts_with('.') && name != "target" && name != "node_modules" {
                    waiting.push(entry.path());
                }
                continue;
            }
            let path = entry.path().strip_prefix(&root)?.to_string_lossy().into_owned();
            let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
            let is_source = matches!(extension, "rs" | "py" | "c" | "sh" | "ts" | "tsx" | "css" | "html");
            let is_document = rules::MAX_DOCUMENT.iter().any(|(document, _)| *document == path);
            if is_source || is_document || path.starts_with("scripts/") {
                sources.push(Source::new(&path, &std::fs::read_to_string(entry.path())?));
            }
        }
    }
    sources.sort_by(|left, right| left.path.cmp(&right.path));
    assert!(
        sources.iter().any(|source| source.path == rules::HOME_OF_DISPATCH),
        "the tree at {} was not read",
        root.display()
    );
    Ok(sources)
}

/// Only this machine's platform, so that nothing has to be fetched that the build did not fetch already.
fn read_metadata() -> Result<Metadata, cargo_metadata::Error> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--filter-platform".to_owned(), platform])
        .exec()
}
