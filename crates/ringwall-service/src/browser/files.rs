//! Copies files between a browser and its session's workspace. In the box, commands read and write
//! them; in the workspace, the session file API does, with its path checks and quota.

use std::collections::BTreeSet;
use std::io::Read;

use ringwall_browser::{DownloadEnd, Downloaded, MAX_DOWNLOAD_BYTES, file_name};
use ringwall_policy::BrowserKind;
use ringwall_workspace::{AgentPath, Download};

use super::perform::RunningAction;
use crate::blocking;
use crate::boxes::WORKSPACE;
use crate::boxes::browser::{Fault, Instance};
use crate::error::Error;

/// Directory for downloads in the session's workspace.
const DOWNLOADS: &str = "data";
/// Maximum size of one file in either direction. The server holds a download in memory.
const MAX_BYTES: u64 = MAX_DOWNLOAD_BYTES;
/// Above this number of files in the session, a download's name gets a part of the action's id as a
/// prefix instead of a search for a free name.
const MAX_NAMES: usize = 20_000;

/// The results of the downloads of one action.
#[derive(Debug, Default)]
pub(super) struct StoredDownloads {
    /// Paths of the stored files.
    pub(super) files: Vec<String>,
    /// Messages about downloads that were not stored.
    pub(super) failed: Vec<String>,
}

impl RunningAction {
    /// Moves downloads into the workspace. A page can start downloads by itself, so one that cannot
    /// be stored is reported and does not fail the action. All of them are deleted from the box.
    pub(super) async fn store_downloads(&self, from: &Instance, downloads: &[Downloaded]) -> StoredDownloads {
        let mut stored = StoredDownloads::default();
        for Downloaded { name, path, end } in downloads {
            let path_in_workspace = match end {
                DownloadEnd::Complete { bytes } if *bytes <= MAX_BYTES => self.store_download(from, name, path).await,
                DownloadEnd::Complete { bytes } => {
                    Err(Fault::failed(format!("it has {bytes} bytes, and the maximum is {MAX_BYTES}")))
                }
                DownloadEnd::Failed { why } => Err(Fault::failed(*why)),
            };
            match path_in_workspace {
                Ok(path) => stored.files.push(path),
                Err(fault) => stored.failed.push(format!("the download {name} was not stored: {}", fault.message)),
            }
        }
        if !downloads.is_empty() {
            let paths = downloads.iter().map(|download| download.path.as_str());
            let command: Vec<&str> = ["rm", "-f", "--"].into_iter().chain(paths).collect();
            if let Err(fault) = from.browser_box.run(&command, None, 0).await {
                // They use memory of the box until the browser is closed.
                tracing::warn!(action_id = %self.id, why = fault.message, "could not delete downloads in a browser's box");
            }
        }
        stored
    }

    async fn store_download(&self, from: &Instance, name: &str, path: &str) -> Result<String, Fault> {
        let content = from.browser_box.run(&["cat", "--", path], None, MAX_BYTES).await?;
        self.store(name, content).await
    }

    /// Stores a file in the workspace under an unused name similar to `name`.
    pub(super) async fn store(&self, name: &str, content: Vec<u8>) -> Result<String, Fault> {
        let name = file_name(name);
        let workspace = self.service.session_workspace(&self.session).await?;
        let taken = blocking::in_place(|| {
            let session = workspace.session(&self.session.session_id)?;
            session.create_directories()?;
            Ok(session.tree().names(MAX_NAMES)?)
        })
        .await?;
        let path = match taken {
            Some(taken) => unused_path(&name, taken.files()),
            None => format!("{DOWNLOADS}/{}-{name}", &self.id.as_str()[2..10]),
        };
        let target = AgentPath::in_session(&path).map_err(Error::from)?;
        self.service.write_session_file(&self.by, &self.address(), target, content).await?;
        Ok(path)
    }

    /// Makes workspace files readable for the browser and returns their paths in its box.
    pub(super) async fn copy_uploads(&self, to: &Instance, files: &[String]) -> Result<Vec<String>, Fault> {
        let mut paths = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let source = AgentPath::in_session(file).map_err(Error::from)?;
            match to.kind {
                BrowserKind::Sandbox => {
                    let inner = source.inner().map(|inner| inner.as_str().to_owned()).unwrap_or_default();
                    paths.push(format!("{WORKSPACE}/{inner}"));
                }
                BrowserKind::External => {
                    let found = self.service.download_session_file(&self.by, &self.address(), source).await?;
                    let Download::File { file: opened, size } = found else {
                        return Err(Fault::failed(format!("{file} is a directory; upload its files")));
                    };
                    if size > MAX_BYTES {
                        return Err(Fault::failed(format!("{file} is larger than {MAX_BYTES} bytes")));
                    }
                    let path = format!("{}/{number}/{}", to.folder.uploads(), file_name(file));
                    let line = r#"mkdir -p -- "${1%/*}" && exec cat > "$1""#;
                    to.browser_box.run(&["sh", "-c", line, "sh", &path], Some((&opened).take(size)), 0).await?;
                    paths.push(path);
                }
            }
        }
        Ok(paths)
    }
}

fn unused_path(name: &str, taken: &BTreeSet<String>) -> String {
    let (stem, ending) = match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => (stem, format!(".{ending}")),
        _ => (name, String::new()),
    };
    let numbered = (2u64..).map(|number| format!("{DOWNLOADS}/{stem}-{number}{ending}"));
    let mut all = std::iter::once(format!("{DOWNLOADS}/{name}")).chain(numbered);
    all.find(|path| !taken.contains(path)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn download_with_taken_name_gets_a_number() {
        let taken = ["data/a.txt", "data/a-2.txt", "data/b"].map(str::to_owned).into();
        for (name, path) in [("a.txt", "data/a-3.txt"), ("b", "data/b-2"), ("c", "data/c")] {
            assert_eq!(unused_path(name, &taken), path);
        }
    }
}
