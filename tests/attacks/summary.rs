//! The table at the end: one line per probe, one column per way in which boxes come about, and the counts on a line of their own.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tests::support::actor::Skip;

use crate::probe::{Column, Fault, Probe, Verdict};

/// What every trial came to, filled in while they run.
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
        let count = |words: &[&str]| results.values().filter(|entry| words.contains(&entry.word)).count();
        println!("\n{} skipped, {} not asked in their column", count(&["skipped"]), count(&["n/a"]));
        println!("{} passed, {} failed", count(&["held"]), count(&["BROKEN", "INCONCLUSIVE"]));
    }
}

/// Whether a skip may stand, or the suite has to be complete here.
pub(crate) fn may_skip(skip: &Skip) -> bool {
    let complete = std::env::var("CI").is_ok_and(|value| value == "true" || value == "1");
    matches!(skip, Skip::Impossible(_)) || !complete
}
