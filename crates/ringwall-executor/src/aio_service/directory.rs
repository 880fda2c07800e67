//! The directory of a session on a service: `HOME/ringwall/SESSION`.
//!
//! Listings come from the service and are untrusted: only valid names below the directory count,
//! and new ones are reported up to a number. They are shown, and never opened on this host.

use std::collections::BTreeSet;

use super::client::{AioService, ListResult, ServiceInfo};
use crate::aio_error::AioError;

const OURS: &str = "ringwall";
const MAX_NAME_LEN: usize = 1024;
/// Maximum number of new files that are reported.
const MAX_REPORTED: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceDirectory {
    path: String,
}

impl ServiceDirectory {
    pub fn of_session(info: &ServiceInfo, session: &str) -> Result<Self, AioError> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if session.is_empty() || session.starts_with('.') || !session.bytes().all(is_plain) {
            return Err(AioError::NotForService("a session id that is not a file name"));
        }
        Ok(Self { path: format!("{}/{OURS}/{session}", info.home) })
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    /// The service's path of a file in the directory.
    pub(super) fn place(&self, relative: &str) -> Result<String, AioError> {
        if is_beneath(relative) {
            Ok(format!("{}/{relative}", self.path))
        } else {
            Err(AioError::NotForService("a file outside the session's directory"))
        }
    }

    /// The files in the directory, by relative path.
    pub(super) async fn files(&self, service: &AioService) -> Result<BTreeSet<String>, AioError> {
        let ListResult { path, files } = service.list(&self.path).await?;
        let beneath = files.iter().filter(|listed| !listed.is_directory).filter_map(|listed| {
            let listed = listed.path.as_str();
            let relative = listed.strip_prefix(&self.path).or_else(|| listed.strip_prefix(&path))?;
            relative.strip_prefix('/').filter(|relative| is_beneath(relative))
        });
        Ok(beneath.map(str::to_owned).collect())
    }
}

/// The files that are new.
pub(super) fn created(before: &BTreeSet<String>, after: &BTreeSet<String>) -> Vec<String> {
    after.difference(before).take(MAX_REPORTED).cloned().collect()
}

fn is_beneath(relative: &str) -> bool {
    !relative.is_empty()
        && relative.len() <= MAX_NAME_LEN
        && !relative.contains(char::is_control)
        && relative.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_directory_is_one_name_beneath_home() {
        let info = ServiceInfo { version: "1".to_owned(), home: "/home/gem".to_owned() };
        let directory = ServiceDirectory::of_session(&info, "s-1.a").unwrap();
        assert_eq!(directory.path(), "/home/gem/ringwall/s-1.a");
        assert_eq!(directory.place("data/a b.csv").unwrap(), "/home/gem/ringwall/s-1.a/data/a b.csv");
        for wrong in ["", "..", ".x", "a/b", "a b", "ä"] {
            assert!(ServiceDirectory::of_session(&info, wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/", "a\nb", &"x".repeat(1025)] {
            assert!(directory.place(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn created_files_are_new_and_bounded() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        assert_eq!(created(&set(&["a"]), &set(&["a", "b/c"])), ["b/c"]);
        let many = (0..2000).map(|number| number.to_string()).collect();
        assert_eq!(created(&BTreeSet::new(), &many).len(), MAX_REPORTED);
    }
}
