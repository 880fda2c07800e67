//! Names and labels of our containers, so that they are found after a crash and no others are
//! touched.
//!
//! A container is named after its exec, so that `docker ps` shows which exec it belongs to. A data
//! directory has a random id, kept in a file in it, so that two servers on one daemon do not remove
//! each other's containers. The owner of a container is one [`Instance`] of a server process, named
//! by PID, start time (as in `cgroup`) and a counter. A container whose owner is dead is an orphan.

use std::fmt;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cgroup::layout;
use crate::error::Error;

pub(crate) const DATA_LABEL: &str = "ringwall";
pub(crate) const OWNER_LABEL: &str = "ringwall.maker";
const EXEC_LABEL: &str = "ringwall.exec";
const FILE: &str = "instance-id";
const NAME_PREFIX: &str = "ringwall-";
const MAX_EXEC_ID: usize = 64;

#[derive(Debug, Clone)]
pub(crate) struct Instance {
    data: String,
    owner: String,
}

impl Instance {
    /// Reads the data directory's id, or creates it.
    pub(crate) fn of(data: &Path) -> Result<Self, Error> {
        let path = data.join(FILE);
        let found = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => create_id(data, &path),
            other => other,
        };
        let data = found.map_err(|source| Error::InstanceFile { path: path.clone(), source })?.trim().to_owned();
        let is_plain = !data.is_empty() && data.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if !is_plain {
            return Err(Error::InstanceFile { path, source: ErrorKind::InvalidData.into() });
        }
        static INSTANCES: AtomicU64 = AtomicU64::new(0);
        let number = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let owner = format!("{}-{}-{number}", std::process::id(), layout::own_start_time());
        Ok(Instance { data, owner })
    }

    /// The labels of a container that this instance starts.
    pub(crate) fn labels(&self, name: &ContainerName) -> [String; 3] {
        let exec = format!("{EXEC_LABEL}={}", name.exec_id());
        [self.data_label(), self.owner_label(), exec]
    }

    pub(crate) fn data_label(&self) -> String {
        format!("{DATA_LABEL}={}", self.data)
    }

    pub(crate) fn owner_label(&self) -> String {
        format!("{OWNER_LABEL}={}", self.owner)
    }

    /// A file name that identifies this instance, as its label does.
    pub(crate) fn file_name(&self, number: u64) -> String {
        format!("{}-{number}", self.owner)
    }

    /// The owner of a container, from the value of its label [`OWNER_LABEL`].
    pub(crate) fn owner_of(&self, label: &str) -> ContainerOwner {
        if label == self.owner {
            return ContainerOwner::Ourselves;
        }
        match layout::owner_lives(label) {
            Some(true) => ContainerOwner::Alive,
            // No server writes a label without PID and start time.
            Some(false) | None => ContainerOwner::Gone,
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Instance { data: "0b5e7c1e-data".to_owned(), owner: "7-1234-0".to_owned() }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ContainerOwner {
    Ourselves,
    Alive,
    Gone,
}

/// A name that docker accepts and that cannot be mistaken for an option.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ContainerName(String);

impl ContainerName {
    pub(crate) fn of_exec(exec_id: &str) -> Result<Self, Error> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if exec_id.is_empty() || exec_id.len() > MAX_EXEC_ID || !exec_id.bytes().all(is_plain) {
            return Err(Error::ExecIdMalformed(exec_id.chars().take(MAX_EXEC_ID).collect()));
        }
        Ok(ContainerName(format!("{NAME_PREFIX}{exec_id}")))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn exec_id(&self) -> &str {
        self.0.strip_prefix(NAME_PREFIX).unwrap_or_default()
    }
}

impl fmt::Display for ContainerName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Concurrent callers each write a draft; the first to hard-link its draft sets the id for all.
fn create_id(data: &Path, path: &Path) -> std::io::Result<String> {
    DirBuilder::new().recursive(true).mode(0o700).create(data)?;
    let name = std::fs::read_to_string("/proc/sys/kernel/random/uuid")?;
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
    fn data_directory_keeps_its_own_id() {
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
    fn only_container_of_dead_owner_is_orphan() {
        let directory = tempfile::tempdir().unwrap();
        let instance = Instance::of(directory.path()).unwrap();
        assert_eq!(instance.owner_of(&instance.owner), ContainerOwner::Ourselves);
        let another = Instance::of(directory.path()).unwrap();
        assert_eq!(instance.owner_of(&another.owner), ContainerOwner::Alive, "another instance of the same process");
        let init = format!("1-{}-0", layout::start_time("1").unwrap());
        assert_eq!(instance.owner_of(&init), ContainerOwner::Alive);
        for gone in ["1-1-0", "4194305-1-0", "", "x-y", "self-1", "1"] {
            assert_eq!(instance.owner_of(gone), ContainerOwner::Gone, "{gone}");
        }
    }

    #[test]
    fn container_name_is_prefix_and_exec_id() {
        let name = ContainerName::of_exec("e_0123456789abcdef").unwrap();
        assert_eq!((name.as_str(), name.exec_id()), ("ringwall-e_0123456789abcdef", "e_0123456789abcdef"));
        for bad in ["", "a b", "a/b", "a,b", "ä", "a\n", &"x".repeat(65)] {
            assert!(matches!(ContainerName::of_exec(bad), Err(Error::ExecIdMalformed(_))), "{bad:?}");
        }
    }
}
