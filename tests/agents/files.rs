//! The file routes of contract 000: requests, responses, and files on disk.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::client::{encode, file_part, text_part};
use crate::fixture::Fixture;

fn page(content: &str, lines: &[&str]) -> Value {
    json!({ "content": content, "lines": lines })
}

pub(crate) fn written_file_is_read_unchanged(fixture: &Fixture) {
    let agent = fixture.workspace();
    for (content, lines) in [
        ("a\nb\n", &["a", "b"][..]),
        ("a\nb", &["a", "b"]),
        ("", &[]),
        ("\n", &[""]),
        ("a\n\n", &["a", ""]),
        ("\u{feff}ü 文件\t\u{0}x\n", &["\u{feff}ü 文件\t\u{0}x"]),
    ] {
        assert_eq!(
            agent.write("files/x", content).success(),
            "Successfully created or overwritten file: files/x",
            "{content:?}"
        );
        assert_eq!(agent.content("files/x").success(), page(content, lines), "{content:?}");
        assert_eq!(fs::read(agent.on_disk("files/x")).unwrap(), content.as_bytes());
    }
    agent.put("files/x", "one\r\ntwo\r\n");
    assert_eq!(agent.text("files/x"), "one\r\ntwo\r\n");
}

pub(crate) fn page_lines_are_counted_from_one(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("files/x", "a\nb\nc\n");
    for (query, content, lines) in [
        ("&offset=1", "a\nb\nc\n", &["a", "b", "c"][..]),
        ("&offset=2", "b\nc\n", &["b", "c"]),
        ("&limit=1", "a", &["a"]),
        ("&limit=2", "a\nb", &["a", "b"]),
        ("&limit=3", "a\nb\nc\n", &["a", "b", "c"]),
        ("&limit=99", "a\nb\nc\n", &["a", "b", "c"]),
        ("&offset=2&limit=1", "b", &["b"]),
        ("&offset=3&limit=1", "c\n", &["c"]),
        ("&offset=4", "", &[]),
        ("&offset=4&limit=1", "", &[]),
        ("&offset=9223372036854775807&limit=9223372036854775807", "", &[]),
    ] {
        assert_eq!(agent.page("files/x", query).success(), page(content, lines), "{query}");
    }
    agent.put("files/x", "a\n\nc");
    for (query, content, lines) in
        [("&offset=3", "c", &["c"][..]), ("&offset=2&limit=1", "", &[""]), ("&offset=2", "\nc", &["", "c"])]
    {
        assert_eq!(agent.page("files/x", query).success(), page(content, lines), "{query}");
    }
    for query in ["&offset=0", "&limit=0", "&offset=-1", "&limit=-1", "&offset=x", "&offset=", "&offset=1.5"] {
        agent.page("files/x", query).expect_error(400);
    }
}

pub(crate) fn unreadable_path_is_reported(fixture: &Fixture) {
    let agent = fixture.workspace();
    assert_eq!(agent.content("files/none").expect_error(404), "Path not found: files/none");
    assert_eq!(agent.content("skills/none/x.py").expect_error(404), "Path not found: skills/none/x.py");
    assert_eq!(agent.page("files/none", "&offset=1").expect_error(404), "Path not found: files/none");
    agent.upload("odd", b"good\n\xff\xfe\nbad").success();
    for query in ["", "&offset=2", "&offset=2&limit=1"] {
        let message = agent.page("files/odd", query).expect_error(400);
        assert!(message.contains("UTF-8"), "{message}");
    }
    assert_eq!(agent.page("files/odd", "&limit=1").success(), page("good", &["good"]));
    agent.put("files/directory/x", "");
    agent.content("files/directory").expect_error(400);
    agent.content("files/directory/x/y").expect_error_of(&[400, 404]);
}

