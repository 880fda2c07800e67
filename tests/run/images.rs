//! `ringwall image`: import from each kind of archive, list and remove; boxes with an image.

use serde_json::Value;
use tests::support::actor::Mode;
use tests::support::process::run;

use crate::modes::in_both_modes;
use crate::product::{assert_refused, ringwall_command};
use crate::rootfs::{Store, fingerprint};

in_both_modes!(
    plain_gzip_and_zstd_archives_give_the_same_image,
    archive_is_imported_from_standard_input,
    images_are_listed,
    box_has_the_root_of_the_image,
    image_root_is_writable_and_private,
    workspace_and_read_only_directories_are_mounted_on_an_image,
    second_import_of_a_name_is_refused,
    removed_image_is_gone,
    invalid_archive_is_refused,
);

const SAME: &str = "%P %y %m %s %l\n";

fn shape(store: &Store, name: &str) -> String {
    let find = std::process::Command::new("find").arg(store.rootfs(name)).args(["-printf", SAME]).output().unwrap();
    let mut lines: Vec<_> = String::from_utf8(find.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

fn plain_gzip_and_zstd_archives_give_the_same_image(mode: Mode) {
    let store = Store::empty(mode);
    let mut shapes = Vec::new();
    for (name, flags) in [("plain", &[][..]), ("gzip", &["-z"]), ("zstd", &["--zstd"])] {
        let archive = store.tiny_archive(name, flags);
        let outcome = store.image(&["import", name, archive.to_str().unwrap()]);
        assert_eq!(outcome.code(), Some(0), "{}", outcome.describe());
        assert!(outcome.text().starts_with(&format!("imported {name}: ")), "{}", outcome.describe());
        assert_eq!(outcome.errors(), "", "a progress bar without a terminal");
        shapes.push(shape(&store, name));
        assert_eq!(store.run(&["--image", name, "--", "/bin/cat", "/etc/motd"]).text(), "a tiny system\n");
    }
    assert!(shapes[0].contains("bin/busybox f"), "{}", shapes[0]);
    assert_eq!((&shapes[1], &shapes[2]), (&shapes[0], &shapes[0]));
}

fn archive_is_imported_from_standard_input(mode: Mode) {
    let store = Store::empty(mode);
    let bytes = std::fs::read(store.tiny_archive("tiny.tar.gz", &["-z"])).unwrap();
    let mut command = ringwall_command(mode);
    command.args(["image", "import", "tiny", "-", "--data"]).arg(store.data());
    let outcome = run(command, Some(&bytes)).unwrap();
    assert_eq!(outcome.code(), Some(0), "{}", outcome.describe());
    assert_eq!(store.script("echo runs").text(), "runs\n");
}

fn images_are_listed(mode: Mode) {
    let store = Store::empty(mode);
    assert_eq!(store.image(&["list"]).code(), Some(0));
    assert_eq!(store.image(&["list", "--json"]).text().trim(), "[]");
    let archive = store.tiny_archive("archive.tar", &[]);
    for name in ["zebra", "adder-1.0_x"] {
        assert_eq!(store.image(&["import", name, archive.to_str().unwrap()]).code(), Some(0));
    }
    let table = store.image(&["list"]).text();
    let rows: Vec<_> = table.lines().map(|line| line.split_whitespace().next().unwrap_or("")).collect();
    assert_eq!(rows, ["NAME", "adder-1.0_x", "zebra"], "{table}");
    let list: Value = serde_json::from_slice(&store.image(&["list", "--json"]).stdout).unwrap();
    let list = list.as_array().unwrap();
    assert_eq!(list.len(), 2);
    for image in list {
        assert_eq!(image["source"], "archive.tar");
        assert!(image["bytes"].as_u64().unwrap() > 100_000 && image["entries"].as_u64().unwrap() > 20, "{image}");
        assert!(image["imported_at"].as_u64().unwrap() > 1_600_000_000, "{image}");
    }
}

fn box_has_the_root_of_the_image(mode: Mode) {
    let store = Store::with_tiny(mode);
    let outcome = store.script("pwd; cat /etc/motd; id -u; ls /; test -e /usr/bin && echo host; exit 4");
    assert_eq!(outcome.code(), Some(4), "{}", outcome.describe());
    let text = outcome.text();
    assert!(text.starts_with("/workspace\na tiny system\n1000\n"), "{text}");
    let names: Vec<_> = text.lines().skip(3).collect();
    for name in ["bin", "dev", "etc", "home", "proc", "tmp", "workspace"] {
        assert!(names.contains(&name), "{name} is not in {text}");
    }
    assert!(!names.contains(&"host"), "the box has the host's /usr");
    assert_eq!(store.run(&["--image", "tiny", "--", "/bin/gcc"]).code(), Some(127));
}

fn image_root_is_writable_and_private(mode: Mode) {
    let store = Store::with_tiny(mode);
    let before = fingerprint(&store.data());
    let outcome = store.script(
        "echo mine > /file && echo more >> /etc/motd && rm /bin/find && mkdir /var/a && mv /usr/lib /usr/other && \
         chmod 700 /root && touch /bin/busybox && cat /file /etc/motd && ls /usr",
    );
    assert_eq!(outcome.code(), Some(0), "{}", outcome.describe());
    assert_eq!(outcome.text(), "mine\na tiny system\nmore\nother\n");
    let again = store.script("ls /file /var/a; cat /etc/motd; ls /bin/find /usr");
    assert_eq!(again.text(), "a tiny system\n/bin/find\n\n/usr:\nlib\n", "{}", again.describe());
    assert_eq!(fingerprint(&store.data()), before, "the stored image changed");
}

fn workspace_and_read_only_directories_are_mounted_on_an_image(mode: Mode) {
    let store = Store::with_tiny(mode);
    let work = store.scratch.directory("work").unwrap();
    let shown = store.scratch.directory("shown").unwrap();
    store.scratch.file("shown/file", b"shown\n", 0o644).unwrap();
    let script = format!("echo made > made; cat {0}/file; echo x > {0}/new", shown.display());
    let outcome = store.run(&[
        "--image",
        "tiny",
        "--workspace",
        work.to_str().unwrap(),
        "--ro",
        shown.to_str().unwrap(),
        "--",
        "/bin/sh",
        "-c",
        &script,
    ]);
    assert_eq!(outcome.text(), "shown\n", "{}", outcome.describe());
    assert!(work.join("made").exists() && !shown.join("new").exists(), "{}", outcome.describe());
}

fn second_import_of_a_name_is_refused(mode: Mode) {
    let store = Store::with_tiny(mode);
    let before = fingerprint(&store.data());
    let archive = store.tiny_archive("again.tar", &[]);
    let outcome = store.image(&["import", "tiny", archive.to_str().unwrap()]);
    assert_refused(&outcome, "tiny");
    assert!(outcome.errors().contains("\n  hint: "), "{}", outcome.describe());
    assert_eq!(fingerprint(&store.data()), before);
}

fn removed_image_is_gone(mode: Mode) {
    let store = Store::with_tiny(mode);
    assert_eq!(store.image(&["rm", "tiny"]).text(), "removed tiny\n");
    assert!(!store.rootfs("tiny").exists());
    assert_eq!(store.image(&["list", "--json"]).text().trim(), "[]");
    assert_refused(&store.script("true"), "there is no image named `tiny`");
    assert_refused(&store.image(&["rm", "tiny"]), "there is no image named `tiny`");
    // The name can be used again.
    let archive = store.tiny_archive("again.tar", &[]);
    assert_eq!(store.image(&["import", "tiny", archive.to_str().unwrap()]).code(), Some(0));
}

fn invalid_archive_is_refused(mode: Mode) {
    let store = Store::empty(mode);
    store.scratch.file("text", b"not an archive, only a sentence that goes on for a while\n", 0o644).unwrap();
    store.scratch.file("nothing", b"", 0o644).unwrap();
    let whole = std::fs::read(store.tiny_archive("whole.tar.gz", &["-z"])).unwrap();
    store.scratch.file("half", &whole[..whole.len() / 2], 0o644).unwrap();
    for name in ["text", "nothing", "half", "missing", "."] {
        let path = store.scratch.join(name);
        let outcome = store.image(&["import", "bad", path.to_str().unwrap()]);
        assert_refused(&outcome, "ringwall: ");
        assert!(outcome.errors().contains("\n  hint: "), "{}", outcome.describe());
    }
    assert_eq!(store.image(&["list", "--json"]).text().trim(), "[]");
    let images = store.data().join("images");
    let left =
        std::fs::read_dir(&images).map_or(0, |entries| entries.flatten().filter(|entry| entry.path().is_dir()).count());
    assert_eq!(left, 0, "a partial import is left in {}", images.display());
}
