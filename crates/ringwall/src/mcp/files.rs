//! The file tools, for files of a session and for the agent's own files, which outlast sessions.
//!
//! A path beneath `files/` or `skills/` is the agent's. Every other path is relative to the
//! session's workspace; a leading `/workspace`, its mount point in boxes, is removed. The service
//! checks the path itself.

use std::io::Read as _;

use ringwall_service::{AgentPath, Download, Edit, Error, Lines};
use rmcp::model::CallToolResult;

use super::arguments::{DeleteArguments, EditArguments, ListArguments, ReadArguments, WriteArguments};
use super::call::Call;
use super::results::{Content, DoneMessage, Paths, answer};

/// The mount point of the session's workspace in boxes.
const MOUNT_POINT: &str = "/workspace";
/// Limit of a resource, which is sent in one message.
const MAX_BYTES: u64 = 8 << 20;

/// A path of the agent or of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileTarget {
    Agent(AgentPath),
    Session(AgentPath),
}

impl FileTarget {
    pub(super) fn read(path: &str) -> Result<Self, Error> {
        let first = path.split('/').next().unwrap_or_default();
        if matches!(first, "files" | "skills") {
            return Ok(Self::Agent(AgentPath::parse(path)?));
        }
        let inside = path.strip_prefix(MOUNT_POINT).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        Ok(Self::Session(AgentPath::in_session(inside.map_or(path, |rest| rest.trim_start_matches('/')))?))
    }
}

impl Call<'_> {
    pub(super) async fn read_file(&self, arguments: ReadArguments) -> Result<CallToolResult, Error> {
        let lines = Lines::page(arguments.offset, arguments.limit)?;
        let principal = &self.caller.principal;
        let text = match FileTarget::read(&arguments.path)? {
            FileTarget::Agent(path) => self.service.read_file(principal, &self.caller.address(), &path, lines).await?,
            FileTarget::Session(path) => {
                let address = self.caller.session_address(arguments.session_id);
                self.service.read_session_file(principal, &address, &path, lines).await?
            }
        };
        let content = text.into_content();
        Ok(answer(content.clone(), &Content { content }))
    }

    pub(super) async fn write_file(&self, arguments: WriteArguments) -> Result<CallToolResult, Error> {
        let principal = &self.caller.principal;
        match FileTarget::read(&arguments.path)? {
            FileTarget::Agent(path) => {
                self.service.replace_lines(principal, &self.caller.address(), &path, None, &arguments.content).await?
            }
            FileTarget::Session(path) => {
                let address = self.caller.session_address(arguments.session_id);
                self.service.write_session_file(principal, &address, path, arguments.content).await?;
            }
        }
        Ok(done(format!("Successfully created or overwritten file: {}", arguments.path)))
    }

    pub(super) async fn edit_file(&self, arguments: EditArguments) -> Result<CallToolResult, Error> {
        let EditArguments { path: named, old_string: old, new_string: new, expected_replacements, session_id } =
            arguments;
        let edit = Edit { old, new, expected: expected_replacements.unwrap_or(1) };
        let principal = &self.caller.principal;
        match FileTarget::read(&named)? {
            FileTarget::Agent(path) => self.service.edit_file(principal, &self.caller.address(), &path, &edit).await?,
            FileTarget::Session(path) => {
                let address = self.caller.session_address(session_id);
                self.service.edit_session_file(principal, &address, &path, &edit).await?;
            }
        }
        Ok(done(format!("Successfully edited file: {named}")))
    }

    pub(super) async fn list_files(&self, arguments: ListArguments) -> Result<CallToolResult, Error> {
        let principal = &self.caller.principal;
        let paths = match FileTarget::read(arguments.path.as_deref().unwrap_or_default())? {
            FileTarget::Agent(path) => self.service.list_files(principal, &self.caller.address(), path).await?.whole(),
            FileTarget::Session(path) => {
                let address = self.caller.session_address(arguments.session_id);
                match self.service.list_session_files(principal, &address, path).await {
                    // A session is created with its first use; before that it has no files.
                    Err(Error::NotFound { .. }) => Vec::new(),
                    listed => listed?,
                }
            }
        };
        Ok(answer(paths.join("\n"), &Paths { paths }))
    }

    pub(super) async fn delete_file(&self, arguments: DeleteArguments) -> Result<CallToolResult, Error> {
        let principal = &self.caller.principal;
        match FileTarget::read(&arguments.path)? {
            FileTarget::Agent(path) => self.service.delete_path(principal, &self.caller.address(), &path).await?,
            FileTarget::Session(path) => {
                let address = self.caller.session_address(arguments.session_id);
                self.service.delete_session_file(principal, &address, &path).await?;
            }
        }
        Ok(done(format!("Successfully deleted path: {}", arguments.path)))
    }
}

fn done(message: String) -> CallToolResult {
    answer(message.clone(), &DoneMessage { message })
}

/// Reads a file as a resource.
pub(super) async fn read_download(download: Download, what: &str) -> Result<Vec<u8>, Error> {
    match download {
        Download::File { file, size } => read_file(file, size, what).await,
        Download::Directory(_) => {
            Err(Error::InvalidArgument { message: format!("{what} is a directory; list_files lists its files") })
        }
    }
}

pub(super) async fn read_file(file: std::fs::File, size: u64, what: &str) -> Result<Vec<u8>, Error> {
    let too_large = || Error::InvalidArgument {
        message: format!("{what} has more than {MAX_BYTES} bytes; read it over HTTP, or parts of it with read_file"),
    };
    if size > MAX_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    // The file may have grown since its size was read.
    let read = tokio::task::block_in_place(|| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Ok(count) if count as u64 > MAX_BYTES => Err(too_large()),
        Ok(_) => Ok(bytes),
        Err(error) => {
            tracing::warn!(%error, "could not read a resource");
            Err(Error::Runtime { message: format!("could not read {what}") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_beneath_files_or_skills_is_the_agents() {
        let target = |path: &str| FileTarget::read(path).map_err(|error| error.code());
        for agents in ["files/a", "skills/x/SKILL.md", "files", "skills"] {
            assert!(matches!(target(agents), Ok(FileTarget::Agent(_))), "{agents}");
        }
        for sessions in ["", "a", "data/files/x", "filesystem/x", "/workspace", "/workspace/files/x", "./files/x"] {
            assert!(matches!(target(sessions), Ok(FileTarget::Session(_))), "{sessions}");
        }
        assert_eq!(target("/workspace/data/x"), target("data/x").map(|_| target("/workspace/data/x").unwrap()));
        for outside in ["/etc/passwd", "../x", "/workspace/../x", "/workspacex/y", "files/../../x", "a\\b"] {
            assert!(target(outside).is_err(), "{outside}");
        }
    }
}
