//! The bytes of large commands, code and approval files that a workspace has on record.
//!
//! Triggers count them in the transaction that adds or removes the row. Texts of at most
//! [`Store::MAX_UNCOUNTED_BYTES`] bytes do not count.

use ringwall_ids::{AgentId, UserId};

use crate::db::driver::Row;
use crate::db::statement::Statement;
use crate::error::Error;
use crate::exec::columns::name;
use crate::store::Store;

impl Store {
    /// The same number as in the triggers of the migrations.
    pub const MAX_UNCOUNTED_BYTES: usize = 4096;

    pub async fn recorded_bytes(&self, user: &UserId, agent: &AgentId) -> Result<u64, Error> {
        let text = "SELECT bytes FROM record_usage WHERE user_id = $1 AND agent_id = $2";
        let query = Statement::new("read the recorded bytes of a workspace", text);
        let row = self.readers().row(query.bind(user.as_str()).bind(agent.as_str())).await?;
        let bytes: i64 = row.map_or(Ok(0), |row| row.read("record_usage", "bytes", |row| row.get("bytes")))?;
        Ok(u64::try_from(bytes).unwrap_or_default())
    }

    /// The recorded bytes of each workspace that has or had large commands on record.
    pub async fn all_recorded_bytes(&self) -> Result<Vec<(UserId, AgentId, u64)>, Error> {
        let text = "SELECT user_id, agent_id, bytes FROM record_usage";
        let rows = self.readers().rows(Statement::new("read the recorded bytes of all workspaces", text)).await?;
        let read = |row: &Row| {
            let bytes = u64::try_from(row.get::<i64>("bytes")?).unwrap_or_default();
            Ok((name(row, "user_id")?, name(row, "agent_id")?, bytes))
        };
        rows.iter().map(|row| row.read("record_usage", "user_id", read)).collect()
    }
}
