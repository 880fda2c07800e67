//! Binds an approval to the content of the files that a command names.
//!
//! A person approves a command together with the bytes of the files that it runs and reads. Their
//! digests are computed when the question is asked. An answer counts only if the files' stamps are
//! unchanged, and the exec starts only if their digests are equal. Session files are *pinned*:
//! nothing else runs in the session between that last check and the end of the exec
//! (`session/exclusive.rs`). Files of an allowed path are checked but not pinned, because other
//! agents and the host may write there; the question also lists them as changeable. Files that are
//! not covered are listed with the reason.

use std::path::{Path, PathBuf};

use ringwall_ids::UserId;
use ringwall_policy::{
    AllowedPath, FileUse, HostPath, NamedFile, NamedFiles, PathAccess, PathControl, PathStyle, Rights, is_in_every_box,
    is_never_mounted,
};
use ringwall_record::{ApprovalFiles, CoveredFile, Digest, ScriptText, Uncovered, UncoveredFile};
use ringwall_workspace::{Content, ContentError, Owner, read_content, read_stamp};

use crate::blocking::detached;
use crate::boxes::WORKSPACE;
use crate::error::Error;
use crate::service::Service;

const MAX_FILES: usize = 16;
const MAX_BYTES: u64 = 64 << 20;
/// Maximum number of files looked up on disk, missing ones included, and of entries in
/// `not_covered`.
const MAX_EXAMINED: usize = 64;
/// Maximum script text of a question, all scripts together. A question is held in memory and sent
/// to every follower.
const MAX_SCRIPT_TEXT: usize = 64 << 10;
/// How often a question may become void because a file changed. The exec is then denied.
pub(crate) const MAX_FILE_CHANGES: u32 = 3;
/// Uids of human accounts. Only for their files does an operator's entry act with the owner's
/// rights.
const ORDINARY: std::ops::RangeInclusive<u32> = 1000..=60_000;

/// The files of a session's command and what is known of their content.
#[derive(Debug, Clone, Default)]
pub(crate) struct Covering {
    pub(crate) files: NamedFiles,
    /// The content when the last question was asked.
    pub(crate) asked: Option<Coverage>,
    /// Number of questions that were repeated because a file had changed.
    pub(crate) changes: u32,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Coverage {
    files: Vec<File>,
    unknown: Vec<String>,
}

#[derive(Debug, Clone)]
struct File {
    path: String,
    usage: FileUse,
    target: Option<Target>,
    state: State,
}

/// A file's host path, and the uid and gid with which the box reads it.
#[derive(Debug, Clone)]
struct Target {
    root: PathBuf,
    path: PathBuf,
    reader: Owner,
    is_pinned: bool,
}

#[derive(Debug, Clone)]
enum State {
    Covered(Content),
    Missing,
    NotCovered(Uncovered),
}

impl Service {
    /// Reads the named files. `work` is the session's directory, which may not exist yet. Paths
    /// that are not allowed yet are not read, because a digest or an excerpt would disclose their
    /// content to the agent.
    pub(crate) async fn cover(
        &self,
        user: &UserId,
        owner: Owner,
        work: &Path,
        named: &[HostPath],
        files: &NamedFiles,
    ) -> Result<Coverage, Error> {
        let PathControl::On(access) = self.reach(user, named, &[]).await? else { return Ok(Coverage::default()) };
        let (files, work) = (files.clone(), work.to_owned());
        detached(move || Ok(Coverage::read(&files, &access, &work, owner))).await
    }
}

impl Coverage {
    fn read(files: &NamedFiles, access: &PathAccess, work: &Path, owner: Owner) -> Self {
        let mut found: Vec<File> =
            files.known.iter().filter_map(|file| File::find(file, access, work, owner)).collect();
        // Scripts first, so that many input files cannot use up the limit before them.
        found.sort_by_key(|file| file.usage != FileUse::Script);
        let scripts = found.iter().filter(|file| file.usage == FileUse::Script && file.target.is_some()).count();
        let text = MAX_SCRIPT_TEXT / scripts.max(1);
        let (mut count, mut examined, mut bytes) = (0, 0, MAX_BYTES);
        for file in &mut found {
            let Some(target) = &file.target else { continue };
            examined += 1;
            if count == MAX_FILES || examined > MAX_EXAMINED {
                file.state = State::NotCovered(Uncovered::TooMany);
                continue;
            }
            let head = if file.usage == FileUse::Script { text } else { 0 };
            file.state = match read_content(&target.root, &target.path, target.reader, bytes, head) {
                Ok(content) => {
                    count += 1;
                    bytes -= content.size;
                    State::Covered(content)
                }
                Err(ContentError::Missing) => State::Missing,
                Err(why) => State::NotCovered(reason(why)),
            };
        }
        Self { files: found, unknown: files.unknown.clone() }
    }

