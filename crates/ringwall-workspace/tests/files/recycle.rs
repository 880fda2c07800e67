//! A box's artifacts directory is recycled only if it equals a new one and no other box can have a
//! descriptor of it.

use std::collections::HashSet;
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Barrier;

use ringwall_workspace::{ExecFiles, ExecId, Processes, RecordEntry, Workspaces};
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, XattrFlags};
use serde_json::json;

use crate::lab::{CANARY, Lab, MIB, RECYCLED, is_root, names, open, owner, path, set_owner};

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
    let place = files.artifacts().unwrap().path();
    let status = fs::symlink_metadata(place).unwrap();
    assert!(status.is_dir());
    assert_eq!((status.uid(), status.gid(), status.mode() & 0o7777), (owner().uid, owner().gid, 0o700));
    assert!(names(place).is_empty());
    let directory = File::open(place).unwrap();
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
    let lab = Lab::new();
    let files = lab.begin();
    let first = inode(files.artifacts().unwrap().path());
    end(files);
    for project in ["p", "another", "p"] {
        assert!(lab.has_recycled() && lab.staged().is_empty());
        let project = lab.workspace.project(&project.parse().unwrap()).unwrap();
        let files = project.begin(&ExecId::random().unwrap()).unwrap();
        assert_new(&files);
        assert_eq!(inode(files.artifacts().unwrap().path()), first);
        assert!(!lab.has_recycled());
        // Reading does not count as use.
        assert!(names(files.artifacts().unwrap().path()).is_empty());
        end(files);
    }
    // After a restart the directory is still used, and a sweep does not remove it.
    let workspaces = Workspaces::open(&lab.directory.path().join("data/workspaces")).unwrap();
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
    assert!(!lab.has_recycled() && lab.staged().is_empty());
    lab.check();
}

#[test]
fn changed_directory_is_not_recycled() {
    let lab = Lab::new();
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
        let files = lab.begin();
        assert_new(&files);
        await_tick(files.artifacts().unwrap().path());
        act(files.artifacts().unwrap().path());
        end(files);
        assert!(!lab.has_recycled() && lab.staged().is_empty(), "{what}");
        // Control: the directory of the next exec, which does nothing, is kept.
        let files = lab.begin();
        assert_new(&files);
        end(files);
        assert!(lab.has_recycled(), "{what}");
    }
    lab.check();
}

#[test]
fn changed_recycled_directory_is_not_used() {
    let lab = Lab::new();
    let recycled = lab.host(".staging").join(RECYCLED);
    let outside = lab.outside();
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
        end(lab.begin());
        assert!(lab.has_recycled(), "{what}");
        // An open handle keeps the inode number from being reused.
        let held = rustix::fs::open(&recycled, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty()).unwrap();
        act();
        let files = lab.begin();
        assert_new(&files);
        assert_ne!(inode(files.artifacts().unwrap().path()), rustix::fs::fstat(&held).unwrap().st_ino, "{what}");
        assert!(!lab.has_recycled(), "{what}");
        assert_eq!(lab.staged(), [files.exec().as_str()], "{what}");
        assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), CANARY, "{what}");
        end(files);
        lab.check();
    }
}

#[test]
fn directory_of_overlapping_exec_is_not_recycled() {
    let lab = Lab::new();
    // Two boxes of the project run at the same time; the first sends its directory over a socket in
    // `work`.
    let (one, sibling) = (lab.begin(), lab.begin());
    let handed_on = File::open(one.artifacts().unwrap().path()).unwrap();
    end(one);
    assert!(!lab.has_recycled());
    let next = lab.begin();
    fs::write(next.artifacts().unwrap().path().join("private"), "x").unwrap();
    let read = rustix::fs::openat(&handed_on, "private", OFlags::RDONLY, Mode::empty());
    assert_eq!(read.err().map(|errno| errno.kind()), Some(ErrorKind::NotFound));
    let made = rustix::fs::mkdirat(&handed_on, "planted", Mode::RWXU);
    assert_eq!(made.err().map(|errno| errno.kind()), Some(ErrorKind::NotFound), "the directory was deleted");
    // Nor are the directories of execs recycled that overlapped an exec that overlapped another.
    end(sibling);
    fs::remove_file(next.artifacts().unwrap().path().join("private")).unwrap();
    end(next);
    assert!(!lab.has_recycled() && lab.staged().is_empty());
    // Control: all execs have ended, and the next one is alone.
    end(lab.begin());
    assert!(lab.has_recycled());
}

#[test]
fn directory_is_not_recycled_while_box_may_live() {
    let unsure: [Act<Lab>; 3] = [
        ("uncertain processes", &|lab| {
            lab.begin().collect(MIB, Processes::Uncertain).unwrap().finish(&json!({})).unwrap();
        }),
        ("dropped", &|lab| drop(lab.begin())),
        ("left by a killed server", &|lab| {
            fs::create_dir(lab.host(&format!(".staging/{}", ExecId::random().unwrap()))).unwrap();
            assert_eq!(lab.workspaces.sweep(|_| false, |_| RecordEntry::Unknown).removed, 1);
        }),
    ];
    for (what, act) in unsure {
        let lab = Lab::new();
        act(&lab);
        assert!(!lab.has_recycled(), "{what}");
        for _ in 0..3 {
            end(lab.begin());
            assert!(!lab.has_recycled(), "{what}");
        }
        // Another workspace is not affected.
        let other = lab.workspaces.workspace(&"user".parse().unwrap(), &"other".parse().unwrap(), owner()).unwrap();
        let project = other.project(&"p".parse().unwrap()).unwrap();
        end(project.begin(&ExecId::random().unwrap()).unwrap());
        let staging = lab.directory.path().join("data/workspaces/user/other/.staging");
        assert_eq!(names(&staging), [RECYCLED], "{what}");
    }
}

#[test]
fn one_of_concurrent_execs_gets_recycled_directory() {
    const THREADS: usize = 8;
    let lab = Lab::new();
    for _ in 0..100 {
        end(lab.begin());
        let recycled = inode(&lab.host(".staging").join(RECYCLED));
        let together = Barrier::new(THREADS);
        let begun: Vec<ExecFiles> = std::thread::scope(|scope| {
            let begin = || {
                together.wait();
                lab.begin()
            };
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(begin)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let inodes: Vec<u64> = begun.iter().map(|files| inode(files.artifacts().unwrap().path())).collect();
        assert_eq!(inodes.iter().collect::<HashSet<_>>().len(), THREADS);
        assert_eq!(inodes.iter().filter(|inode| **inode == recycled).count(), 1);
        begun.iter().for_each(assert_new);
        begun.into_iter().for_each(end);
        assert!(!lab.has_recycled() && lab.staged().is_empty());
    }
}
