//! Default settings: the limits and command lists of the contracts.

use std::collections::BTreeSet;

use serde_json::json;

use crate::fixture::Fixture;
use crate::zips::{Entry, zip};

const LINE: &str = "python python3 bash sh cmd ls cat echo grep sed mkdir touch cp mv rm tee find chmod xargs curl";
const FILTERS: &str = "wc head tail sort uniq cut tr awk diff printf date pwd basename dirname stat seq sleep";
const ARGV: &str =
    "python3 python pip pip3 bash sh ls cat grep sed awk echo cp mv rm mkdir find curl touch tee chmod xargs";
const MIB: u32 = 1 << 20;

/// The shared server changes no other settings than the limits of concurrent execs.
pub(crate) fn default_settings_match_contracts(fixture: &Fixture) {
    let settings = fixture.server().ask("GET", "/settings", None).expect(200);
    assert_eq!(settings["files"], json!({ "upload_max_mb": 50 }));
    let skills = &settings["skills"];
    assert_eq!((&skills["unpacked_max_mb"], &skills["entries_max"]), (&json!(512), &json!(20_000)), "{skills}");
    assert_eq!(settings["workspace"], json!({ "quota_mb": 1024, "quota_files": 200_000 }));
    for (list, names) in [("allowed", LINE), ("allowed_filters", FILTERS), ("allowed_argv", ARGV)] {
        let found: BTreeSet<&str> =
            settings["commands"][list].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(found, names.split(' ').collect(), "{list}");
    }
}

/// An archive may declare 512 MiB. One that declares up to this is only rejected because its data
/// is shorter.
pub(crate) fn archive_beyond_512_mib_is_rejected(fixture: &Fixture) {
    let agent = fixture.workspace();
    let head = b"name: s\n";
    let claiming =
        |size: u32| zip(&[Entry::file("s/SKILL.md", head), Entry { size, ..Entry::deflated("s/data", b"much less") }]);
    let most = 512 * MIB - u32::try_from(head.len()).unwrap();
    let message = agent.push(&claiming(most + 1)).expect_error(413);
    assert!(message.contains("512 MiB") || message.contains(&(512 * MIB).to_string()), "{message}");
    let message = agent.push(&claiming(most)).expect_error(400);
    assert!(message.contains("shorter"), "{message}");
    assert_eq!(agent.skill_names(), [""; 0]);
}
