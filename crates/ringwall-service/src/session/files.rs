//! Reads and changes a session's files from outside of its boxes, under the lock of its agent.
//!
//! Writing a file creates the session if it does not exist; the other operations here do not.
//! Written bytes count against the disk quotas of the session and of its workspace.

use ringwall_record::SessionKey;
use ringwall_workspace::{AgentPath, Download, Lines, Text, Tree};

use crate::agent_files::{Edit, make};
use crate::auth::principal::Principal;
use crate::blocking::{self, detached};
use crate::disk::Disk;
use crate::error::{Error, causes};
use crate::service::Service;
use crate::session_ref::{SessionAddress, no_session};

impl Service {
    /// Every regular file below a directory of the session, sorted, with paths relative to the
    /// session.
    pub async fn list_session_files(
        &self,
        by: &Principal,
        address: &SessionAddress,
        path: AgentPath,
    ) -> Result<Vec<String>, Error> {
        let (session, tree) = self.session_files(by, address).await?;
        let reading = self.inner.agent_locks.read(&session.user_id, &session.agent_id).await?;
        detached(move || {
            let listed = tree.list(&path);
            drop(reading);
            let directory = path.inner().map(|inner| format!("{}/", inner.as_str())).unwrap_or_default();
            let whole = |name: String| match name.is_empty() {
                true => directory.trim_end_matches('/').to_owned(),
                false => format!("{directory}{name}"),
            };
            Ok(listed?.relative().into_iter().map(whole).collect())
        })
        .await
    }

    /// Lines of a file.
    pub async fn read_session_file(
        &self,
        by: &Principal,
        address: &SessionAddress,
        path: &AgentPath,
        lines: Lines,
    ) -> Result<Text, Error> {
        let (session, tree) = self.session_files(by, address).await?;
        let _reading = self.inner.agent_locks.read(&session.user_id, &session.agent_id).await?;
        blocking::in_place(|| Ok(tree.read(path, lines)?)).await
    }

    /// Replaces text in a file.
    pub async fn edit_session_file(
        &self,
        by: &Principal,
        address: &SessionAddress,
        path: &AgentPath,
        edit: &Edit,
    ) -> Result<(), Error> {
        let (session, tree) = self.session_files(by, address).await?;
        let _shared = self.inner.session_gates.try_share(&session)?;
        let _writing = self.inner.agent_locks.write(&session.user_id, &session.agent_id).await?;
        let disks = self.session_disks(&session, tree.workspace());
        blocking::in_place(|| make(tree.edit(path, &edit.old, &edit.new, edit.expected)?, &disks.each_ref())).await
    }

    /// Opens a file, or lists a directory, for download.
    pub async fn download_session_file(
        &self,
        by: &Principal,
        address: &SessionAddress,
        path: AgentPath,
    ) -> Result<Download, Error> {
        let (session, tree) = self.session_files(by, address).await?;
        let reading = self.inner.agent_locks.read(&session.user_id, &session.agent_id).await?;
        detached(move || {
            let download = tree.download(&path);
            drop(reading);
            Ok(download?)
        })
        .await
    }

    /// Creates or replaces a file, with its parent directories.
    pub async fn write_session_file(
        &self,
        by: &Principal,
        address: &SessionAddress,
        path: AgentPath,
        content: impl AsRef<[u8]> + Send + 'static,
    ) -> Result<(), Error> {
        let session = address.resolve(by)?;
        let shared = self.inner.session_gates.try_share(&session)?;
        // Records the end of an earlier session with this id before a new one exists.
        self.session_rules(&session).await?;
        let workspace = self.session_workspace(&session).await?;
        let writing = self.inner.agent_locks.write(&session.user_id, &session.agent_id).await?;
        let disks = self.session_disks(&session, &workspace);
        detached(move || {
            let (_writing, _shared) = (writing, shared);
            let session = workspace.session(&session.session_id)?;
            session.create_directories()?;
            make(session.tree().replace_lines(&path, None, content.as_ref())?, &disks.each_ref())
        })
        .await
    }

    /// Deletes a file, or a directory with its contents.
    pub async fn delete_session_file(
        &self,
        by: &Principal,
        address: &SessionAddress,
        path: &AgentPath,
    ) -> Result<(), Error> {
        let (session, tree) = self.session_files(by, address).await?;
        let _shared = self.inner.session_gates.try_share(&session)?;
        let writing = self.inner.agent_locks.write(&session.user_id, &session.agent_id).await?;
        let removed = blocking::in_place(|| Ok(tree.delete(path)?)).await?;
        drop(writing);
        if let Err(error) = detached(move || Ok(removed.erase()?)).await {
            // The path is gone; its space is freed at the next start.
            tracing::warn!(error = %causes(&error), "could not erase a deleted file or directory");
        }
        self.session_disks(&session, tree.workspace()).iter().for_each(Disk::shrink);
        Ok(())
    }

    async fn session_files(&self, by: &Principal, address: &SessionAddress) -> Result<(SessionKey, Tree), Error> {
        let session = address.resolve(by)?;
        let workspace = self.session_workspace(&session).await?;
        let found = blocking::in_place(|| Ok(workspace.find_session(&session.session_id)?)).await?;
        let found = found.ok_or_else(|| no_session(&session.session_id))?;
        Ok((session, found.tree().clone()))
    }
}
