//! The files API: ordinary operations, and files that a box may have planted.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;

use ringwall_workspace::{AgentPath, Change, Download, Error, FilesError, Lines, RecordEntry, Tree};
use rustix::fs::{CWD, FileType, Mode};

use crate::fixture::{CANARY, Fixture, is_root, names, own_by_box, owner, set_owner};

fn at(path: &str) -> AgentPath {
    AgentPath::parse(path).unwrap()
}

fn files_error<T: std::fmt::Debug>(outcome: Result<T, Error>) -> FilesError {
    match outcome {
        Err(Error::Files(files_error)) => files_error,
        other => panic!("{other:?}"),
    }
}

fn out_of_scope(path: &str) -> FilesError {
    FilesError::OutOfScope(path.to_owned())
}

fn read(tree: &Tree, path: &str) -> Result<String, Error> {
    Ok(tree.read(&at(path), Lines::ALL)?.into_content())
}

fn list(tree: &Tree, path: &str) -> Vec<String> {
    tree.list(&at(path)).unwrap().whole()
}

fn delete(tree: &Tree, path: &str) -> Result<(), Error> {
    tree.delete(&at(path))?.erase()
}

#[test]
fn written_files_are_read_listed_and_deleted() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    assert_eq!(list(&tree, "files"), Vec::<String>::new());
    assert_eq!(list(&tree, "files/nowhere"), Vec::<String>::new());
    for (path, content) in
        [("files/b/c.txt", "c"), ("files/a.txt", "a"), ("files/A.txt", "A"), ("skills/x/SKILL.md", "s")]
    {
        tree.write(&at(path), content.as_bytes()).unwrap();
        assert_eq!(read(&tree, path).unwrap(), content);
    }
    assert_eq!(list(&tree, "files"), ["files/A.txt", "files/a.txt", "files/b/c.txt"]);
    assert_eq!(list(&tree, "files/b/"), ["files/b/c.txt"]);
    assert_eq!(list(&tree, "files/b/c.txt"), ["files/b/c.txt"]);
    assert_eq!(list(&tree, "skills"), ["skills/x/SKILL.md"]);
    for location in ["files", "files/b", "files/b/c.txt", "skills/x"] {
        let status = fs::metadata(fixture.host_path(location)).unwrap();
        assert_eq!((status.uid(), status.gid()), (owner().uid, owner().gid), "{location}");
    }
    assert_eq!(fs::metadata(fixture.host_path("files/b")).unwrap().mode() & 0o777, 0o755);
    assert_eq!(fs::metadata(fixture.host_path("files/a.txt")).unwrap().mode() & 0o777, 0o644);
    delete(&tree, "files/b").unwrap();
    delete(&tree, "files/a.txt").unwrap();
    assert_eq!(list(&tree, "files"), ["files/A.txt"]);
    assert_eq!(files_error(delete(&tree, "files/b")), FilesError::Missing("files/b".to_owned()));
    for section in ["files", "skills", "files/", "skills/."] {
        assert_eq!(files_error(delete(&tree, section)), out_of_scope(section));
    }
    assert_eq!(files_error(read(&tree, "files/A.txt/x")), FilesError::Missing("files/A.txt/x".to_owned()));
    assert_eq!(files_error(tree.write(&at("files/A.txt/x"), b"")), FilesError::BelowFile("files/A.txt/x".to_owned()));
    assert_eq!(files_error(read(&tree, "skills/x")), FilesError::IsDirectory("skills/x".to_owned()));
    assert_eq!(files_error(tree.write(&at("skills/x"), b"")), FilesError::IsDirectory("skills/x".to_owned()));
    assert_eq!(files_error(tree.write(&at("files/new/"), b"")), FilesError::IsDirectory("files/new/".to_owned()));
    assert_eq!(files_error(tree.write(&at("skills/x/y/SKILL.md"), b"")), FilesError::Reserved);
    assert_eq!(
        files_error(tree.edit(&at("skills/x/skill.md"), "s", "t", 1).and_then(Change::apply)),
        FilesError::Reserved
    );
    assert!(fixture.staged().is_empty(), "{:?}", fixture.staged());
}

