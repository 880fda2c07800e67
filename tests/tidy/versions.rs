//! The parts of a release have one version: the crates, the web package, the OpenAPI document and the newest section of
//! the changelog.

use crate::source::{Finding, finding};

/// `expected` is the version of the binary's crate. A part without a version is a finding too.
pub(crate) fn are_equal(expected: &str, parts: &[(&str, Option<String>)]) -> Vec<Finding> {
    let remedy = "Set the version of Cargo.toml's workspace.package in all of them.";
    let differs = parts.iter().filter(|(_, version)| version.as_deref() != Some(expected));
    differs
        .map(|(file, version)| {
            let found = version.as_deref().unwrap_or("none");
            finding(file, 1, format!("the version is {found}, the binary's is {expected}"), remedy)
        })
        .collect()
}

/// The first heading of the second level: `## 0.1.0`.
pub(crate) fn newest_section(changelog: &str) -> Option<String> {
    changelog.lines().find_map(|line| line.strip_prefix("## ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_or_missing_version_is_found() {
        let parts = [("a", Some("0.1.0".to_owned())), ("b", Some("0.2.0".to_owned())), ("c", None)];
        let found = are_equal("0.1.0", &parts);
        assert_eq!(found.iter().map(|finding| finding.file.as_str()).collect::<Vec<_>>(), ["b", "c"]);
    }

    #[test]
    fn newest_section_is_the_first() {
        assert_eq!(newest_section("# Changelog\n\n## 0.2.0\n\n## 0.1.0\n").as_deref(), Some("0.2.0"));
        assert_eq!(newest_section("# Changelog\n"), None);
    }
}
