//! Hosts that a person allowed for good: remembered with an answer, listed, and removed.
//!
//! An entry applies to boxes of the user whose box asked, also if an operator answered, and only
//! where the policy asks about unlisted hosts.

use ringwall_policy::{NetEntry, NetList};
use ringwall_record::{Holder, NetHostEntry, Remembering, Scope, Timestamp, UserId};
use serde::Serialize;

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::service::{Service, now};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct AllowedHost {
    pub id: i64,
    #[schema(value_type = String)]
    pub user: UserId,
    /// A host and a port
    pub entry: String,
    pub created_at: Timestamp,
    pub created_by: String,
}

impl From<NetHostEntry> for AllowedHost {
    fn from(entry: NetHostEntry) -> Self {
        let NetHostEntry { id, user_id, entry, created_at, created_by } = entry;
        Self { id, user: user_id, entry, created_at, created_by }
    }
}

impl Service {
    /// The entries that the caller may see, oldest first.
    pub async fn allowed_hosts(&self, by: &Principal) -> Result<Vec<AllowedHost>, Error> {
        let found = self.inner.store.allowed_hosts(&by.scope()).await?;
        Ok(found.into_iter().map(AllowedHost::from).collect())
    }

    /// Removes an entry. Running execs keep what they were allowed.
    pub async fn forget_host(&self, by: &Principal, id: i64) -> Result<AllowedHost, Error> {
        if let Holder::Agent(..) = by.holder() {
            return Err(Error::Forbidden { why: "an agent changes nothing that a person allowed".to_owned() });
        }
        let missing = || Error::NotFound { what: format!("allowed host {id}") };
        if !self.allowed_hosts(by).await?.iter().any(|host| host.id == id) {
            return Err(missing());
        }
        let forgotten = self.inner.store.forget_host(id, now(), by.caller()).await?;
        forgotten.map(AllowedHost::from).ok_or_else(missing)
    }

    /// The entries of the dialog, for the user whose box asked.
    pub(crate) fn remembering_hosts(user: &UserId, entries: &[String]) -> Result<Remembering, Error> {
        // Each entry is one host and one port; nothing wider is remembered.
        entries.iter().try_for_each(|entry| NetEntry::read(entry).map(drop))?;
        Ok(Remembering::Hosts { user: user.clone(), entries: entries.to_vec() })
    }

    pub(super) async fn remembered_hosts(&self, user: &UserId) -> Result<NetList, Error> {
        let found = self.inner.store.allowed_hosts(&Scope::User(user.clone())).await?;
        // Entries that this program would not have written allow nothing.
        let good = found.iter().map(|found| found.entry.as_str()).filter(|entry| NetEntry::read(entry).is_ok());
        // The newest entries, up to the maximum of a list.
        let newest = good.rev().take(NetList::MAX_LEN);
        Ok(NetList::read(newest)?)
    }
}
