//! Retention: removes old audit entries and old execs.
//!
//! The audit entry about a removal is written before the removal or in the same transaction. Audit
//! entries are removed in steps, so that other operations can run in between; after a crash the
//! rest is consistent, and the next call continues. Removed entries are not verified: call
//! [`Store::verify`] before.

use ringwall_ids::ExecId;
use serde_json::json;

use crate::audit::entry::{Draft, Link};
use crate::audit::rows;
use crate::db::statement::{Statement, check_text};
use crate::error::Error;
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

/// Maximum number of entries that one transaction removes.
const MAX_REMOVED_ENTRIES: i64 = 2000;

/// Which audit entries are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// This number of the newest entries.
    Newest(u64),
    /// The first entry with this time or a later one, and all entries after it.
    Since(Timestamp),
}

impl Store {
    /// Removes the oldest audit entries and returns their number. The chain then starts at the
    /// checkpoint.
    pub async fn prune_audit(&self, keep: Keep, at: Timestamp, by: &str) -> Result<u64, Error> {
        check_text("actor", by)?;
        let by = by.to_owned();
        let announced = self.submit(async move |ledger| announce(ledger, keep, at, &by).await).await?;
        let Some(through) = announced else { return Ok(0) };
        let mut removed = 0;
        loop {
            match self.submit(async move |ledger| remove_entries(ledger, through, at).await).await? {
                Removal::Some(count) => removed += count,
                Removal::Nothing => return Ok(removed),
                Removal::Broken { seq } => return Err(Error::ChainBroken { seq }),
            }
        }
    }

    /// Removes those of these execs that ended before `ended_before`, in one transaction with the
    /// entry about it, and returns their number.
    pub async fn prune_execs(
        &self,
        execs: Vec<ExecId>,
        ended_before: Timestamp,
        at: Timestamp,
        by: &str,
    ) -> Result<u64, Error> {
        check_text("actor", by)?;
        let by = by.to_owned();
        self.submit(async move |ledger| remove_execs(ledger, &execs, ended_before, at, &by).await).await
    }
}

/// Appends the entry about the removal. Returns the last entry to remove; `None` if there is none.
async fn announce(ledger: &mut Ledger<'_>, keep: Keep, at: Timestamp, by: &str) -> Result<Option<i64>, Error> {
    let checkpoint = checkpoint(ledger).await?;
    let head = ledger.head().seq;
    let through = match keep {
        Keep::Newest(count) => head.saturating_sub(i64::try_from(count).unwrap_or(i64::MAX)),
        Keep::Since(at) => {
            ledger.write_entries().await?;
            let text = "SELECT seq FROM audit WHERE at >= $1 ORDER BY seq LIMIT 1";
            let row = ledger.row(Statement::new("look for the first entry to keep", text).bind(at)).await?;
            row.map_or(Ok(head), |row| row.read("audit", "seq", |row| Ok(row.get::<i64>("seq")? - 1)))?
        }
    };
    if through <= checkpoint.seq {
        return Ok(None);
    }
    let detail = json!({ "first": checkpoint.seq + 1, "last": through });
    ledger.append(Draft::new(at, by, "audit.pruned", "audit", detail));
    Ok(Some(through))
}

enum Removal {
    Some(u64),
    Nothing,
    /// The last entry to remove, whose hash the checkpoint needs, is missing.
    Broken {
        seq: i64,
    },
}

async fn remove_entries(ledger: &mut Ledger<'_>, through: i64, at: Timestamp) -> Result<Removal, Error> {
    let checkpoint = checkpoint(ledger).await?;
    let last = through.min(checkpoint.seq + MAX_REMOVED_ENTRIES);
    if last <= checkpoint.seq {
        return Ok(Removal::Nothing);
    }
    ledger.write_entries().await?;
    let query = Statement::new("read an audit entry", "SELECT seq, hash FROM audit WHERE seq = $1").bind(last);
    let Some(row) = ledger.row(query).await? else { return Ok(Removal::Broken { seq: last }) };
    let link = Link::read(Some(&row), "audit")?;
    rows::restate_removed(ledger, checkpoint.seq, last, at).await?;
    // The checkpoint first: a trigger refuses to delete entries after it.
    let text = "UPDATE audit_checkpoint SET seq = $1, hash = $2, removed = removed + $3, at = $4";
    let count = last - checkpoint.seq;
    let update = Statement::new("move the audit chain's start", text).bind(link.seq).bind(link.hash).bind(count);
    ledger.execute(update.bind(at)).await?;
    let removal = Statement::new("remove audit entries", "DELETE FROM audit WHERE seq <= $1").bind(last);
    ledger.execute(removal).await.map(Removal::Some)
}

async fn checkpoint(ledger: &mut Ledger<'_>) -> Result<Link, Error> {
    let text = "SELECT seq, hash FROM audit_checkpoint";
    let row = ledger.row(Statement::new("read the audit chain's start", text)).await?;
    Link::read(row.as_ref(), "audit_checkpoint")
}

async fn remove_execs(
    ledger: &mut Ledger<'_>,
    execs: &[ExecId],
    ended_before: Timestamp,
    at: Timestamp,
    by: &str,
) -> Result<u64, Error> {
    let mut removed = 0;
    for exec_id in execs {
        let text = "DELETE FROM sandbox_execs WHERE exec_id = $1 AND ended_at < $2";
        let removal = Statement::new("remove an exec", text).bind(exec_id.as_str()).bind(ended_before);
        let count = ledger.execute(removal).await?;
        removed += count;
        if count == 0 {
            continue;
        }
        // The audit chain still contains who answered the approvals.
        for text in [
            "DELETE FROM approvals WHERE exec_id = $1 AND status <> 'pending'",
            "DELETE FROM exec_networks WHERE exec_id = $1",
            "DELETE FROM exec_policies WHERE exec_id = $1",
        ] {
            ledger.execute(Statement::new("remove the rows of an exec", text).bind(exec_id.as_str())).await?;
        }
    }
    if removed > 0 {
        let detail = json!({ "ended_before": ended_before, "removed": removed });
        ledger.append(Draft::new(at, by, "execs.pruned", "execs", detail));
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::entry::tests::{event, test_key};
    use crate::audit::head::Signer;
    use crate::db::database::{Connector, Database};

    /// The search for the first entry to keep must see entries that wait in memory for the commit.
    #[tokio::test]
    async fn entry_of_same_transaction_is_not_pruned() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(Database::Sqlite(directory.path().join("record.db")), Some(test_key())).await.unwrap();
        for number in 1..=3 {
            store.append(event(number)).await.unwrap();
        }
        let mut connection = Connector::new(store.database()).unwrap().connect().await.unwrap();
        let signer = Signer::new(test_key());
        let mut ledger = Ledger::begin(&mut connection, &signer).await.unwrap();
        ledger.append(Draft { event: event(4), digest: None });
        let at = Timestamp::from_milliseconds(4);
        assert_eq!(announce(&mut ledger, Keep::Since(at), at, "test").await.unwrap(), Some(3));
        assert!(ledger.commit().await.is_ok());
        assert!(store.verify(|_| {}).await.unwrap().is_intact());
    }
}
