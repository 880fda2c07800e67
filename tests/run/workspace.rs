//! The directories of a box: workspace (`--workspace`), read-only directories (`--ro`) and Ringwall's own
//! data directory, which no box sees.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use tests::support::actor::{Mode, ROOTLESS_ID};
use tests::support::scratch::Scratch;

use crate::modes::{as_root, in_both_modes};
use crate::product::{boxed, shell};

in_both_modes!(
    workspace_is_mounted_writable,
    programs_in_the_workspace_run,
    private_workspace_is_limited_and_deleted,
    link_in_a_parent_is_followed_and_as_the_workspace_refused,
    relative_workspace_is_resolved,
    link_in_the_workspace_does_not_reach_the_host,
    read_only_directories_are_mounted_at_their_host_path,
    more_than_253_read_only_directories_are_mounted,
    read_only_directory_in_the_workspace_stays_read_only,
    read_only_directories_below_tmp_are_mounted,
    large_host_directories_are_mounted_or_refused_with_a_hint,
    data_directory_is_refused,
    data_directory_in_the_workspace_is_hidden,
    data_directory_in_a_read_only_directory_is_hidden,
);
as_root!(new_files_belong_to_the_owner_of_the_workspace, file_of_another_owner_stays_protected);

fn workspace_is_mounted_writable(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    scratch.file("given", b"content", 0o644).unwrap();
    let run = boxed(mode).workspace(scratch.path());
    let text = shell(&run, "pwd; cat given; echo; echo made > made; mkdir -p a/b; mv given a/b/; ln -s a link; ls");
    assert_eq!(text, "/workspace\ncontent\na\nlink\nmade\n");
    assert_eq!(fs::read(scratch.join("made")).unwrap(), b"made\n");
    assert_eq!(fs::read(scratch.join("a/b/given")).unwrap(), b"content");
    let (user, group) = mode.identity().id();
    for path in ["made", "a", "a/b/given", "link"] {
        let found = fs::symlink_metadata(scratch.join(path)).unwrap();
        assert_eq!((found.uid(), found.gid()), (user, group), "{path}");
    }
}

fn programs_in_the_workspace_run(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    scratch.file("program", b"#!/bin/sh\necho \"ran $1\"\n", 0o755).unwrap();
    let run = boxed(mode).workspace(scratch.path());
    assert_eq!(run.run(&["./program", "here"]).unwrap().text(), "ran here\n");
    assert_eq!(shell(&run, "cp /bin/true copy && ./copy && echo ran"), "ran\n");
}

fn private_workspace_is_limited_and_deleted(mode: Mode) {
    let run = boxed(mode);
    let script = "head -c 1000000000 /dev/zero > fill 2>error; grep -c 'No space left' error; stat -c %s fill";
    let outcome = run.run(&["sh", "-c", &format!("({script}) 2>&1")]).unwrap();
    let text = outcome.text();
    let size: u64 = text.lines().last().unwrap().parse().unwrap_or_else(|_| panic!("{}", outcome.describe()));
    assert!((200 << 20..=256 << 20).contains(&size), "{}", outcome.describe());
    assert_eq!(shell(&run, "ls -A; stat -c '%a %u %g' ."), "755 1000 1000\n");
}

fn link_in_a_parent_is_followed_and_as_the_workspace_refused(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let real = scratch.directory("real").unwrap();
    symlink("real", scratch.join("link")).unwrap();
    symlink(scratch.path(), scratch.join("loop")).unwrap();
    let run = boxed(mode).workspace(&scratch.join("loop/real"));
    assert_eq!(shell(&run, "echo through > file; pwd"), "/workspace\n");
    assert_eq!(fs::read(real.join("file")).unwrap(), b"through\n");
    for link in ["link", "link/", "link/."] {
        let outcome = boxed(mode).workspace(&scratch.join(link)).run(&["sh", "-c", "echo ran"]).unwrap();
        crate::product::assert_refused(&outcome, "is a symbolic link");
        assert!(outcome.errors().contains("\n  hint: name the directory that it leads to: real"), "{link}");
    }
}

fn relative_workspace_is_resolved(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    scratch.directory("here").unwrap();
    scratch.directory("there").unwrap();
    let mut command = boxed(mode).workspace("../here/.".as_ref()).command(&["sh", "-c", "echo yes > file"]);
    assert!(command.current_dir(scratch.join("there")).status().unwrap().success());
    assert_eq!(fs::read(scratch.join("here/file")).unwrap(), b"yes\n");
}

