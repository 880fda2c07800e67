//! Tests with hostile archives, written byte by byte, and a canary file beside the store.
//!
//! The result of an import is not enough: after each one the canary is compared, the directory
//! beside the data directory is listed, and no hidden directory may remain among the images.

mod bounds;
mod compression;
mod lifecycle;
mod links;
mod mutations;
mod names;
mod ordinary;
mod sparse_members;

use std::fs;
use std::path::PathBuf;

use ringwall_policy::ImageName;

use super::{ImageError, ImageInfo, Store};

const CANARY: &str = "nobody touched me";

/// Builds a tar archive by hand, including ones that no tool would write.
#[derive(Clone, Default)]
struct Archive(Vec<u8>);

impl Archive {
    /// The usual directories and files of a root file system with a merged /usr.
    fn root() -> Self {
        Self::default()
            .directory("./", 0o700)
            .directory("usr/", 0o755)
            .directory("usr/bin/", 0o755)
            .symlink("bin", "usr/bin")
            .file("usr/bin/sh", 0o755, b"#!shell")
            .directory("etc/", 0o755)
            .file("etc/passwd", 0o644, b"root:x:0:0::/root:/bin/sh\n")
    }

    fn entry(self, kind: u8, name: &[u8], link: &[u8], mode: u32, content: &[u8]) -> Self {
        self.declared(kind, name, link, mode, content.len() as u64, content)
    }

    /// An entry whose header may declare another size than its content has.
    fn declared(self, kind: u8, name: &[u8], link: &[u8], mode: u32, size: u64, content: &[u8]) -> Self {
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name);
        header[100..107].copy_from_slice(format!("{mode:07o}").as_bytes());
        header[108..115].copy_from_slice(b"0001750");
        header[116..123].copy_from_slice(b"0001750");
        if size < 1 << 33 {
            header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        } else {
            header[124] = 0x80;
            header[128..136].copy_from_slice(&size.to_be_bytes());
        }
        header[136..147].copy_from_slice(format!("{:011o}", 1_000_000_000).as_bytes());
        header[156] = kind;
        header[157..157 + link.len()].copy_from_slice(link);
        header[257..265].copy_from_slice(b"ustar\x0000");
        self.block(header).padded(content)
    }

    /// A header block, with a correct checksum.
    fn block(mut self, mut header: [u8; 512]) -> Self {
        seal(&mut header);
        self.0.extend_from_slice(&header);
        self
    }

    fn padded(mut self, content: &[u8]) -> Self {
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn file(self, name: &str, mode: u32, content: &[u8]) -> Self {
        self.entry(b'0', name.as_bytes(), b"", mode, content)
    }

    fn directory(self, name: &str, mode: u32) -> Self {
        self.entry(b'5', name.as_bytes(), b"", mode, b"")
    }

    fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(b'2', name.as_bytes(), target.as_bytes(), 0o777, b"")
    }

    fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(b'1', name.as_bytes(), target.as_bytes(), 0o644, b"")
    }

    fn long_name(self, name: &[u8]) -> Self {
        self.entry(b'L', b"././@LongLink", b"", 0o644, &[name, b"\0"].concat())
    }

    fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let content: Vec<u8> = records.iter().flat_map(|(key, value)| pax_record(key, value)).collect();
        self.entry(b'x', b"PaxHeaders/x", b"", 0o644, &content)
    }

    fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

fn seal(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = 1 + key.len() + 1 + value.len() + 1;
    let mut length = rest + 1;
    while length.to_string().len() + rest != length {
        length += 1;
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// A store in a temporary directory, with a canary beside it that must not change.
struct Fixture {
    directory: tempfile::TempDir,
    store: Store,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("outside")).unwrap();
        fs::write(directory.path().join("outside/canary"), CANARY).unwrap();
        let store = Store::open(&directory.path().join("data"));
        Self { directory, store }
    }

    /// Imports under the name `box`, and checks the canary in any case.
    fn import(&self, archive: &[u8]) -> Result<ImageInfo, ImageError> {
        let outcome = self.store.import(&name("box"), "test.tar", archive, &mut |_| {});
        self.check();
        if outcome.is_err() {
            assert_eq!(self.names(), [".lock"], "a refused archive left something");
        }
        outcome
    }

    /// The error and hint of a refused archive, as the operator sees them.
    fn refusal(&self, archive: &[u8]) -> String {
        let error = self.import(archive).expect_err("the archive was accepted");
        assert!(!error.hint().is_empty());
        error.to_string()
    }

    fn check(&self) {
        assert!(self.intact(), "something was written outside");
        let hidden: Vec<_> = self.names().into_iter().filter(|name| name.starts_with(".importing")).collect();
        assert!(hidden.is_empty(), "left behind: {hidden:?}");
    }

    fn intact(&self) -> bool {
        let list = |path: &str| {
            let mut names: Vec<_> = fs::read_dir(self.directory.path().join(path))
                .unwrap()
                .map(|entry| entry.unwrap().file_name())
                .collect();
            names.sort();
            names
        };
        fs::read_to_string(self.outside("canary")).is_ok_and(|content| content == CANARY)
            && list("outside") == ["canary"]
            && list("") == ["data", "outside"]
            && list("data") == ["images"]
    }

    fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join("outside").join(name)
    }

    /// A path inside the imported image.
    fn inside(&self, path: &str) -> PathBuf {
        self.store.find(&name("box")).unwrap().join(path)
    }

    fn images(&self) -> PathBuf {
        self.directory.path().join("data/images")
    }

    /// Entries of the images directory; empty if the store refused before creating it.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.images())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        if !names.iter().any(|name| name == ".lock") {
            names.push(".lock".into());
        }
        names.sort();
        names
    }
}

fn name(text: &str) -> ImageName {
    text.parse().unwrap()
}
