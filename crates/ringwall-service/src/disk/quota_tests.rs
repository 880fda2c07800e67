//! Quotas against real directories: which figures are used, when they are measured again, messages.

use super::*;
use ringwall_workspace::{Owner, Workspaces};

const QUOTA: Usage = Usage { bytes: 100 * MIB, files: 50 };

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
        Disk::of_workspace(&self.quotas, &"u".parse().unwrap(), &agent.parse().unwrap(), &workspace, QUOTA)
    }

    fn write(&self, name: &str, size: u64) {
        std::fs::write(self.directory.path().join("w/u/a/files").join(name), vec![1; usize::try_from(size).unwrap()])
            .unwrap();
    }

    fn remove(&self, name: &str) {
        std::fs::remove_file(self.directory.path().join("w/u/a/files").join(name)).unwrap();
    }
}

/// Replaces the known figure. Otherwise the free space of the disk decides whether the figure is
/// doubted, and other processes of the machine change that.
fn measure(disk: &Disk) {
    disk.measure(10 * QUOTA.files).unwrap();
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
    assert_eq!(disk.figure().unwrap().usage, half, "the reported growth");
    // The figure has no room but is stale. The new measurement finds room, because nothing was written.
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
fn file_count_above_quota_is_refused_and_counting_stops() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    (0..QUOTA.files).for_each(|number| fixture.write(&number.to_string(), 0));
    let words = message(disk.reserve(Usage::of_file(1)));
    assert!(words.starts_with("The workspace is full: it has 50 of the 50 files and directories"), "{words}");
    assert!(words.contains("This needs 1 more.") && words.ends_with("raise workspace.quota_files."), "{words}");
    (100..200).for_each(|number| fixture.write(&number.to_string(), 0));
    disk.add(Usage::of_file(0));
    let words = message(disk.reserve(Usage::of_file(1)));
    assert!(words.starts_with("The workspace is full: it has more than 50 of the 50 files"), "{words}");
    assert_eq!(disk.figure().unwrap().usage.files, 51);
    // A request without new files is not refused for their number.
    drop(disk.reserve(Usage { bytes: 1, files: 0 }).unwrap());
}

#[test]
fn figure_is_doubtful_after_large_loss_of_free_space() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    let figure = Figure { free_bytes: 1000 * MIB, usage: half(), ..disk.measure(QUOTA.files).unwrap() };
    for (free, expected) in [(1000, false), (2000, false), (960, false), (950, false), (949, true), (0, true)] {
        assert_eq!(figure.is_doubtful(free * MIB, QUOTA), expected, "{free}");
    }
    // An exceeded quota has nothing left.
    let full = Figure { usage: Usage { bytes: 500 * MIB, files: 1 }, ..figure };
    assert!(full.is_doubtful(999 * MIB, QUOTA) && !full.is_doubtful(1000 * MIB, QUOTA));
}

fn half() -> Usage {
    Usage { bytes: 50 * MIB, files: 1 }
}

#[test]
fn pause_grows_with_duration_of_measurement() {
    let fixture = Fixture::new();
    let figure = fixture.disk("a").measure(QUOTA.files).unwrap();
    let took = |took| Figure { took: Duration::from_millis(took), ..figure }.pause().as_millis();
    assert_eq!([took(0), took(12), took(13), took(1000)], [250, 250, 260, 20_000]);
}

#[test]
fn scheduled_measurement_is_merged_and_keeps_later_change() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    assert_eq!(disk.schedule(), None, "an unknown workspace is measured on demand");
    disk.measure(QUOTA.files).unwrap();
    assert!(disk.schedule().is_some() && disk.schedule().is_none());
    assert!(!disk.figure().unwrap().is_settled());
    disk.unschedule();
    disk.measure(QUOTA.files).unwrap();
    assert!(disk.figure().unwrap().is_settled() && disk.schedule().is_some());
}

