//! Faults of SQLite's files.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use ringwall_record::{Database, Error, Store};

use crate::database::{TestDatabase, assert_intact, key, verify};
use crate::samples::event;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().mode() & 0o7777
}

pub async fn files_are_private(db: TestDatabase) {
    let store = db.open().await;
    store.append(event(1)).await.unwrap();
    let names: Vec<_> = std::fs::read_dir(db.directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(names.len() >= 3, "the database, its WAL and its shared memory: {names:?}");
    for name in &names {
        assert_eq!(mode(name), 0o600, "{}", name.display());
    }
    store.close().await;
    std::fs::set_permissions(db.file(), std::fs::Permissions::from_mode(0o666)).unwrap();
    db.open().await;
    assert_eq!(mode(&db.file()), 0o600);
}

pub async fn non_regular_file_is_refused(db: TestDatabase) {
    let open = async |path: &Path| Store::open(Database::Sqlite(path.to_owned()), Some(key())).await.unwrap_err();
    assert!(matches!(open(&db.directory()).await, Error::NotAFile(_)));
    let link = db.directory().join("link");
    std::os::unix::fs::symlink(db.directory().join("elsewhere"), &link).unwrap();
    assert!(matches!(open(&link).await, Error::NotAFile(_)));
    assert!(!db.directory().join("elsewhere").exists());
    assert!(matches!(open(&db.directory().join("not/there")).await, Error::File { .. }));
}

pub async fn damaged_file_is_refused(db: TestDatabase) {
    std::fs::write(db.file(), "This is a letter and not a database. ".repeat(1_000)).unwrap();
    let refused = Store::open(db.database.clone(), Some(key())).await.unwrap_err();
    assert!(matches!(refused, Error::Corrupt(_)), "{refused:?}");
    std::fs::remove_file(db.file()).unwrap();

    let store = db.open().await;
    for number in 0..50 {
        store.append(event(number)).await.unwrap();
    }
    store.close().await;
    let whole = std::fs::read(db.file()).unwrap();
    assert!(!db.file().with_extension("db-wal").exists(), "the WAL was not removed");
    // All pages but the first are missing, or contain other bytes.
    std::fs::write(db.file(), &whole[..4096]).unwrap();
    let refused = Store::open(db.database.clone(), Some(key())).await.unwrap_err();
    assert!(matches!(refused, Error::Corrupt(_)), "{refused:?}");
    let mut scrambled = whole.clone();
    scrambled[4096..].fill(0xa5);
    std::fs::write(db.file(), scrambled).unwrap();
    let refused = Store::open(db.database.clone(), Some(key())).await.unwrap_err();
    assert!(matches!(refused, Error::Corrupt(_)), "{refused:?}");
    // The control: the original bytes are accepted.
    std::fs::write(db.file(), whole).unwrap();
    assert_intact(&db.open().await).await;
}

/// The WAL is cut in the middle of a commit, as by a failing disk. The rest is consistent; that
/// commits are missing is found only by comparison with a head that was stored elsewhere.
pub async fn truncated_wal_leaves_consistent_database(db: TestDatabase) {
    let store = db.open().await;
    for number in 0..50 {
        store.append(event(number)).await.unwrap();
    }
    let kept = store.audit_head().await.unwrap();
    // Copied while the store is open: closing it would remove the WAL.
    let log = std::fs::read(db.file().with_extension("db-wal")).unwrap();
    let written = log.iter().rposition(|byte| *byte != 0).unwrap();
    let copy = copy_with_log(&db, "cut", &log[..written - 3_000]).await;
    let verification = verify(&copy).await;
    assert!(verification.is_intact(), "{:?}", verification.findings);
    assert!((1..50).contains(&verification.checked), "{}", verification.checked);
    assert_ne!(verification.head, kept);
    copy.append(event(99)).await.unwrap();
    assert_intact(&copy).await;
}

async fn copy_with_log(db: &TestDatabase, name: &str, log: &[u8]) -> Store {
    let copy = db.directory().join(format!("{name}.db"));
    std::fs::copy(db.file(), &copy).unwrap();
    std::fs::write(copy.with_extension("db-wal"), log).unwrap();
    Store::open(Database::Sqlite(copy), Some(key())).await.unwrap()
}

/// After 16 transactions the writer extends the WAL with zeros. Recovery after a crash ignores
/// them, and later commits overwrite them.
pub async fn extended_wal_is_read_to_last_commit(db: TestDatabase) {
    let log = db.file().with_extension("db-wal");
    let length = || std::fs::metadata(&log).unwrap().len();
    let store = db.open().await;
    store.append(event(0)).await.unwrap();
    let short = length();
    for number in 1..100 {
        store.append(event(number)).await.unwrap();
    }
    let whole = length();
    assert!(short < 1_000_000 && whole > 4_000_000, "{short} and {whole}");
    let bytes = std::fs::read(&log).unwrap();
    assert!(bytes.ends_with(&[0; 100_000]));
    let copy = copy_with_log(&db, "copy", &bytes).await;
    let (verification, head) = (verify(&copy).await, store.audit_head().await.unwrap());
    assert!(verification.is_intact(), "{:?}", verification.findings);
    assert_eq!((verification.checked, verification.head), (100, head));
    // More commits than fit, so that SQLite restarts the WAL at its front.
    for number in 100..600 {
        store.append(event(number)).await.unwrap();
    }
    assert_eq!(length(), whole);
    assert_intact(&store).await;
}

pub async fn backup_is_complete_and_private(db: TestDatabase) {
    let store = db.open().await;
    for number in 0..20 {
        store.append(event(number)).await.unwrap();
    }
    let path = db.directory().join("backup.db");
    let (backup, appended) = tokio::join!(store.backup(&path), store.append(event(20)));
    backup.unwrap();
    appended.unwrap();
    assert_eq!(mode(&path), 0o600);
    assert!(!db.directory().join("backup.db.partial").exists());
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(store.backup(&path).await, Err(Error::BackupExists(_))));
    let link = db.directory().join("link.db");
    std::os::unix::fs::symlink(db.directory().join("elsewhere"), &link).unwrap();
    assert!(matches!(store.backup(&link).await, Err(Error::BackupExists(_))));
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert!(matches!(store.backup(&db.directory().join("not/there")).await, Err(Error::File { .. })));

    let copy = Store::open(Database::Sqlite(path), Some(key())).await.unwrap();
    let verification = verify(&copy).await;
    assert!(verification.is_intact() && (20..=21).contains(&verification.checked), "{verification:?}");
    copy.append(event(21)).await.unwrap();
}