    /// True if all covered files have the same stamps as before. Reads no content.
    pub(crate) fn stands(&self) -> bool {
        self.files.iter().all(|file| {
            let Some(target) = &file.target else { return true };
            let now = || read_stamp(&target.root, &target.path, target.reader);
            match &file.state {
                State::Covered(content) => now() == Ok(content.stamp),
                State::Missing => now() == Err(ContentError::Missing),
                State::NotCovered(_) => true,
            }
        })
    }

    /// The first file whose content differs from the covered content.
    pub(crate) fn changed_in(&self, now: &Self) -> Option<&str> {
        let changed = self.files.iter().find(|file| {
            let found = now.files.iter().find(|other| other.path == file.path).map(|other| &other.state);
            match (&file.state, found) {
                (State::Covered(one), Some(State::Covered(other))) => one.sha256 != other.sha256,
                (State::Missing, Some(State::Missing)) | (State::NotCovered(_), _) => false,
                (State::Covered(_) | State::Missing, _) => true,
            }
        });
        changed.map(|file| file.path.as_str())
    }

    /// True if the exec must have exclusive use of its session.
    pub(crate) fn is_pinned(&self) -> bool {
        self.files.iter().any(|file| {
            let is_known = matches!(file.state, State::Covered(_) | State::Missing);
            is_known && file.target.as_ref().is_some_and(|target| target.is_pinned)
        })
    }

    /// The part of the approval's digest that identifies the files.
    pub(crate) fn digests(&self) -> Vec<(String, Option<String>)> {
        let digests = self.files.iter().filter_map(|file| match &file.state {
            State::Covered(content) => Some((file.path.clone(), Some(digest(content)))),
            State::Missing => Some((file.path.clone(), None)),
            State::NotCovered(_) => None,
        });
        digests.collect()
    }

