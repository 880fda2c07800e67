//! The table at the end: one line per probe, one column per mode, and the counts.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tests::support::actor::Skip;

use crate::probe::{Column, Fault, Probe, Verdict};

/// Probes in other suites: number, title, suite, test. The tests are looked up before the suite
/// runs.
const ELSEWHERE: &[(&str, &str, &str, &str)] = &[
    (
        "H1",
        "links out of an allowed directory",
        "tests/paths/hostile.rs",
        "link_out_of_allowed_directory_is_not_followed",
    ),
    (
        "H2",
        "detours, variables and patterns on the way to a path",
        "tests/paths/hostile.rs",
        "indirect_paths_are_resolved_and_asked",
    ),
    ("H3", "paths that the parser cannot resolve", "tests/paths/hostile.rs", "unparsed_path_is_not_in_box"),
    (
        "H4",
        "an allowed path that becomes a link",
        "tests/paths/hostile.rs",
        "allowed_path_replaced_by_link_shows_nothing",
    ),
    ("H5", "another user's allowed paths", "tests/paths/hostile.rs", "entry_of_other_user_is_not_in_box"),
    (
        "H6",
        "moving a parent of the masked data directory",
        "tests/paths/hostile.rs",
        "parent_of_masked_data_cannot_be_moved",
    ),
    ("H7", "data directory mounted a second time", "tests/paths/hostile.rs", "bind_mount_of_data_is_hidden"),
    (
        "H8",
        "connect to UNIX sockets of the host, without path control",
        "tests/paths/uncontrolled.rs",
        "host_sockets_are_unreachable",
    ),
    (
        "H9",
        "connect to UNIX sockets below an allowed path",
        "tests/paths/reach.rs",
        "socket_below_allowed_path_is_unreachable",
    ),
    ("H10", "a user allows paths with keys", "tests/paths/asking.rs", "user_cannot_allow_paths_with_keys"),
    (
        "J11",
        "a socket that never answers a ping",
        "tests/approvals/sockets.rs",
        "socket_that_does_not_answer_ping_is_closed",
    ),
    ("J14", "an approval used again", "tests/approvals/answers.rs", "second_answer_is_rejected"),
    ("J15", "an approval after its deadline", "tests/approvals/answers.rs", "expired_approval_denies_exec"),
    ("J16", "an approval used for another command", "tests/paths/asking.rs", "answer_does_not_cover_changed_request"),
    ("J16", "an approval under another policy", "tests/paths/asking.rs", "changed_policy_voids_answer"),
    (
        "J16",
        "an approval with one part of the action changed",
        "crates/ringwall-service/src/paths/question.rs",
        "digest_covers_command_directory_variables_paths_files_and_policy",
    ),
    (
        "J17",
        "an agent that approves its own request",
        "tests/approvals/permissions.rs",
        "user_answers_for_own_agents_only_and_agent_never",
    ),
    ("J18", "two who answer at once", "tests/approvals/answers.rs", "concurrent_answers_accept_exactly_one"),
    ("J18", "a caller who hangs up", "tests/approvals/answers.rs", "approved_exec_runs_once_after_caller_disconnects"),
    (
        "J21",
        "a thousand idle sockets and a thousand streams",
        "tests/approvals/load.rs",
        "command_among_a_thousand_idle_sockets_is_served",
    ),
];

/// The results of all tests, filled in while they run.
#[derive(Default)]
pub(crate) struct Summary {
    results: Mutex<BTreeMap<(&'static str, &'static str), Entry>>,
}

#[derive(Clone)]
struct Entry {
    word: &'static str,
    detail: String,
}

impl Summary {
    pub(crate) fn note(&self, probe: &Probe, column: Column, verdict: &Verdict) {
        let (word, detail) = match verdict {
            Ok(seen) => ("held", seen.clone()),
            Err(Fault::Broken(what)) => ("BROKEN", what.clone()),
            Err(Fault::Inconclusive(what)) => ("INCONCLUSIVE", what.clone()),
            Err(Fault::Skipped(skip)) => ("skipped", skip.reason().to_owned()),
            Err(Fault::Senseless(why)) => ("n/a", why.clone()),
        };
        if let Ok(mut results) = self.results.lock() {
            results.insert((probe.id, column.name()), Entry { word, detail });
        }
    }

    #[expect(clippy::print_stdout, reason = "the table is what the suite is run for")]
    pub(crate) fn print(&self, probes: &[Probe]) {
        let Ok(results) = self.results.lock() else {
            return;
        };
        println!("{:<5} {:<62} {:<13} {:<13} served", "probe", "title", "root", "rootless");
        for probe in probes {
            let cells = Column::ALL.map(|column| results.get(&(probe.id, column.name())));
            if cells.iter().all(Option::is_none) {
                continue;
            }
            let [root, rootless, served] = cells.map(|entry| entry.map_or("-", |entry| entry.word));
            println!("{:<5} {:<62} {root:<13} {rootless:<13} {served}", probe.id, probe.title);
        }
        println!("\nwhat was seen:");
        for ((id, mode), entry) in results.iter() {
            println!("{id}::{mode}: {}: {}", entry.word, entry.detail);
        }
        println!("\nprobes of served requests and allowed paths, tried where their servers are:");
        for (id, title, place, name) in ELSEWHERE {
            println!("{id:<5} {title:<62} {place} {name}");
        }
        let count = |words: &[&str]| results.values().filter(|entry| words.contains(&entry.word)).count();
        println!("\n{} skipped, {} not asked in their column", count(&["skipped"]), count(&["n/a"]));
        println!("{} passed, {} failed", count(&["held"]), count(&["BROKEN", "INCONCLUSIVE"]));
    }
}

/// True if every probe listed as tested elsewhere is a test there.
pub(crate) fn check_elsewhere() -> Result<(), String> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (id, _, place, name) in ELSEWHERE {
        let source = std::fs::read_to_string(root.join(place)).map_err(|error| format!("{place}: {error}"))?;
        if !source.contains(&format!("fn {name}(")) {
            return Err(format!("{id} is said to be {name} in {place}, which does not have it"));
        }
    }
    Ok(())
}

/// With `CI` set only skips that no package can prevent are allowed.
pub(crate) fn may_skip(skip: &Skip) -> bool {
    let complete = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    matches!(skip, Skip::Impossible(_)) || !complete
}
