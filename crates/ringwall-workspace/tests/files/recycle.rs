//! A box's artifacts directory is recycled only if it equals a new one and no other box can have a
//! descriptor of it.

use std::collections::HashSet;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Barrier;

use ringwall_ids::ExecId;
use ringwall_workspace::{ExecFiles, Processes, RecordEntry, Workspaces};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, XattrFlags};
use serde_json::json;

use crate::fixture::{CANARY, Fixture, MIB, RECYCLED, is_root, names, open, owner, path, set_owner};

/// A description and an action.
type Act<'a, To> = (&'a str, &'a dyn Fn(&To));

/// Ends an exec whose box is dead.
fn end(files: ExecFiles) {
    let collected = files.collect(MIB, Processes::Dead).unwrap();
    assert!(collected.residue().is_none());
    collected.finish(&json!({})).unwrap();
}

fn inode(path: &Path) -> u64 {
    fs::symlink_metadata(path).unwrap().ino()
}

/// Checks that the directory is empty, has the box's owner and mode 0700, and no extended
/// attributes.
fn assert_new(files: &ExecFiles) {
    let location = files.artifacts().unwrap().path();
    let status = fs::symlink_metadata(location).unwrap();
    assert!(status.is_dir());
    assert_eq!((status.uid(), status.gid(), status.mode() & 0o7777), (owner().uid, owner().gid, 0o700));
    assert!(names(location).is_empty());
    let directory = File::open(location).unwrap();
    assert_eq!(rustix::fs::flistxattr_query(&directory), Ok(0));
    // The handle that is mounted is this directory.
    let given = rustix::fs::fstat(files.artifacts().unwrap()).unwrap();
    assert_eq!(given.st_ino, status.ino());
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
}