    /// The form that is recorded and shown.
    pub(crate) fn recorded(&self) -> ApprovalFiles {
        let mut recorded = ApprovalFiles::default();
        let mut not_covered = Vec::new();
        for file in &self.files {
            let mut uncovered = |why| not_covered.push(UncoveredFile { path: file.path.clone(), why });
            match &file.state {
                State::Covered(content) => {
                    let is_script = file.usage == FileUse::Script;
                    let pinned = file.target.as_ref().is_some_and(|target| target.is_pinned);
                    recorded.covered.push(CoveredFile {
                        path: file.path.clone(),
                        sha256: digest(content),
                        size: content.size,
                        pinned,
                        script: is_script.then(|| script(content)).flatten(),
                    });
                    if !pinned {
                        uncovered(Uncovered::NotPinned);
                    }
                    if is_script {
                        uncovered(Uncovered::OpenedByScript);
                    }
                }
                State::Missing => uncovered(Uncovered::Missing),
                State::NotCovered(why) => uncovered(*why),
            }
        }
        let unknown = self.unknown.iter();
        not_covered.extend(unknown.map(|word| UncoveredFile { path: word.clone(), why: Uncovered::Unclear }));
        let more = not_covered.len().saturating_sub(MAX_EXAMINED);
        if more > 0 {
            not_covered.truncate(MAX_EXAMINED);
            not_covered.push(UncoveredFile { path: format!("({more} more)"), why: Uncovered::TooMany });
        }
        recorded.not_covered = not_covered;
        recorded
    }
}

impl File {
    /// `None` for files that every box has: the read-only system and private directories.
    fn find(named: &NamedFile, access: &PathAccess, work: &Path, owner: Owner) -> Option<Self> {
        if named.path.style() == PathStyle::Windows {
            return None;
        }
        let path = Path::new(named.path.as_str());
        let in_session = path.strip_prefix(WORKSPACE).ok();
        if in_session.is_none() && is_in_every_box(&named.path) {
            return None;
        }
        let file = |target, state| Self { path: named.path.to_string(), usage: named.usage, target, state };
        match named.usage {
            FileUse::Written => return Some(file(None, State::NotCovered(Uncovered::Written))),
            FileUse::Unclear => return Some(file(None, State::NotCovered(Uncovered::Unclear))),
            FileUse::Read | FileUse::Script => {}
        }
        if let Some(relative) = in_session {
            let target = Target { root: work.to_owned(), path: relative.to_owned(), reader: owner, is_pinned: true };
            return Some(file(Some(target), State::Missing));
        }
        let target = access.named.iter().find(|one| one.path == named.path).and_then(|one| {
            let real = Path::new(one.real.as_str());
            let mount = access.mounts.iter().find(|mount| real.starts_with(&mount.real) && !is_never_mounted(real))?;
            Some(allowed_target(mount, real, owner))
        });
        let state = if target.is_some() { State::Missing } else { State::NotCovered(Uncovered::NotAllowed) };
        Some(file(target, state))
    }
}

/// A file in an allowed path. The box reads it with its own uid, or with the uid of the path's
/// owner if an operator added the entry and that uid is in `ORDINARY`.
fn allowed_target(mount: &AllowedPath, real: &Path, owner: Owner) -> Target {
    let reader = match (mount.rights, std::fs::symlink_metadata(&mount.real)) {
        (Rights::Owner, Ok(status)) => {
            use std::os::unix::fs::MetadataExt as _;
            let is_ordinary = ORDINARY.contains(&status.uid()) && rustix::process::geteuid().is_root();
            if is_ordinary { Owner { uid: status.uid(), gid: status.gid() } } else { owner }
        }
        (Rights::Owner | Rights::BoxUser, _) => owner,
    };
    let relative = real.strip_prefix(&mount.real).ok().filter(|relative| !relative.as_os_str().is_empty());
    let (root, path) = match (relative, real.parent(), real.file_name()) {
        (Some(relative), ..) => (mount.real.clone(), relative.to_owned()),
        (None, Some(parent), Some(name)) => (parent.to_owned(), PathBuf::from(name)),
        (None, ..) => (real.to_owned(), PathBuf::new()),
    };
    Target { root, path, reader, is_pinned: false }
}

fn reason(why: ContentError) -> Uncovered {
    match why {
        ContentError::Missing => Uncovered::Missing,
        ContentError::Directory => Uncovered::Directory,
        ContentError::Link => Uncovered::Link,
        ContentError::Special => Uncovered::Special,
        ContentError::Unreadable => Uncovered::Unreadable,
        ContentError::TooLarge => Uncovered::TooLarge,
        ContentError::Changing => Uncovered::Changing,
    }
}

fn digest(content: &Content) -> String {
    Digest::from_bytes(content.sha256).to_string()
}

/// The text of a script; `None` for a binary.
fn script(content: &Content) -> Option<ScriptText> {
    let text = match std::str::from_utf8(&content.head) {
        Ok(text) => text,
        // The excerpt may end inside a character.
        Err(error) if error.error_len().is_none() => std::str::from_utf8(&content.head[..error.valid_up_to()]).ok()?,
        Err(_) => return None,
    };
    if text.contains('\0') {
        return None;
    }
    Some(ScriptText { text: text.to_owned(), is_whole: text.len() as u64 == content.size })
}