fn link_in_the_workspace_does_not_reach_the_host(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let outside = Scratch::inside("/var/tmp".as_ref(), mode.identity()).unwrap();
    let target = outside.file("target", b"outside", 0o666).unwrap();
    symlink(&target, scratch.join("link")).unwrap();
    let outcome = boxed(mode).workspace(scratch.path()).run(&["sh", "-c", "cat link; echo changed > link"]).unwrap();
    assert!(!outcome.text().contains("outside"), "{}", outcome.describe());
    assert_eq!(fs::read(target).unwrap(), b"outside");
}

fn read_only_directories_are_mounted_at_their_host_path(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let first = scratch.directory("first").unwrap();
    let second = scratch.directory("second").unwrap();
    scratch.directory("third").unwrap();
    let file = scratch.file("first/file", b"kept", 0o666).unwrap();
    let tool = scratch.file("second/tool", b"#!/bin/sh\necho ran\n", 0o755).unwrap();
    let run = boxed(mode).read_only(&first).read_only(&second);
    assert_eq!(
        shell(&run, &format!("cat {0}; {1}; ls {2}", file.display(), tool.display(), scratch.path().display())),
        "keptran\nfirst\nsecond\n"
    );
    for act in ["echo x >> {}", "rm {}", "chmod 777 {}", "touch {}.new", "mv {} {}.new", "ln {} /tmp/x"] {
        let act = act.replace("{}", &file.to_string_lossy());
        let outcome = run.run(&["sh", "-c", &act]).unwrap();
        assert_ne!(outcome.code(), Some(0), "{act}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"kept");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o666);
    assert_eq!(fs::read_dir(&first).unwrap().count(), 1);
}

/// The kernel passes at most 253 descriptors per message. As root each directory is passed as one.
fn more_than_253_read_only_directories_are_mounted(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let directories = (0..300).map(|number| scratch.directory(&format!("d{number}")).unwrap());
    let run = directories.fold(boxed(mode), |run, directory| run.read_only(&directory));
    assert_eq!(shell(&run, &format!("ls {} | wc -l", scratch.path().display())), "300\n");
}

fn read_only_directory_in_the_workspace_stays_read_only(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let inner = scratch.directory("inner").unwrap();
    let run = boxed(mode).workspace(scratch.path()).read_only(&inner);
    let outcome = run.run(&["sh", "-c", &format!("touch {}/x; touch /workspace/y", inner.display())]).unwrap();
    assert_eq!(outcome.code(), Some(0), "{}", outcome.describe());
    assert!(!inner.join("x").exists() && scratch.join("y").exists(), "{}", outcome.describe());
}

/// The box has its own `/tmp` and `/var/tmp`. A mounted directory below them is visible, and the rest
/// stays writable.
fn read_only_directories_below_tmp_are_mounted(mode: Mode) {
    for parent in ["/var/tmp", "/tmp"] {
        let scratch = Scratch::inside(parent.as_ref(), mode.identity()).unwrap();
        let file = scratch.file("file", b"shown", 0o644).unwrap();
        let run = boxed(mode).read_only(scratch.path());
        assert_eq!(shell(&run, &format!("cat {} && : > {parent}/own", file.display())), "shown", "{parent}");
    }
}

/// These directories may contain paths that a box has of its own. Mounting them may be refused, but only
/// with a hint.
fn large_host_directories_are_mounted_or_refused_with_a_hint(mode: Mode) {
    for path in ["/home", "/var", "/opt", "/srv", "/mnt", "/usr/share", "/usr/local", "/etc/ssl", "/var/lib"] {
        if !std::path::Path::new(path).is_dir() {
            continue;
        }
        let outcome =
            boxed(mode).option("--ro", path).run(&["sh", "-c", &format!("test -d {path} && echo shown")]).unwrap();
        match outcome.code() {
            Some(0) => assert_eq!(outcome.text(), "shown\n", "{path}"),
            _ => {
                crate::product::assert_refused(&outcome, "ringwall: ");
                assert!(outcome.errors().contains("\n  hint: "), "{path}: {}", outcome.describe());
            }
        }
    }
}

fn data_directory_is_refused(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    scratch.directory("data").unwrap();
    let inside = scratch.directory("data/inside").unwrap();
    symlink("data", scratch.join("link")).unwrap();
    for directory in [&scratch.join("data"), &inside, &scratch.join("link/inside")] {
        for flag in ["--workspace", "--ro"] {
            let run = boxed(mode).option("--data", scratch.join("data")).option(flag, directory);
            let outcome = run.run(&["sh", "-c", "echo ran"]).unwrap();
            crate::product::assert_refused(&outcome, "belongs to Ringwall itself and is never shown to a box");
        }
    }
}

fn data_directory_in_the_workspace_is_hidden(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    scratch.directory("data").unwrap();
    let secret = scratch.file("data/secret", b"secret", 0o644).unwrap();
    let run = boxed(mode).option("--data", scratch.join("data")).workspace(scratch.path());
    let script = "ls -A data; cat data/secret; touch data/new; rmdir data; mv data other; chmod 777 data; ls -A";
    let outcome = run.run(&["sh", "-c", script]).unwrap();
    assert_eq!(outcome.text(), "data\n", "{}", outcome.describe());
    assert_eq!(fs::read(&secret).unwrap(), b"secret");
    assert_eq!(fs::read_dir(scratch.join("data")).unwrap().count(), 1);
    assert_eq!(fs::metadata(scratch.join("data")).unwrap().permissions().mode() & 0o777, 0o755);
}

fn data_directory_in_a_read_only_directory_is_hidden(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    scratch.directory("deep").unwrap();
    scratch.directory("deep/data").unwrap();
    scratch.file("deep/data/secret", b"secret", 0o644).unwrap();
    let run = boxed(mode).option("--data", scratch.join("deep/data")).read_only(scratch.path());
    let path = scratch.join("deep");
    assert_eq!(shell(&run, &format!("cd {} && ls -A && ls -A data", path.display())), "data\n");
}

/// As root the workspace belongs to uid 1000 in the box. Files that the box creates belong to the owner of
/// the directory on the host.
fn new_files_belong_to_the_owner_of_the_workspace(mode: Mode) {
    for (user, group) in [(0, 0), (ROOTLESS_ID, ROOTLESS_ID), (3001, 3002)] {
        let scratch = Scratch::new(mode.identity()).unwrap();
        let work = scratch.directory("work").unwrap();
        fs::write(work.join("old"), "old").unwrap();
        for path in [work.join("old"), work.clone()] {
            std::os::unix::fs::chown(path, Some(user), Some(group)).unwrap();
        }
        fs::set_permissions(&work, fs::Permissions::from_mode(0o700)).unwrap();
        let script = "stat -c '%u:%g' . old; echo new > new; echo more >> old; mkdir d; stat -c '%u:%g' new d; \
                      chmod 600 old; id -u; id -g";
        let text = shell(&boxed(mode).workspace(&work), script);
        assert_eq!(text, format!("{}1000\n1000\n", "1000:1000\n".repeat(4)), "{user}:{group}");
        for name in ["", "old", "new", "d"] {
            let found = fs::metadata(work.join(name)).unwrap();
            assert_eq!((found.uid(), found.gid()), (user, group), "{name:?} of {user}:{group}");
        }
        assert_eq!(fs::read(work.join("old")).unwrap(), b"oldmore\n");
    }
}

/// A file of another owner has uid 65534 in the box, and its mode denies access.
fn file_of_another_owner_stays_protected(mode: Mode) {
    let scratch = Scratch::new(mode.identity()).unwrap();
    let work = scratch.directory("work").unwrap();
    fs::write(work.join("foreign"), "foreign").unwrap();
    fs::set_permissions(work.join("foreign"), fs::Permissions::from_mode(0o600)).unwrap();
    std::os::unix::fs::chown(work.join("foreign"), Some(4001), Some(4001)).unwrap();
    let script = "stat -c '%u:%g' foreign; cat foreign; echo x >> foreign; chmod 666 foreign";
    let outcome = boxed(mode).workspace(&work).run(&["sh", "-c", script]).unwrap();
    assert_eq!(outcome.text(), "65534:65534\n", "{}", outcome.describe());
    let found = fs::metadata(work.join("foreign")).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o777), (4001, 0o600));
    assert_eq!(fs::read(work.join("foreign")).unwrap(), b"foreign");
}
