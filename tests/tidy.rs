//! Rules about the source tree that no compiler checks: which crate may use which, how large a cycle of modules may be,
//! what a pure crate may not mention, in which file `unsafe` is allowed, how a file opens and how long it may be.
//!
//! The input is the source tree and `cargo metadata`; nothing is built or run. Each rule is a function of its input and has
//! a unit test in which it fails.

use std::error::Error;
use std::path::{Path, PathBuf};

use cargo_metadata::{Metadata, MetadataCommand};

use source::{Finding, Source};

#[path = "tidy/crates.rs"]
mod crates;
#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/versions.rs"]
mod versions;

type Outcome = Result<(), Box<dyn Error>>;

#[test]
fn files_open_with_their_purpose() -> Outcome {
    each_source(rules::opens_with_its_purpose)
}

#[test]
fn files_keep_their_length_limit() -> Outcome {
    each_source(rules::stays_short)
}

#[test]
fn modules_have_meaningful_names() -> Outcome {
    each_source(rules::has_a_meaningful_name)
}

#[test]
fn tests_are_not_ignored() -> Outcome {
    each_source(rules::skips_no_test)
}

#[test]
fn unsafe_is_in_one_file() -> Outcome {
    assert_none(&rules::keeps_unsafe_in_one_file(&read_sources()?));
    Ok(())
}

#[test]
fn pure_crates_do_no_io() -> Outcome {
    each_source(rules::is_pure)
}

#[test]
fn binary_names_the_jail_in_one_file() -> Outcome {
    each_source(rules::knows_the_jail_in_one_place)
}

#[test]
fn crates_use_only_allowed_crates() -> Outcome {
    let used = crates::members_used(&read_metadata()?);
    assert_none(&crates::check_edges(crates::EDGES, &used));
    Ok(())
}

#[test]
fn module_cycles_have_their_recorded_size() -> Outcome {
    assert_none(&modules::check_cycles(modules::LARGEST_CYCLES, &read_sources()?));
    Ok(())
}

#[test]
fn crates_link_no_forbidden_crate() -> Outcome {
    let reached = crates::crates_reached(&read_metadata()?);
    // An empty result would pass every check, so a crate that is certainly linked must be in it.
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

/// The files that the rules apply to: sources, scripts, and the two documents with a length limit.
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
        sources.iter().any(|source| source.path == rules::DISPATCH_FILE),
        "the tree at {} was not read",
        root.display()
    );
    Ok(sources)
}

/// Resolves for this platform only, so that cargo fetches no crate that the build did not need.
fn read_metadata() -> Result<Metadata, cargo_metadata::Error> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--filter-platform".to_owned(), platform])
        .exec()
}
