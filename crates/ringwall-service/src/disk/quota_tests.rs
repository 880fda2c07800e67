//! Figures against real directories: what is believed, what is looked at again, and what is said.

use super::*;
use ringwall_workspace::{Owner, Workspaces};

const MAX_COUNT: Usage = Usage { bytes: 100 * MIB, files: 50 };

struct Fixture {
    directory: tempfile::TempDir,
    workspaces: Workspaces,
    quotas: Quotas,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let workspaces = Workspaces::open(&directory.path().join("w")).unwrap();
        Self { directory, workspaces, quotas: Quotas::default() }
    }

    fn disk(&self, agent: &str) -> Disk {
        let workspace = self.workspaces.workspace(&"u".parse().unwrap(), &agent.parse().unwrap(), Owner::server());
        let workspace = workspace.unwrap();
        workspace.tree().unwrap();
        Disk::of_workspace(&self.quotas, &"u".parse().unwrap(), &agent.parse().unwrap(), &workspace, MAX_COUNT)
    }

    fn write(&self, name: &str, size: u64) {
        std::fs::write(self.directory.path().join("w/u/a/files").join(name), vec![1; usize::try_from(size).unwrap()])
            .unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.directory.path().join("w/u/a/files").join(name)).unwrap();
    }
}

fn message<T: std::fmt::Debug>(outcome: Result<T, Error>) -> String {
    let error = outcome.unwrap_err();
    assert_eq!(error.code(), "DISK_QUOTA");
    error.to_string()
}

#[test]
fn added_bytes_count_at_once_and_refusal_measures_again() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    let half = Usage { bytes: 60 * MIB, files: 1 };
    disk.adding(half, || Ok(())).unwrap();
    assert_eq!(disk.figure().unwrap().usage, half, "what was said to be written");
    // By the figure there is no room. It is not fresh, so it is looked, and there is: nothing was written.
    disk.reserve(half).unwrap();
    assert_eq!(disk.figure().unwrap().usage, Usage::default());
    fixture.write("large", 60 * MIB);
    disk.reserve(half).unwrap();
    disk.add(half);
    let words = message(disk.reserve(half));
    assert_eq!(
        words,
        "The workspace is full: it takes 60.0 MiB of the 100.0 MiB that it may take. This needs 60.0 MiB more. Delete \
         what is not needed, or have an operator raise workspace.quota_mb."
    );
    std::fs::remove_file(fixture.directory.path().join("w/u/a/files/large")).unwrap();
    disk.shrink();
    disk.reserve(half).unwrap();
}

#[test]
fn names_count_too_and_the_look_stops_at_the_first_that_is_too_many() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    (0..MAX_COUNT.files).for_each(|number| fixture.write(&number.to_string(), 0));
    let words = message(disk.reserve(Usage::of_file(1)));
    assert!(words.starts_with("The workspace is full: it has 50 of the 50 files and directories"), "{words}");
    assert!(words.contains("This needs 1 more.") && words.ends_with("raise workspace.quota_files."), "{words}");
    (100..200).for_each(|number| fixture.write(&number.to_string(), 0));
    disk.add(Usage::of_file(0));
    let words = message(disk.reserve(Usage::of_file(1)));
    assert!(words.starts_with("The workspace is full: it has more than 50 of the 50 files"), "{words}");
    assert_eq!(disk.figure().unwrap().usage.files, 51);
    // Whoever wants no more names is not refused for them.
    drop(disk.reserve(Usage { bytes: 1, files: 0 }).unwrap());
}

#[test]
fn a_figure_is_doubted_when_the_file_system_lost_more_than_there_was_left() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    let figure = Figure { free_bytes: 1000 * MIB, usage: half(), ..disk.measure(MAX_COUNT.files).unwrap() };
    for (free, expected) in [(1000, false), (2000, false), (960, false), (950, false), (949, true), (0, true)] {
        assert_eq!(figure.is_doubtful(free * MIB, MAX_COUNT), expected, "{free}");
    }
    // What takes more than it may has nothing left.
    let full = Figure { usage: Usage { bytes: 500 * MIB, files: 1 }, ..figure };
    assert!(full.is_doubtful(999 * MIB, MAX_COUNT) && !full.is_doubtful(1000 * MIB, MAX_COUNT));
}

fn half() -> Usage {
    Usage { bytes: 50 * MIB, files: 1 }
}

#[test]
fn looks_are_rare_where_they_take_long() {
    let fixture = Fixture::new();
    let figure = fixture.disk("a").measure(MAX_COUNT.files).unwrap();
    let took = |took| Figure { took: Duration::from_millis(took), ..figure }.rest().as_millis();
    assert_eq!([took(0), took(12), took(13), took(1000)], [250, 250, 260, 20_000]);
}

#[test]
fn one_look_is_planned_for_many_execs_and_a_change_during_it_is_not_lost() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    assert_eq!(disk.plan(), None, "what is not known is measured when it is asked for");
    disk.measure(MAX_COUNT.files).unwrap();
    assert!(disk.plan().is_some() && disk.plan().is_none());
    assert!(!disk.figure().unwrap().is_settled());
    disk.unplan();
    disk.measure(MAX_COUNT.files).unwrap();
    assert!(disk.figure().unwrap().is_settled() && disk.plan().is_some());
}

