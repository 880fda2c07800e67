//! Receives a file: writes its bytes to a temporary file and gives it its name when all have
//! arrived.
//!
//! No lock is held while a client sends slowly. An upload that fails leaves nothing.

use std::io::{self, Write};

use ringwall_workspace::{AgentPath, StagedFile, Usage};

use crate::auth::principal::Principal;
use crate::blocking;
use crate::disk::DiskReservation;
use crate::error::{Error, ProblemKind};
use crate::service::Service;

use super::open::{Address, Agent};

#[derive(Debug)]
pub struct Upload {
    agent: Agent,
    staged: StagedFile,
    written: u64,
    /// The reservation for the bytes written so far.
    room: DiskReservation,
}

impl Service {
    pub async fn begin_upload(&self, by: &Principal, address: &Address) -> Result<Upload, Error> {
        let agent = self.open_agent(by, address).await?;
        let disk = self.disk_of(&agent);
        blocking::in_place(|| {
            let room = disk.reserve(Usage::default())?;
            let staged = agent.tree.workspace().stage()?;
            Ok(Upload { agent, staged, written: 0, room })
        })
        .await
    }

    /// Gives the file its name in `files/`, using only the last component, and returns its path.
    pub async fn finish_upload(&self, upload: Upload, file_name: &str) -> Result<String, Error> {
        let path = stored_path(file_name)?;
        let Upload { agent, staged, written, mut room } = upload;
        let _writing = self.inner.agent_locks.write(&agent.user, &agent.agent).await?;
        blocking::in_place(|| {
            // Only under the lock is it known if the name is new.
            let growth = agent.tree.growth(&path, written);
            room.reach(growth)?;
            agent.tree.persist(staged, &path)?;
            room.settle(growth);
            Ok(())
        })
        .await?;
        Ok(path.plain())
    }
}

impl Write for Upload {
    /// Fails with `QuotaExceeded` and a message for the user if the quota has no room.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        keep_for(&mut self.room, self.written.saturating_add(bytes.len() as u64))?;
        let count = self.staged.write(bytes)?;
        self.written += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.staged.flush()
    }
}

/// Extends the reservation to `length` bytes.
pub(super) fn keep_for(room: &mut DiskReservation, length: u64) -> io::Result<()> {
    let wanted = Usage { files: 0, ..Usage::of_file(length) };
    room.reach(wanted).map_err(|error| match error {
        Error::DiskQuota { message } => io::Error::new(io::ErrorKind::QuotaExceeded, message),
        other => io::Error::other(other),
    })
}

fn stored_path(file_name: &str) -> Result<AgentPath, Error> {
    let name = file_name.rsplit(['/', '\\']).next().unwrap_or_default();
    if matches!(name, "" | "." | "..") {
        return Err(Error::agent(ProblemKind::Invalid, "The uploaded file has no name."));
    }
    Ok(AgentPath::parse(&format!("files/{name}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploaded_name_keeps_only_last_component() {
        for (given, expected) in [
            ("a.txt", "files/a.txt"),
            ("../../etc/passwd", "files/passwd"),
            ("C:\\Users\\x\\报告.pdf", "files/报告.pdf"),
            ("/a\\b", "files/b"),
            ("a..b", "files/a..b"),
            ("SKILL.md", "files/SKILL.md"),
        ] {
            assert_eq!(stored_path(given).unwrap().plain(), expected);
        }
        for given in ["", ".", "..", "a/", "a/..", "a\\", "a\0b", &"n".repeat(256)] {
            assert_eq!(stored_path(given).unwrap_err().code(), "INVALID_ARGUMENT", "{given:?}");
        }
    }
}