#[test]
fn replaced_file_keeps_its_permissions() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    tree.write(&at("files/run.sh"), b"one").unwrap();
    fs::set_permissions(fixture.host_path("files/run.sh"), fs::Permissions::from_mode(0o4755)).unwrap();
    tree.write(&at("files/run.sh"), b"two").unwrap();
    tree.edit(&at("files/run.sh"), "two", "three", 1).and_then(Change::apply).unwrap();
    tree.replace_lines(&at("files/run.sh"), Some(Lines::ALL), b"four").and_then(Change::apply).unwrap();
    assert_eq!(fs::metadata(fixture.host_path("files/run.sh")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(read(&tree, "files/run.sh").unwrap(), "four");
}

#[test]
fn symlinks_are_followed_for_reads_within_the_tree_only() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    tree.write(&at("files/d/real"), b"inside").unwrap();
    tree.write(&at("skills/s/real"), b"skill").unwrap();
    fs::write(fixture.host_path("projects/p/inputs/secret"), "not the agent's").unwrap();
    fs::write(fixture.host_path(".staging/secret"), "not the agent's").unwrap();
    let outside = fixture.outside();
    for (link, target) in [
        ("files/final", "d/real"),
        ("files/middle", "d"),
        ("files/chain", "final"),
        ("files/across", "../skills/s/real"),
        ("files/there_and_back", "../files/d/real"),
        ("files/dangling", "nowhere"),
        ("files/loop", "loop"),
        ("files/up", "../projects/p/inputs/secret"),
        ("files/staged", "../.staging/secret"),
        ("files/whole", ".."),
        ("files/absolute", fixture.host_path("files/d/real").to_str().unwrap()),
        ("files/out", outside.join("canary").to_str().unwrap()),
        ("files/out_directory", outside.to_str().unwrap()),
        ("files/climbs", "../../../../../outside/canary"),
        ("files/magic", "/proc/self/root"),
    ] {
        symlink(target, fixture.host_path(link)).unwrap();
    }
    own_by_box(&fixture.host_path("files"));
    for (path, expected) in [
        ("files/final", "inside"),
        ("files/middle/real", "inside"),
        ("files/chain", "inside"),
        ("files/across", "skill"),
        ("files/there_and_back", "inside"),
        ("files/whole/skills/s/real", "skill"),
    ] {
        assert_eq!(read(&tree, path).unwrap(), expected, "{path}");
    }
    assert_eq!(files_error(read(&tree, "files/dangling")), FilesError::Missing("files/dangling".to_owned()));
    for path in [
        "files/loop",
        "files/up",
        "files/staged",
        "files/whole/projects/p/inputs/secret",
        "files/absolute",
        "files/out",
        "files/out_directory/canary",
        "files/climbs",
        "files/magic/etc/passwd",
    ] {
        assert_eq!(files_error(read(&tree, path)), out_of_scope(path), "{path}");
    }
    for path in ["files/out_directory", "files/whole", "files/magic"] {
        assert_eq!(files_error(tree.list(&at(path))), out_of_scope(path), "{path}");
        assert_eq!(files_error(tree.download(&at(path))), out_of_scope(path), "{path}");
    }
    assert_eq!(list(&tree, "files/middle"), ["files/middle/real"]);
    assert_eq!(list(&tree, "files"), ["files/d/real"], "symlinks are not listed");
    // Edits follow no symlink, also not within the tree, and nothing is written below one.
    for path in ["files/final", "files/middle/real", "files/out", "files/out_directory/canary"] {
        assert_eq!(
            files_error(tree.edit(&at(path), "i", "I", 1).and_then(Change::apply)),
            out_of_scope(path),
            "{path}"
        );
        assert_eq!(
            files_error(tree.replace_lines(&at(path), Some(Lines::ALL), b"").and_then(Change::apply)),
            out_of_scope(path),
            "{path}"
        );
    }
    for path in ["files/middle/new", "files/out_directory/new", "files/out_directory/canary", "files/whole/x/y"] {
        assert_eq!(files_error(tree.write(&at(path), b"written")), out_of_scope(path), "{path}");
        assert_eq!(files_error(delete(&tree, path)), out_of_scope(path), "{path}");
    }
    fixture.check();
    // A write replaces the symlink itself, and a deletion removes the symlink itself.
    tree.write(&at("files/out"), b"replaced").unwrap();
    assert!(fs::symlink_metadata(fixture.host_path("files/out")).unwrap().file_type().is_file());
    delete(&tree, "files/out_directory").unwrap();
    delete(&tree, "files/middle").unwrap();
    assert_eq!(read(&tree, "files/d/real").unwrap(), "inside");
    fixture.check();
}