pub(crate) fn write_creates_parent_directories(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("files/a/b/c/deep.txt", "deep");
    assert_eq!(agent.text("files/a/b/c/deep.txt"), "deep");
    agent.put("files/a/b/c/deep.txt", "d");
    assert_eq!(agent.text("files/a/b/c/deep.txt"), "d");
    agent.put("skills/s/SKILL.md", "name: s\n");
    agent.put("skills/s/lib/x.py", "1");
    // An existing file or directory in the path is not replaced.
    agent.write("files/a/b", "x").expect_error_of(&[400, 409]);
    agent.write("files/a/b/c/deep.txt/x", "x").expect_error_of(&[400, 409]);
    for directory in ["files", "skills", "files/", "skills/"] {
        agent.write(directory, "x").expect_error_of(&[400, 403]);
    }
    assert_eq!(agent.listed("files"), ["files/a/b/c/deep.txt"]);
    // Names that contain dots without being `..`, and names in several scripts.
    for name in ["files/a..b.txt", "files/..x", "files/x..", "files/…", "files/文件 名.txt", "files/-rf", "files/~"]
    {
        agent.put(name, name);
        assert_eq!(agent.text(name), name);
    }
    // Names are case-sensitive.
    agent.put("files/Case", "upper");
    agent.put("files/case", "lower");
    assert_eq!((agent.text("files/Case").as_str(), agent.text("files/case").as_str()), ("upper", "lower"));
}

pub(crate) fn edit_with_wrong_count_changes_nothing(fixture: &Fixture) {
    let agent = fixture.workspace();
    agent.put("files/x", "aaa b aaa\n");
    assert_eq!(agent.edit("files/x", "b", "c", None).success(), "Successfully edited file: files/x");
    assert_eq!(agent.text("files/x"), "aaa c aaa\n");
    // Matches do not overlap: `aa` occurs twice in `aaa c aaa`.
    for (old, expected, found, wanted) in
        [("a", None, 6, 1), ("aa", Some(4), 2, 4), ("z", None, 0, 1), ("c", Some(2), 1, 2), ("AAA", None, 0, 1)]
    {
        let message = agent.edit("files/x", old, "-", expected).expect_error(409);
        let expected_message = format!(
            "Edit Mismatch: '{old}' found {found} times, but expected {wanted} times. Please refine your search string."
        );
        assert_eq!(message, expected_message);
        assert_eq!(agent.text("files/x"), "aaa c aaa\n", "a rejected edit changed the file");
    }
    agent.edit("files/x", "aa", "1", Some(2)).success();
    assert_eq!(agent.text("files/x"), "1a c 1a\n");
    // Inserted text is not searched again.
    agent.edit("files/x", "1", "11", Some(2)).success();
    assert_eq!(agent.text("files/x"), "11a c 11a\n");
    agent.edit("files/x", " c ", "", None).success();
    agent.edit("files/x", "\n", "\r\nü\n", None).success();
    assert_eq!(agent.text("files/x"), "11a11a\r\nü\n");
    assert_eq!(
        agent.edit("files/x", "", "x", None).expect_error(403),
        "Security Error: 'old_string' cannot be empty for replacement operation."
    );
    assert_eq!(agent.edit("files/none", "a", "b", None).expect_error(404), "Path not found: files/none");
    agent.upload("odd", b"\xff").success();
    agent.edit("files/odd", "a", "b", None).expect_error_of(&[400, 409]);
}

pub(crate) fn list_contains_sorted_regular_files(fixture: &Fixture) {
    let agent = fixture.workspace();
    assert_eq!(agent.listed("files"), [""; 0]);
    assert_eq!(agent.listed("skills"), [""; 0]);
    assert_eq!(agent.listed("files/none"), [""; 0]);
    for name in ["files/b", "files/a/z", "files/a/b/c", "files/a.txt", "files/Z", "files/.hidden"] {
        agent.put(name, "");
    }
    agent.script("cd files; ln -s b link; mkdir empty; mkfifo pipe; ln -s a into");
    let expected = ["files/.hidden", "files/Z", "files/a.txt", "files/a/b/c", "files/a/z", "files/b"];
    assert_eq!(agent.listed("files"), expected);
    assert_eq!(agent.listed("files/"), expected);
    assert_eq!(agent.listed("files/a"), ["files/a/b/c", "files/a/z"]);
    assert_eq!(agent.listed("files/a/b/"), ["files/a/b/c"]);
    assert_eq!(agent.listed("files/empty"), [""; 0]);
    agent.put("skills/s/SKILL.md", "");
    assert_eq!(agent.listed("skills"), ["skills/s/SKILL.md"]);
    agent.client.get(&format!("/v1/{}/files", agent.agent)).expect_error(400);
}

