//! A small root file system with a static busybox, and archives of it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use tests::support::actor::Mode;
use tests::support::process::Outcome;
use tests::support::scratch::{Scratch, give};

use crate::product::run_ringwall;

const BUSYBOX: &str = "/bin/busybox";
const LINKS: [&str; 14] =
    ["sh", "cat", "ls", "echo", "env", "id", "rm", "touch", "mkdir", "stat", "mv", "chmod", "readlink", "find"];

/// A data directory, with or without the image `tiny`.
pub(crate) struct Store {
    pub(crate) mode: Mode,
    pub(crate) scratch: Scratch,
}

impl Store {
    pub(crate) fn empty(mode: Mode) -> Self {
        let scratch = Scratch::inside("/var/tmp".as_ref(), mode.identity()).unwrap();
        Self { mode, scratch }
    }

    pub(crate) fn with_tiny(mode: Mode) -> Self {
        let store = Self::empty(mode);
        let archive = store.tiny_archive("tiny.tar", &[]);
        let outcome = store.image(&["import", "tiny", archive.to_str().unwrap()]);
        assert_eq!(outcome.code(), Some(0), "{}", outcome.describe());
        store
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.scratch.join("data")
    }

    /// The stored root file system of an image.
    pub(crate) fn rootfs(&self, name: &str) -> PathBuf {
        self.data().join("images").join(name).join("rootfs")
    }

    /// Runs `ringwall image …` on this store.
    pub(crate) fn image(&self, arguments: &[&str]) -> Outcome {
        run_ringwall(self.mode, &[&["image", "--data", self.data().to_str().unwrap()], arguments].concat())
    }

    /// Runs `ringwall run` on this store, with flags and the command.
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        run_ringwall(self.mode, &[&["run", "--data", self.data().to_str().unwrap()], arguments].concat())
    }

    /// Runs a script in a box with the image `tiny`.
    pub(crate) fn script(&self, script: &str) -> Outcome {
        self.run(&["--image", "tiny", "--", "/bin/sh", "-c", script])
    }

    /// Creates an archive of the small root file system; `flags` are tar's.
    pub(crate) fn tiny_archive(&self, name: &str, flags: &[&str]) -> PathBuf {
        let tree = self.scratch.join("tree");
        if !tree.exists() {
            create_tree(&tree);
        }
        let archive = self.scratch.join(name);
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&tree).args(["--owner=0", "--group=0", "--numeric-owner"]).args(flags);
        assert!(tar.arg("-cf").arg(&archive).arg(".").status().unwrap().success());
        give(&archive, self.mode.identity()).unwrap();
        archive
    }

    /// Creates an archive with exactly these members, of any kind and name, with Python's tarfile.
    pub(crate) fn crafted_archive(&self, name: &str, members: &str) -> PathBuf {
        const CRAFT: &str = r"
import io, json, sys, tarfile
with tarfile.open(sys.argv[1], 'w') as archive:
    for name, kind, value in json.loads(sys.argv[2]):
        member = tarfile.TarInfo(name)
        member.type = {'file': tarfile.REGTYPE, 'link': tarfile.SYMTYPE, 'hard': tarfile.LNKTYPE,
                       'directory': tarfile.DIRTYPE, 'device': tarfile.CHRTYPE}[kind]
        member.mode = 0o755
        content = b''
        if kind in ('link', 'hard'):
            member.linkname = value
        elif kind == 'device':
            member.devmajor, member.devminor = 1, 3
        elif kind == 'file':
            content = value.encode()
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
";
        let archive = self.scratch.join(name);
        let mut python = Command::new("/usr/bin/python3");
        assert!(python.args(["-I", "-c", CRAFT]).arg(&archive).arg(members).status().unwrap().success());
        give(&archive, self.mode.identity()).unwrap();
        archive
    }
}

fn create_tree(tree: &Path) {
    assert!(Path::new(BUSYBOX).exists(), "{BUSYBOX} is missing: install busybox-static");
    for directory in ["", "bin", "etc", "usr", "usr/lib", "root", "var", "home"] {
        fs::create_dir(tree.join(directory)).unwrap();
        fs::set_permissions(tree.join(directory), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::copy(BUSYBOX, tree.join("bin/busybox")).unwrap();
    for name in LINKS {
        symlink("busybox", tree.join("bin").join(name)).unwrap();
    }
    fs::write(tree.join("etc/motd"), "a tiny system\n").unwrap();
    fs::set_permissions(tree.join("etc/motd"), fs::Permissions::from_mode(0o644)).unwrap();
}

/// Every path below a directory with its kind, mode, owner, time, link target and content, sorted.
pub(crate) fn fingerprint(directory: &Path) -> String {
    let list = Command::new("find").arg(directory).args(["-printf", "%P %y %m %U:%G %s %T@ %l\n"]).output().unwrap();
    let mut lines: Vec<_> = String::from_utf8(list.stdout).unwrap().lines().map(str::to_owned).collect();
    lines.sort();
    let sums = Command::new("sh")
        .args(["-c", "find . -type f -print0 | sort -z | xargs -0 sha256sum"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(list.status.success() && sums.status.success());
    lines.push(String::from_utf8(sums.stdout).unwrap());
    lines.join("\n")
}