#[test]
fn file_with_hard_link_outside_is_out_of_scope() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    tree.write(&at("files/own"), b"own").unwrap();
    fs::create_dir(fixture.host_path("skills/s")).unwrap();
    fs::hard_link(fixture.host_path("files/own"), fixture.host_path("skills/s/twin")).unwrap();
    assert_eq!(read(&tree, "files/own").unwrap(), "own", "both links are in the tree");
    fs::hard_link(fixture.outside().join("canary"), fixture.host_path("files/alias")).unwrap();
    set_owner(&fixture.host_path("files/alias"));
    assert_eq!(files_error(read(&tree, "files/alias")), out_of_scope("files/alias"));
    assert_eq!(
        files_error(tree.edit(&at("files/alias"), CANARY, "", 1).and_then(Change::apply)),
        out_of_scope("files/alias")
    );
    assert_eq!(files_error(tree.download(&at("files/alias"))), out_of_scope("files/alias"));
    tree.write(&at("files/alias"), b"mine").unwrap();
    assert_eq!(fs::read_to_string(fixture.outside().join("canary")).unwrap(), CANARY);
    if is_root() {
        // A file of a user unrelated to this workspace.
        fs::write(fixture.host_path("files/foreign"), "theirs").unwrap();
        rustix::fs::chown(fixture.host_path("files/foreign"), Some(rustix::fs::Uid::from_raw(54_323)), None).unwrap();
        assert_eq!(files_error(read(&tree, "files/foreign")), out_of_scope("files/foreign"));
    }
}

#[test]
fn fifos_sockets_and_devices_are_not_opened() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    rustix::fs::mknodat(CWD, fixture.host_path("files/pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _listener = UnixListener::bind(fixture.host_path("files/socket")).unwrap();
    let mut all = vec!["files/pipe", "files/socket"];
    if is_root() {
        let zero = rustix::fs::makedev(1, 5);
        rustix::fs::mknodat(CWD, fixture.host_path("files/device"), FileType::CharacterDevice, Mode::RWXU, zero)
            .unwrap();
        all.push("files/device");
    }
    own_by_box(&fixture.host_path("files"));
    for path in all {
        assert_eq!(files_error(read(&tree, path)), FilesError::Irregular(path.to_owned()));
        assert_eq!(
            files_error(tree.edit(&at(path), "a", "b", 1).and_then(Change::apply)),
            FilesError::Irregular(path.to_owned())
        );
        assert_eq!(files_error(tree.download(&at(path))), FilesError::Irregular(path.to_owned()));
        assert_eq!(list(&tree, path), Vec::<String>::new());
        delete(&tree, path).unwrap();
    }
    assert_eq!(list(&tree, "files"), Vec::<String>::new());
}

#[test]
fn closed_directories_do_not_block_api() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    for path in ["files/a/b/file", "files/a/other", "files/gone/file"] {
        tree.write(&at(path), b"x").unwrap();
    }
    let close =
        |location: &str| fs::set_permissions(fixture.host_path(location), fs::Permissions::from_mode(0o000)).unwrap();
    for location in ["files/a/b/file", "files/a/b", "files/a", "files/gone"] {
        close(location);
    }
    assert_eq!(read(&tree, "files/a/b/file").unwrap(), "x");
    close("files/a/b");
    close("files/a");
    assert_eq!(list(&tree, "files/a"), ["files/a/b/file", "files/a/other"]);
    close("files/a/b");
    close("files/a");
    close("files");
    tree.write(&at("files/a/b/new"), b"y").unwrap();
    close("files/a/b");
    tree.edit(&at("files/a/b/new"), "y", "z", 1).and_then(Change::apply).unwrap();
    close("files/a/b");
    close("files/a");
    delete(&tree, "files/a/b/new").unwrap();
    delete(&tree, "files/gone").unwrap();
    delete(&tree, "files/a").unwrap();
    assert!(names(&fixture.host_path("files")).is_empty());
    assert!(fixture.staged().is_empty());
}