pub(crate) fn delete_removes_directory_tree(fixture: &Fixture) {
    let agent = fixture.workspace();
    for name in ["files/a", "files/d/1", "files/d/e/2", "files/kept"] {
        agent.put(name, "");
    }
    assert_eq!(agent.delete("files/a").success(), "Successfully deleted path: files/a");
    assert_eq!(agent.delete("files/d").success(), "Successfully deleted path: files/d");
    assert_eq!(agent.delete("files/d").expect_error(404), "Path not found: files/d");
    for whole in ["files", "skills", "files/", "skills/", "files/.", "files//", "skills/./"] {
        agent.delete(whole).expect_error_of(&[400, 403]);
    }
    assert_eq!(agent.listed("files"), ["files/kept"]);
    assert!(!agent.on_disk("files/d").exists());
}

pub(crate) fn upload_uses_base_name(fixture: &Fixture) {
    let agent = fixture.workspace();
    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert_eq!(agent.upload("raw.bin", &bytes).success(), "File uploaded successfully: files/raw.bin");
    assert_eq!(fs::read(agent.on_disk("files/raw.bin")).unwrap(), bytes);
    for (given, kept) in [
        ("../../../etc/passwd", "passwd"),
        ("/etc/shadow", "shadow"),
        ("a/b/c.txt", "c.txt"),
        ("文件.txt", "文件.txt"),
        ("SKILL.md", "SKILL.md"),
        ("a..b", "a..b"),
    ] {
        assert_eq!(agent.upload(given, b"x").success(), format!("File uploaded successfully: files/{kept}"), "{given}");
        assert_eq!(fs::read(agent.on_disk("files").join(kept)).unwrap(), b"x");
    }
    agent.upload("raw.bin", b"new").success();
    assert_eq!(fs::read(agent.on_disk("files/raw.bin")).unwrap(), b"new");
    let count = agent.listed("files").len();
    for nameless in ["", "..", ".", "a/..", "a/", &"x".repeat(256)] {
        agent.upload(nameless, b"x").expect_error_of(&[400, 403]);
    }
    let route = format!("/v1/files/{}/upload", agent.agent);
    agent.client.send_form(&route, &[]).expect_error(400);
    agent.client.send_form(&route, &[&text_part("file", "no file")]).expect_error(400);
    let other = [b"Content-Disposition: form-data; name=\"other\"; filename=\"x\"\r\n\r\nx".as_slice()];
    agent.client.send_form(&route, &other).expect_error(400);
    agent.client.post(&route, &json!({ "file": "x" })).expect_error_of(&[400, 415]);
    assert_eq!(agent.listed("files").len(), count, "a rejected upload left a file");
    // Other parts of the form are ignored.
    agent.client.send_form(&route, &[&text_part("note", "x"), &file_part(b"beside", b"1")]).success();
}

pub(crate) fn download_returns_file_or_zip(fixture: &Fixture) {
    let agent = fixture.workspace();
    let bytes: Vec<u8> = (0..=255).rev().cycle().take(3_000_000).collect();
    agent.upload("raw.bin", &bytes).success();
    let (status, _, found) = agent.download("files/raw.bin");
    assert!(status == 200 && found == bytes, "{status}, {} bytes", found.len());
    agent.put("files/d/empty", "");
    agent.put("files/d/文件", "text");
    agent.put("files/d/e/deep", "deep");
    agent.script("cd files/d; ln -s /etc/passwd out; ln -s e/deep in; mkfifo pipe");
    let (status, kind, archive) = agent.download("files/d");
    assert_eq!((status, kind.as_str()), (200, "application/zip"));
    // Checked with Python's `zipfile`.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("x.zip");
    fs::write(&path, archive).unwrap();
    let read = "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nassert z.testzip() is None\n\
        print(sorted((i.filename.split('/', 1)[-1] if i.filename.startswith('d/') else i.filename, z.read(i).decode()) \
        for i in z.infolist() if not i.is_dir()))";
    let shown = Command::new("/usr/bin/python3").args(["-c", read]).arg(&path).output().unwrap();
    let expected = "[('e/deep', 'deep'), ('empty', ''), ('文件', 'text')]\n";
    assert_eq!(String::from_utf8_lossy(&shown.stdout), expected, "{shown:?}");
    let route = |path: &str| format!("/v1/{}/download?path={}", agent.agent, encode(path));
    assert_eq!(agent.client.get(&route("files/none")).expect_error(404), "Path not found: files/none");
    agent.client.get(&route("files/d/pipe")).expect_error(400);
    agent.client.get(&route("files/d/out")).expect_error(403);
}