/// A default ACL in the kernel's binary form, which grants everything to everyone.
fn set_default_acl(path: &Path) {
    let entry = |tag: u16| [&tag.to_le_bytes()[..], &7_u16.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    let list = [2_u32.to_le_bytes().to_vec(), entry(0x01), entry(0x04), entry(0x20)].concat();
    set_attribute(path, "system.posix_acl_default", &list);
}

/// Waits until a change gets another ctime than the creation: before Linux 6.13 both have the same
/// time within one clock tick.
fn await_tick(path: &Path) {
    let made = fs::symlink_metadata(path).unwrap();
    loop {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        if (now.tv_sec, now.tv_nsec) > (made.ctime(), made.ctime_nsec()) {
            return;
        }
        std::hint::spin_loop();
    }
}

#[test]
fn unused_directory_is_recycled() {
    let fixture = Fixture::new();
    let files = fixture.begin();
    let first = inode(files.artifacts().unwrap().path());
    end(files);
    for project in ["p", "another", "p"] {
        assert!(fixture.has_recycled() && fixture.staged().is_empty());
        let project = fixture.workspace.project(&project.parse().unwrap()).unwrap();
        let files = project.begin(&ExecId::random().unwrap()).unwrap();
        assert_new(&files);
        assert_eq!(inode(files.artifacts().unwrap().path()), first);
        assert!(!fixture.has_recycled());
        // Reading does not count as use.
        assert!(names(files.artifacts().unwrap().path()).is_empty());
        end(files);
    }
    // After a restart the directory is still used, and a sweep does not remove it.
    let workspaces = Workspaces::open(&fixture.directory.path().join("data/workspaces")).unwrap();
    let swept = workspaces.sweep(|_| false, |_| RecordEntry::Unknown);
    assert_eq!((swept.removed, swept.failed), (0, 0));
    let project = open(&workspaces).project(&"p".parse().unwrap()).unwrap();
    let files = project.begin(&ExecId::random().unwrap()).unwrap();
    assert_eq!(inode(files.artifacts().unwrap().path()), first);
    // After a box used the directory, its files are collected and the directory is removed.
    fs::write(files.artifacts().unwrap().path().join("result"), "42").unwrap();
    set_owner(&files.artifacts().unwrap().path().join("result"));
    let exec = files.exec().clone();
    end(files);
    assert_eq!(project.open_artifact(&exec, &path("result")).unwrap().size, 2);
    assert!(!fixture.has_recycled() && fixture.staged().is_empty());
    fixture.check();
}

#[test]
fn changed_directory_is_not_recycled() {
    let fixture = Fixture::new();
    let set_mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let acts: [Act<Path>; 9] = [
        ("opened it to others", &|path| set_mode(path, 0o777)),
        ("closed it", &|path| set_mode(path, 0o000)),
        ("made it sticky", &|path| set_mode(path, 0o1700)),
        ("set an attribute", &|path| set_attribute(path, "user.note", b"x")),
        ("set a default list", &set_default_acl),
        ("left a hidden file", &|path| fs::write(path.join(".hidden"), "x").unwrap()),
        ("left an empty directory", &|path| fs::create_dir(path.join(".d")).unwrap()),
        ("opened it and closed it again", &|path| {
            set_mode(path, 0o777);
            set_mode(path, 0o700);
        }),
        ("made many files and removed them", &|path| {
            let names = || (0..500).map(|number| path.join(format!("a-rather-long-name-{number}")));
            names().for_each(|name| fs::write(name, "").unwrap());
            names().for_each(|name| fs::remove_file(name).unwrap());
        }),
    ];
    for (what, act) in acts {
        let files = fixture.begin();
        assert_new(&files);
        await_tick(files.artifacts().unwrap().path());
        act(files.artifacts().unwrap().path());
        end(files);
        assert!(!fixture.has_recycled() && fixture.staged().is_empty(), "{what}");
        // Control: the directory of the next exec, which does nothing, is kept.
        let files = fixture.begin();
        assert_new(&files);
        end(files);
        assert!(fixture.has_recycled(), "{what}");
    }
    fixture.check();
}

#[test]
fn changed_recycled_directory_is_not_used() {
    let fixture = Fixture::new();
    let recycled = fixture.host_path(".staging").join(RECYCLED);
    let outside = fixture.outside();
    let swap = |act: &dyn Fn()| {
        fs::remove_dir(&recycled).unwrap();
        act();
    };
    let acts: [(&str, &dyn Fn()); 9] = [
        ("a mode", &|| fs::set_permissions(&recycled, Permissions::from_mode(0o755)).unwrap()),
        ("a group", &|| {
            // Only root can change the group; others change the mode.
            let group = Some(Gid::from_raw(0));
            match is_root() {
                true => rustix::fs::chownat(CWD, &recycled, None, group, AtFlags::empty()).unwrap(),
                false => fs::set_permissions(&recycled, Permissions::from_mode(0o2700)).unwrap(),
            }
        }),
        ("an attribute", &|| set_attribute(&recycled, "user.note", b"x")),
        ("a default list", &|| set_default_acl(&recycled)),
        ("a hidden file", &|| fs::write(recycled.join(".hidden"), "x").unwrap()),
        ("a tree", &|| fs::create_dir_all(recycled.join("a/b")).unwrap()),
        ("a link in its place", &|| swap(&|| symlink(&outside, &recycled).unwrap())),
        ("a link to nowhere in its place", &|| swap(&|| symlink("nowhere", &recycled).unwrap())),
        ("a file in its place", &|| swap(&|| fs::write(&recycled, "x").unwrap())),
    ];
    for (what, act) in acts {
        end(fixture.begin());
        assert!(fixture.has_recycled(), "{what}");
        // An open handle keeps the inode number from being reused.
        let held = rustix::fs::open(&recycled, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap();
        act();
        let files = fixture.begin();
        assert_new(&files);
        assert_ne!(inode(files.artifacts().unwrap().path()), rustix::fs::fstat(&held).unwrap().st_ino, "{what}");
        assert!(!fixture.has_recycled(), "{what}");
        assert_eq!(fixture.staged(), [files.exec().as_str()], "{what}");
        assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), CANARY, "{what}");
        end(files);
        fixture.check();
    }
}

