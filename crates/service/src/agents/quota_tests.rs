//! Figures against real directories: what is believed, what is looked at again, and what is said.

use super::*;
use workspace::{Owner, Workspaces};

const MOST: Usage = Usage { bytes: 100 * MIB, files: 50 };

struct Lab {
    directory: tempfile::TempDir,
    workspaces: Workspaces,
    quotas: Quotas,
}

impl Lab {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&directory.path().join("w")).unwrap();
        Self { directory, workspaces, quotas: Quotas::default() }
    }

    fn disk(&self, agent: &str) -> Disk {
        let workspace = self.workspaces.workspace(&"u".parse().unwrap(), &agent.parse().unwrap(), Owner::server());
        let workspace = workspace.unwrap();
        workspace.tree().unwrap();
        Disk {
            quotas: self.quotas.clone(),
            key: ("u".parse().unwrap(), agent.parse().unwrap(), None),
            workspace,
            most: MOST,
        }
    }

    fn write(&self, name: &str, size: u64) {
        std::fs::write(self.directory.path().join("w/u/a/files").join(name), vec![1; usize::try_from(size).unwrap()])
            .unwrap();
    }
}

fn message(outcome: Result<(), Error>) -> String {
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), "DISK_QUOTA");
    error.to_string()
}

#[test]
fn what_is_added_counts_at_once_and_a_refusal_is_never_older_than_the_last_change() {
    let lab = Lab::new();
    let disk = lab.disk("a");
    let half = Usage { bytes: 60 * MIB, files: 1 };
    disk.adding(half, || Ok(())).unwrap();
    assert_eq!(disk.known().unwrap().usage, half, "what was said to be written");
    // By the figure there is no room. It is not fresh, so it is looked, and there is: nothing was written.
    disk.require(half).unwrap();
    assert_eq!(disk.known().unwrap().usage, Usage::default());
    lab.write("large", 60 * MIB);
    disk.require(half).unwrap();
    disk.add(half);
    let words = message(disk.require(half));
    assert_eq!(
        words,
        "The workspace is full: it takes 60.0 MiB of the 100.0 MiB that it may take. This needs 60.0 MiB more. Delete \
         what is not needed, or have an operator raise workspace.quota_mb."
    );
    std::fs::remove_file(lab.directory.path().join("w/u/a/files/large")).unwrap();
    disk.shrink();
    disk.require(half).unwrap();
}

#[test]
fn names_count_too_and_the_look_stops_at_the_first_that_is_too_many() {
    let lab = Lab::new();
    let disk = lab.disk("a");
    (0..MOST.files).for_each(|number| lab.write(&number.to_string(), 0));
    disk.require(Usage::default()).unwrap();
    let words = message(disk.require(Usage::of_file(1)));
    assert!(words.starts_with("The workspace is full: it has 50 of the 50 files and directories"), "{words}");
    assert!(words.contains("This needs 1 more.") && words.ends_with("raise workspace.quota_files."), "{words}");
    (100..200).for_each(|number| lab.write(&number.to_string(), 0));
    disk.add(Usage::of_file(0));
    let words = message(disk.require(Usage::default()));
    assert!(words.starts_with("The workspace is full: it has more than 50 of the 50 files"), "{words}");
    assert!(!words.contains("more."), "{words}");
    assert_eq!(disk.known().unwrap().usage.files, 51);
}

#[test]
fn a_figure_is_doubted_when_the_file_system_lost_more_than_there_was_left() {
    let lab = Lab::new();
    let disk = lab.disk("a");
    let figure = Figure { free_bytes: 1000 * MIB, usage: half(), ..disk.measure().unwrap() };
    for (free, expected) in [(1000, false), (2000, false), (960, false), (950, false), (949, true), (0, true)] {
        assert_eq!(figure.is_doubtful(free * MIB, MOST), expected, "{free}");
    }
    // What takes more than it may has nothing left.
    let full = Figure { usage: Usage { bytes: 500 * MIB, files: 1 }, ..figure };
    assert!(full.is_doubtful(999 * MIB, MOST) && !full.is_doubtful(1000 * MIB, MOST));
}

fn half() -> Usage {
    Usage { bytes: 50 * MIB, files: 1 }
}

#[test]
fn looks_are_rare_where_they_take_long() {
    let lab = Lab::new();
    let figure = lab.disk("a").measure().unwrap();
    let took = |took| Figure { took: Duration::from_millis(took), ..figure }.rest().as_millis();
    assert_eq!([took(0), took(12), took(13), took(1000)], [250, 250, 260, 20_000]);
}

#[test]
fn one_look_is_planned_for_many_execs_and_a_change_during_it_is_not_lost() {
    let lab = Lab::new();
    let disk = lab.disk("a");
    assert_eq!(disk.plan(), None, "what is not known is measured when it is asked for");
    disk.measure().unwrap();
    assert!(disk.plan().is_some() && disk.plan().is_none());
    assert!(!disk.known().unwrap().is_settled());
    disk.unplan();
    disk.measure().unwrap();
    assert!(disk.known().unwrap().is_settled() && disk.plan().is_some());
}

#[test]
fn the_oldest_figures_are_forgotten() {
    let lab = Lab::new();
    let disk = lab.disk("a");
    let figure = disk.measure().unwrap();
    for number in 1..KNOWN_MOST {
        let key = ("u".parse().unwrap(), format!("n{number}").parse().unwrap(), None);
        lab.quotas.lock().insert(key, Figure { begun: Instant::now(), ..figure });
    }
    let other = lab.disk("b");
    other.measure().unwrap();
    assert_eq!(lab.quotas.lock().len(), KNOWN_MOST);
    assert!(disk.known().is_none() && other.known().is_some());
    disk.add(half());
    assert!(disk.known().is_none(), "nothing is known of it by a part");
}