#[test]
fn the_oldest_figures_are_forgotten() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    let figure = disk.measure(MAX_COUNT.files).unwrap();
    for number in 1..MAX_KNOWN {
        let key = ("u".parse().unwrap(), format!("n{number}").parse().unwrap(), None);
        fixture.quotas.lock().figures.insert(key, Figure { begun: Instant::now(), ..figure });
    }
    let other = fixture.disk("b");
    other.measure(MAX_COUNT.files).unwrap();
    assert_eq!(fixture.quotas.lock().figures.len(), MAX_KNOWN);
    assert!(disk.figure().is_none() && other.figure().is_some());
    disk.add(half());
    assert!(disk.figure().is_none(), "nothing is known of it by a part");
}

#[test]
fn upload_in_progress_keeps_its_reservation() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    let mut first = disk.reserve(Usage { bytes: 40 * MIB, files: 0 }).unwrap();
    first.reach(half()).unwrap();
    let second = disk.reserve(half()).unwrap();
    let words = message(first.reach(Usage { bytes: 51 * MIB, files: 1 }));
    assert!(words.contains("it takes 100.0 MiB of the 100.0 MiB") && words.contains("needs 1.0 MiB more"), "{words}");
    // Nobody else is meant by it, and nothing at all needs no room.
    drop(fixture.disk("b").reserve(half()).unwrap());
    drop(disk.reserve(Usage::default()).unwrap());
    drop(second);
    first.reach(Usage { bytes: 51 * MIB, files: 1 }).unwrap();
    // It replaced something, so there is less of it than there was room for.
    first.settle(Usage { bytes: MIB, files: 0 });
    assert_eq!(disk.figure().unwrap().usage, Usage { bytes: MIB, files: 0 });
    assert!(fixture.quotas.lock().coming.is_empty(), "what was kept is given back");
    assert!(disk.adding(half(), || Err::<(), _>(Error::Stopping)).is_err());
    assert!(fixture.quotas.lock().coming.is_empty());
    drop(disk.reserve(Usage { bytes: 100 * MIB, files: 1 }).unwrap());
}

/// Of many who want a part at the same time, as many get it as there are parts.
#[test]
fn concurrent_reservations_never_exceed_quota() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    let wanted = Usage { bytes: 30 * MIB, files: 0 };
    let rooms: Vec<_> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| disk.reserve(wanted))).collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(rooms.iter().filter(|room| room.is_ok()).count(), 3);
}

#[test]
fn a_box_in_a_full_workspace_may_make_room_and_not_take_more() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    assert_eq!(disk.for_box().unwrap().bearable, MAX_COUNT);
    (0..700).for_each(|number| fixture.write(&number.to_string(), 0));
    fixture.write("large", 120 * MIB);
    disk.shrink();
    let words = message(disk.for_box());
    assert!(words.contains("has more than 50 of the 50 files"), "names are counted to ten times the share: {words}");
    (0..600).for_each(|number| fixture.remove(&number.to_string()));
    disk.shrink();
    let full = disk.for_box().unwrap();
    assert_eq!(full.most, MAX_COUNT, "the words are about the share");
    assert_eq!(full.bearable.files, 101 + LEEWAY.files);
    let bearable = full.bearable.bytes;
    assert!((121 * MIB..122 * MIB).contains(&bearable), "{bearable}");
    assert!(full.measure(MAX_COUNT.files).unwrap().usage.fits(full.bearable));
    // Each may leave a little more than it found, but not for ever.
    fixture.write("more", 95 * MIB);
    disk.shrink();
    assert!(disk.for_box().unwrap().bearable.bytes >= 215 * MIB);
    fixture.write("too much", 10 * MIB);
    disk.shrink();
    message(disk.for_box());
    // Room that was made is a new beginning.
    ["large", "more"].into_iter().for_each(|name| fixture.remove(name));
    (600..700).for_each(|number| fixture.remove(&number.to_string()));
    disk.shrink();
    assert_eq!(disk.for_box().unwrap().bearable, MAX_COUNT);
    fixture.write("large", 220 * MIB);
    disk.shrink();
    assert!(disk.for_box().unwrap().bearable.bytes >= 230 * MIB);
}

#[test]
fn commands_on_record_count_as_the_workspaces_own() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    let (user, agent) = ("u".parse().unwrap(), "a".parse().unwrap());
    let check = |size| fixture.quotas.check_room_on_record(&user, &agent, size, MAX_COUNT);
    fixture.quotas.set_recorded(&user, &agent, 70 * MIB);
    assert!(check(20 * MIB).is_ok());
    let refused = message(check(40 * MIB));
    assert!(
        refused.contains("takes 70.0 MiB of the 100.0 MiB") && refused.contains("retention.execs_days"),
        "{refused}"
    );
    // Files have the rest, and files and record together are one figure.
    let half = Usage { bytes: 20 * MIB, files: 1 };
    disk.reserve(half).unwrap();
    fixture.write("large", 20 * MIB);
    disk.shrink();
    assert!(message(disk.reserve(Usage { bytes: 40 * MIB, files: 1 })).contains("takes 90.0 MiB"));
    assert!(message(check(20 * MIB)).contains("takes 90.0 MiB"));
    // Retention removes commands, and the room is there again.
    fixture.quotas.set_recorded(&user, &agent, 0);
    assert!(check(20 * MIB).is_ok());
    assert_eq!(disk.figure().unwrap().usage.bytes, 20 * MIB);
}