const DIRECTORY: &str = "RECORD_TEST_FULL";

/// The child has a small tmpfs in a mount namespace of its own, which ends with it.
#[expect(clippy::disallowed_methods, reason = "a mount needs a namespace, and a namespace a process")]
pub async fn full_disk_is_reported_and_survived(db: TestDatabase) {
    let directory = db.directory();
    let mut child = Command::new("unshare");
    child.arg("--mount");
    if !rustix::process::geteuid().is_root() {
        child.args(["--user", "--map-root-user"]);
    }
    let script = "mount -t tmpfs -o size=1280k,mode=700 none \"$1\" && exec \"$2\"";
    child.args(["--", "sh", "-c", script, "sh"]).arg(&directory).arg(std::env::current_exe().unwrap());
    let output = child.env(DIRECTORY, &directory).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

pub fn directory_of_child() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Appends entries until the disk is full, frees some space, and appends again.
pub fn run_child(directory: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let ballast = directory.join("ballast");
        std::fs::write(&ballast, vec![1; 300_000]).unwrap();
        let store = Store::open(Database::Sqlite(directory.join("record.db")), Some(key())).await.unwrap();
        let mut acknowledged = 0;
        let refused = loop {
            match store.append(event(acknowledged)).await {
                Ok(_) => acknowledged += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(refused, Error::DiskFull(_)), "{refused:?}");
        assert!(matches!(store.append(event(0)).await, Err(Error::DiskFull(_))));
        std::fs::remove_file(ballast).unwrap();
        store.append(event(acknowledged)).await.unwrap();
        let verification = verify(&store).await;
        assert!(verification.is_intact(), "{:?}", verification.findings);
        assert_eq!(verification.checked, u64::try_from(acknowledged).unwrap() + 1);
    });
    ExitCode::SUCCESS
}