#[test]
fn delete_of_hostile_tree_follows_no_symlink() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    tree.write(&at("files/tree/a/file"), b"x").unwrap();
    symlink(fixture.outside(), fixture.host_path("files/tree/a/link")).unwrap();
    symlink(fixture.outside().join("canary"), fixture.host_path("files/tree/canary")).unwrap();
    let mut deep = fixture.host_path("files/tree/a");
    for _ in 0..200 {
        deep.push("deep");
        fs::create_dir(&deep).unwrap();
    }
    fs::write(deep.join("bottom"), "x").unwrap();
    own_by_box(&fixture.host_path("files"));
    assert_eq!(list(&tree, "files"), ["files/tree/a/file"], "paths that are too deep are not listed");
    delete(&tree, "files/tree").unwrap();
    assert!(names(&fixture.host_path("files")).is_empty());
    fixture.check();
}

#[test]
fn directory_is_downloaded_as_zip() {
    let fixture = Fixture::new();
    let tree = fixture.workspace.tree().unwrap();
    let long = "0123456789".repeat(100_000);
    for (path, content) in [("skills/技能/SKILL.md", "one"), ("skills/技能/a/b.py", &long), ("skills/技能/empty", "")]
    {
        tree.write(&at(path), content.as_bytes()).unwrap();
    }
    fs::create_dir_all(fixture.host_path("skills/技能/data/none yet")).unwrap();
    fs::set_permissions(fixture.host_path("skills/技能/a/b.py"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink(fixture.outside(), fixture.host_path("skills/技能/link")).unwrap();
    own_by_box(&fixture.host_path("skills"));
    let Download::Directory(archive) = tree.download(&at("skills/技能")).unwrap() else { panic!("no directory") };
    // Files that disappear before they are sent are skipped.
    delete(&tree, "skills/技能/empty").unwrap();
    assert_eq!(archive.name(), "技能");
    let mut bytes = Vec::new();
    archive.write(&mut bytes).unwrap();
    assert!(bytes.len() < 100_000, "the ZIP is not compressed");
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    let entries: Vec<String> = zip.file_names().map(|name| name.unwrap().into_owned()).collect();
    assert_eq!(entries, ["SKILL.md", "a/", "a/b.py", "data/", "data/none yet/"]);
    let mut content = String::new();
    let mut file = zip.by_name("a/b.py").unwrap();
    assert_eq!(file.unix_mode().unwrap() & 0o777, 0o755);
    file.read_to_string(&mut content).unwrap();
    assert_eq!(content, long);
    let Download::File { mut file, size } = tree.download(&at("skills/技能/SKILL.md")).unwrap() else {
        panic!("no file")
    };
    content.clear();
    file.read_to_string(&mut content).unwrap();
    assert_eq!((content.as_str(), size), ("one", 3));
    assert_eq!(files_error(tree.download(&at("files/none"))), FilesError::Missing("files/none".to_owned()));
}

#[test]
fn unplaced_file_is_swept() {
    let fixture = Fixture::new();
    let staged = fixture.workspace.stage().unwrap();
    assert_eq!(fixture.staged().len(), 1);
    // A killed server runs no destructor.
    std::mem::forget(staged);
    assert_eq!(fixture.workspaces.sweep(|_| false, |_| RecordEntry::Unknown).removed, 1);
    assert!(fixture.staged().is_empty());
    drop(fixture.workspace.stage().unwrap());
    assert!(fixture.staged().is_empty());
}
