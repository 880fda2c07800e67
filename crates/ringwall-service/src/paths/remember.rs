//! Adds paths that a person allowed for good: an operator's answer for all users, a user's answer
//! for that user.
//!
//! A disabled entry is enabled by a person who may change it. A user's answer never touches a
//! global entry; it adds one for the user.

use ringwall_ids::UserId;
use ringwall_policy::HostPath;
use ringwall_record::{Holder, NewPath, PathScope, RememberedPath, Remembering};

use crate::auth::principal::Principal;
use crate::blocking;
use crate::error::Error;
use crate::service::Service;

use super::change::require_room;
use super::list::{Listed, home, read_new_path, read_path};

impl Service {
    /// Remembers all of them, or fails if one is refused or the list is full.
    pub(crate) async fn remembering_paths(
        &self,
        by: &Principal,
        user: &UserId,
        paths: &[String],
    ) -> Result<Remembering, Error> {
        let scope = by.remembers_for(user)?;
        let mut listed = self.listed_for(user).await?;
        listed.retain(|listed| listed.entry.scope == scope);
        let mut remembered: Vec<RememberedPath> = Vec::new();
        for path in self.check_grantable(by, paths).await? {
            read_new_path(path.as_str())?;
            let same = listed.iter().filter(|listed| listed.path == path);
            let known: Vec<i64> = same.map(|listed: &Listed| listed.entry.id).collect();
            let new = NewPath { path: path.to_string(), description: String::new(), scope: scope.clone() };
            remembered.push(RememberedPath { new, known });
        }
        let more = remembered.iter().filter(|one| one.known.is_empty()).count();
        require_room(listed.len(), more)?;
        Ok(Remembering::Paths(remembered))
    }

    /// Checks that this person may allow the paths, once or for good: no person Ringwall's own
    /// directories, and a user neither system roots nor directories with keys.
    pub(crate) async fn check_grantable(&self, by: &Principal, paths: &[String]) -> Result<Vec<HostPath>, Error> {
        let mut checked = Vec::new();
        for text in paths {
            let path = read_path(text)?;
            self.require_foreign(&path).await?;
            match by.holder() {
                Holder::Owner | Holder::Operator => {}
                Holder::User(_) | Holder::Agent(..) => {
                    if let Some(why) = Self::too_much_for_users(&path).await? {
                        let why = format!("only an owner or an operator may allow {path}: {why}");
                        return Err(Error::Forbidden { why });
                    }
                }
            }
            checked.push(path);
        }
        Ok(checked)
    }

    /// The reason if only an operator may allow a path.
    async fn too_much_for_users(path: &HostPath) -> Result<Option<String>, Error> {
        if let Some(warning) = path.warning() {
            return Ok(Some(warning.to_owned()));
        }
        if home().is_some_and(|home| path.covers(home)) {
            return Ok(Some("This is the home of the account that the server runs as, or above it.".to_owned()));
        }
        let place = std::path::PathBuf::from(path.as_str());
        let keys = blocking::in_place(move || Ok(ringwall_executor::keys_near(&place))).await?;
        Ok(keys.map(|keys| format!("Keys and credentials are kept in {}.", keys.display())))
    }
}

impl Principal {
    /// The scope of an entry from an answer to a question of `user`.
    pub(crate) fn remembers_for(&self, user: &UserId) -> Result<PathScope, Error> {
        match self.holder() {
            Holder::Owner | Holder::Operator => Ok(PathScope::Global),
            Holder::User(_) => Ok(PathScope::User(user.clone())),
            Holder::Agent(..) => Err(Error::Forbidden { why: "an agent allows nothing".to_owned() }),
        }
    }
}