#[test]
fn figures_above_limit_replace_oldest() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    let figure = disk.measure(QUOTA.files).unwrap();
    for number in 1..MAX_KNOWN {
        let key = ("u".parse().unwrap(), format!("n{number}").parse().unwrap(), None);
        fixture.quotas.known.lock().figures.insert(key, Figure { begun: Instant::now(), ..figure });
    }
    let other = fixture.disk("b");
    other.measure(QUOTA.files).unwrap();
    assert_eq!(fixture.quotas.known.lock().figures.len(), MAX_KNOWN);
    assert!(disk.figure().is_none() && other.figure().is_some());
    disk.add(half());
    assert!(disk.figure().is_none(), "a change alone creates no figure");
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
    // Other workspaces are not affected, and an empty request always succeeds.
    drop(fixture.disk("b").reserve(half()).unwrap());
    drop(disk.reserve(Usage::default()).unwrap());
    drop(second);
    first.reach(Usage { bytes: 51 * MIB, files: 1 }).unwrap();
    // The upload replaced a file, so the usage grew by less than the reservation.
    first.settle(Usage { bytes: MIB, files: 0 });
    assert_eq!(disk.figure().unwrap().usage, Usage { bytes: MIB, files: 0 });
    assert!(fixture.quotas.known.lock().reserved.is_empty(), "the reservation is released");
    assert!(disk.adding(half(), || Err::<(), _>(Error::Stopping)).is_err());
    assert!(fixture.quotas.known.lock().reserved.is_empty());
    drop(disk.reserve(Usage { bytes: 100 * MIB, files: 1 }).unwrap());
}

/// Of eight concurrent requests for 30 % of the quota, three succeed.
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
fn box_in_full_workspace_may_free_but_not_take_space() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    assert_eq!(disk.for_box().unwrap().box_limit, QUOTA);
    (0..700).for_each(|number| fixture.write(&number.to_string(), 0));
    fixture.write("large", 120 * MIB);
    measure(&disk);
    let words = message(disk.for_box());
    assert!(words.contains("has more than 50 of the 50 files"), "files are counted up to ten times the quota: {words}");
    (0..600).for_each(|number| fixture.remove(&number.to_string()));
    measure(&disk);
    let full = disk.for_box().unwrap();
    assert_eq!(full.quota, QUOTA, "messages name the quota");
    assert_eq!(full.box_limit.files, 101 + CLEANUP_ALLOWANCE.files);
    let box_limit = full.box_limit.bytes;
    assert!((121 * MIB..122 * MIB).contains(&box_limit), "{box_limit}");
    assert!(full.measure(QUOTA.files).unwrap().usage.fits(full.box_limit));
    // Each box may leave a little more than it found, up to a limit.
    fixture.write("more", 95 * MIB);
    measure(&disk);
    assert!(disk.for_box().unwrap().box_limit.bytes >= 215 * MIB);
    fixture.write("too much", 10 * MIB);
    measure(&disk);
    message(disk.for_box());
    // The limit starts again after the workspace was below its quota.
    ["large", "more"].into_iter().for_each(|name| fixture.remove(name));
    (600..700).for_each(|number| fixture.remove(&number.to_string()));
    measure(&disk);
    assert_eq!(disk.for_box().unwrap().box_limit, QUOTA);
    fixture.write("large", 220 * MIB);
    measure(&disk);
    assert!(disk.for_box().unwrap().box_limit.bytes >= 230 * MIB);
}

#[test]
fn recorded_commands_count_against_workspace_quota() {
    let fixture = Fixture::new();
    let disk = fixture.disk("a");
    let (user, agent) = ("u".parse().unwrap(), "a".parse().unwrap());
    let check = |size| fixture.quotas.check_room_on_record(&user, &agent, size, QUOTA);
    fixture.quotas.set_recorded(&user, &agent, 70 * MIB);
    assert!(check(20 * MIB).is_ok());
    let refused = message(check(40 * MIB));
    assert!(
        refused.contains("takes 70.0 MiB of the 100.0 MiB") && refused.contains("retention.execs_days"),
        "{refused}"
    );
    // Files and recorded commands share the quota.
    let half = Usage { bytes: 20 * MIB, files: 1 };
    disk.reserve(half).unwrap();
    fixture.write("large", 20 * MIB);
    disk.shrink();
    assert!(message(disk.reserve(Usage { bytes: 40 * MIB, files: 1 })).contains("takes 90.0 MiB"));
    assert!(message(check(20 * MIB)).contains("takes 90.0 MiB"));
    // Retention removes commands, which frees their space.
    fixture.quotas.set_recorded(&user, &agent, 0);
    assert!(check(20 * MIB).is_ok());
    assert_eq!(disk.figure().unwrap().usage.bytes, 20 * MIB);
}
