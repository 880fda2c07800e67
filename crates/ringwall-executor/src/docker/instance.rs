//! Labels that identify our containers, so that they are found after a crash and no others are
//! touched.
//!
//! A data directory has a random id, kept in a file in it, so that two servers on one daemon do not
//! remove each other's containers. A maker is one [`Instance`] of a server process, named by PID,
//! start time (as in `cgroup`) and a counter. A container whose maker is dead is an orphan.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::name::ContainerName;
use crate::cgroup::layout;
use crate::error::Error;
use crate::kernel_file;

pub(crate) const DATA_LABEL: &str = "ringwall";
pub(crate) const OWNER_LABEL: &str = "ringwall.maker";
const EXEC_LABEL: &str = "ringwall.exec";
const FILE: &str = "instance-id";

#[derive(Debug, Clone)]
pub(crate) struct Instance {
    data: String,
    maker: String,
}

impl Instance {
    /// Reads the data directory's id, or creates it.
    pub(crate) fn of(data: &Path) -> Result<Self, Error> {
        let path = data.join(FILE);
        let found = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => name_directory(data, &path),
            other => other,
        };
        let data = found.map_err(|source| Error::InstanceFile { path: path.clone(), source })?.trim().to_owned();
        let is_plain = !data.is_empty() && data.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if !is_plain {
            return Err(Error::InstanceFile { path, source: ErrorKind::InvalidData.into() });
        }
        static MAKERS: AtomicU64 = AtomicU64::new(0);
        let number = MAKERS.fetch_add(1, Ordering::Relaxed);
        let maker = format!("{}-{}-{number}", std::process::id(), layout::own_start_time());
        Ok(Instance { data, maker })
    }

    /// The labels of a container that this maker starts.
    pub(crate) fn labels(&self, name: &ContainerName) -> [String; 3] {
        let exec = format!("{EXEC_LABEL}={}", name.exec_id());
        [self.data_label(), self.owner_label(), exec]
    }

    pub(crate) fn data_label(&self) -> String {
        format!("{DATA_LABEL}={}", self.data)
    }

    pub(crate) fn owner_label(&self) -> String {
        format!("{OWNER_LABEL}={}", self.maker)
    }

    /// A file name that identifies this maker, as its label does.
    pub(crate) fn name_of(&self, number: u64) -> String {
        format!("{}-{number}", self.maker)
    }

    /// Tells who made a container, from the value of its maker label.
    pub(crate) fn maker(&self, label: &str) -> ContainerOwner {
        if label == self.maker {
            return ContainerOwner::Ourselves;
        }
        let mut parts = label.split('-');
        let (pid, start) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let alive = match (pid.parse::<u32>(), start.parse::<u64>()) {
            (Ok(pid), Ok(start)) => layout::start_time(&pid.to_string()) == Some(start),
            // No server writes such a label.
            _ => false,
        };
        if alive { ContainerOwner::Alive } else { ContainerOwner::Gone }
    }

    #[cfg(test)]
    pub(crate) fn pretend() -> Self {
        Instance { data: "0b5e7c1e-data".to_owned(), maker: "7-1234-0".to_owned() }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ContainerOwner {
    Ourselves,
    Alive,
    Gone,
}

/// Concurrent callers each write a draft; the first to hard-link its draft sets the id for all.
fn name_directory(data: &Path, path: &Path) -> std::io::Result<String> {
    DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    let name = kernel_file::read("/proc/sys/kernel/random/uuid")?;
    let draft = data.join(format!("{FILE}.{}", name.trim()));
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?.write_all(name.as_bytes())?;
    let linked = std::fs::hard_link(&draft, path);
    std::fs::remove_file(&draft)?;
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => std::fs::read_to_string(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_name_and_has_no_other() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let path = one.path().join("data");
                std::thread::spawn(move || Instance::of(&path).unwrap().data)
            })
            .collect();
        let names: std::collections::BTreeSet<_> = threads.into_iter().map(|one| one.join().unwrap()).collect();
        assert_eq!(names.len(), 1, "eight concurrent callers get one id");
        assert!(!names.contains(&Instance::of(other.path()).unwrap().data));
        assert_eq!(std::fs::read_dir(one.path().join("data")).unwrap().count(), 1, "no draft is left");
        std::fs::write(other.path().join(FILE), "a=b\n--all").unwrap();
        assert!(matches!(Instance::of(other.path()), Err(Error::InstanceFile { .. })));
    }

    #[test]
    fn only_a_dead_makers_container_is_orphaned() {
        let directory = tempfile::tempdir().unwrap();
        let instance = Instance::of(directory.path()).unwrap();
        assert_eq!(instance.maker(&instance.maker), ContainerOwner::Ourselves);
        let another = Instance::of(directory.path()).unwrap();
        assert_eq!(instance.maker(&another.maker), ContainerOwner::Alive, "another instance of the same process");
        let init = format!("1-{}-0", layout::start_time("1").unwrap());
        assert_eq!(instance.maker(&init), ContainerOwner::Alive);
        for gone in ["1-1-0", "4194305-1-0", "", "x-y", "self-1", "1"] {
            assert_eq!(instance.maker(gone), ContainerOwner::Gone, "{gone}");
        }
    }
}
