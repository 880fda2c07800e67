//! Assigns a host user id to each agent.
//!
//! An assigned id is never reused for another agent, because files may still belong to it.

use std::ops::RangeInclusive;

use ringwall_ids::{AgentId, UserId};
use serde_json::json;

use crate::audit::entry::Draft;
use crate::audit::rows::IDENTITIES;
use crate::db::driver::{BadColumn, Row};
use crate::db::statement::Statement;
use crate::error::Error;
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

impl Store {
    /// The host user id of an agent. The first call assigns a free id of the range; later calls
    /// return the same id, even outside of their range.
    pub async fn host_uid(
        &self,
        user_id: &UserId,
        agent_id: &AgentId,
        range: RangeInclusive<u32>,
        at: Timestamp,
    ) -> Result<u32, Error> {
        if let Some(row) = self.readers().row(query(user_id, agent_id)).await? {
            return read(&row);
        }
        let (first, last) = (*range.start(), *range.end());
        let owner = (user_id.clone(), agent_id.clone());
        let allocation = self.submit(async move |ledger| allocate(ledger, &owner, &range, at).await);
        allocation.await?.ok_or(Error::IdentitiesExhausted { first, last })
    }
}

/// `None` if the range has no free id.
async fn allocate(
    ledger: &mut Ledger<'_>,
    (user_id, agent_id): &(UserId, AgentId),
    range: &RangeInclusive<u32>,
    at: Timestamp,
) -> Result<Option<u32>, Error> {
    // A concurrent call may have assigned one.
    if let Some(row) = ledger.row(query(user_id, agent_id)).await? {
        return read(&row).map(Some);
    }
    let Some(uid) = find_free(ledger, range).await? else { return Ok(None) };
    let text = "INSERT INTO identities (user_id, agent_id, uid) VALUES ($1, $2, $3)";
    let insertion = Statement::new("record a host user id", text).bind(user_id.as_str()).bind(agent_id.as_str());
    ledger.execute(insertion.bind(i64::from(uid))).await?;
    let digest = IDENTITIES.digest(ledger, [i64::from(uid).into()]).await?;
    let draft = Draft::new(at, "ringwall", "identity.allocated", uid, json!({}));
    ledger.append(draft.owned_by(Some(user_id), Some(agent_id)).with_digest(digest));
    Ok(Some(uid))
}

/// The id after the highest assigned one. If that is beyond the range, the lowest free id, which
/// exists only if the range was changed.
async fn find_free(ledger: &mut Ledger<'_>, range: &RangeInclusive<u32>) -> Result<Option<u32>, Error> {
    let (first, last) = (i64::from(*range.start()), i64::from(*range.end()));
    let highest = "SELECT coalesce(max(uid) + 1, $1) AS uid FROM identities WHERE uid BETWEEN $1 AND $2";
    let gap = "SELECT coalesce(min(free), $2 + 1) AS uid FROM (\
               SELECT $1 AS free WHERE NOT EXISTS (SELECT 1 FROM identities WHERE uid = $1) UNION ALL \
               SELECT uid + 1 FROM identities AS taken WHERE uid BETWEEN $1 AND $2 \
               AND NOT EXISTS (SELECT 1 FROM identities WHERE uid = taken.uid + 1)) AS candidates";
    for text in [highest, gap] {
        let row = ledger.row(Statement::new("look for a free host user id", text).bind(first).bind(last)).await?;
        let uid = row.as_ref().map(read).transpose()?;
        if let Some(uid) = uid.filter(|uid| range.contains(uid)) {
            return Ok(Some(uid));
        }
    }
    Ok(None)
}

fn query(user_id: &UserId, agent_id: &AgentId) -> Statement {
    let text = "SELECT uid FROM identities WHERE user_id = $1 AND agent_id = $2";
    Statement::new("read a host user id", text).bind(user_id.as_str()).bind(agent_id.as_str())
}

fn read(row: &Row) -> Result<u32, Error> {
    row.read("identities", "uid", |row| {
        u32::try_from(row.get::<i64>("uid")?).map_err(|error| BadColumn::new("uid", error))
    })
}