#[test]
fn directory_of_overlapping_exec_is_not_recycled() {
    let fixture = Fixture::new();
    // Two boxes of the project run at the same time; the first sends its directory over a socket in
    // `work`.
    let (one, sibling) = (fixture.begin(), fixture.begin());
    let handed_on = File::open(one.artifacts().unwrap().path()).unwrap();
    end(one);
    assert!(!fixture.has_recycled());
    let next = fixture.begin();
    fs::write(next.artifacts().unwrap().path().join("private"), "x").unwrap();
    let read = rustix::fs::openat(&handed_on, "private", OFlags::RDONLY, Mode::empty());
    assert_eq!(read.err().map(|errno| errno.kind()), Some(ErrorKind::NotFound));
    let made = rustix::fs::mkdirat(&handed_on, "planted", Mode::RWXU);
    assert_eq!(made.err().map(|errno| errno.kind()), Some(ErrorKind::NotFound), "the directory was deleted");
    // Nor are the directories of execs recycled that overlapped an exec that overlapped another.
    end(sibling);
    fs::remove_file(next.artifacts().unwrap().path().join("private")).unwrap();
    end(next);
    assert!(!fixture.has_recycled() && fixture.staged().is_empty());
    // Control: all execs have ended, and the next one is alone.
    end(fixture.begin());
    assert!(fixture.has_recycled());
}

#[test]
fn directory_is_not_recycled_while_box_may_live() {
    let unsure: [Act<Fixture>; 3] = [
        ("uncertain processes", &|fixture| {
            fixture.begin().collect(MIB, Processes::Uncertain).unwrap().finish(&json!({})).unwrap();
        }),
        ("dropped", &|fixture| drop(fixture.begin())),
        ("left by a killed server", &|fixture| {
            fs::create_dir(fixture.host_path(&format!(".staging/{}", ExecId::random().unwrap()))).unwrap();
            assert_eq!(fixture.workspaces.sweep(|_| false, |_| RecordEntry::Unknown).removed, 1);
        }),
    ];
    for (what, act) in unsure {
        let fixture = Fixture::new();
        act(&fixture);
        assert!(!fixture.has_recycled(), "{what}");
        for _ in 0..3 {
            end(fixture.begin());
            assert!(!fixture.has_recycled(), "{what}");
        }
        // Another workspace is not affected.
        let other = fixture.workspaces.workspace(&"user".parse().unwrap(), &"other".parse().unwrap(), owner()).unwrap();
        let project = other.project(&"p".parse().unwrap()).unwrap();
        end(project.begin(&ExecId::random().unwrap()).unwrap());
        let staging = fixture.directory.path().join("data/workspaces/user/other/.staging");
        assert_eq!(names(&staging), [RECYCLED], "{what}");
    }
}

#[test]
fn one_of_concurrent_execs_gets_recycled_directory() {
    const THREADS: usize = 8;
    let fixture = Fixture::new();
    for _ in 0..100 {
        end(fixture.begin());
        let recycled = inode(&fixture.host_path(".staging").join(RECYCLED));
        let together = Barrier::new(THREADS);
        let begun: Vec<ExecFiles> = std::thread::scope(|scope| {
            let begin = || {
                together.wait();
                fixture.begin()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let inodes: Vec<u64> = begun.iter().map(|files| inode(files.artifacts().unwrap().path())).collect();
        assert_eq!(inodes.iter().collect::<HashSet<_>>().len(), THREADS);
        assert_eq!(inodes.iter().filter(|inode| **inode == recycled).count(), 1);
        begun.iter().for_each(assert_new);
        begun.into_iter().for_each(end);
        assert!(!fixture.has_recycled() && fixture.staged().is_empty());
    }
}
