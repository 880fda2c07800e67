//! Records the network connections of execs, and the hosts that users allowed permanently.
//!
//! Connections are recorded at the end of the command; connections that its processes make later in
//! a session box are added. Each time an audit entry contains their number and digest. The service
//! decides who may allow which host.

use ringwall_ids::{AgentId, ExecId, UserId};
use serde_json::{Value as Json, json};

use crate::audit::entry::Draft;
use crate::audit::rows::NET_HOSTS;
use crate::db::driver::Row;
use crate::db::statement::{Statement, check_number, check_text};
use crate::digest::Digest;
use crate::error::Error;
use crate::exec::{columns, columns::name};
use crate::page::Scope;
use crate::paths::ChangeContext;
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

/// The connections of one exec.
#[derive(Debug, Clone, PartialEq)]
pub struct ExecNetwork {
    /// A JSON array.
    pub connections: Json,
    /// The number of connections that are not in the array.
    pub left_out: u64,
}

/// A host that all boxes of a user may reach, because a person allowed it permanently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetHostEntry {
    pub id: i64,
    pub user_id: UserId,
    pub entry: String,
    pub created_at: Timestamp,
    pub created_by: String,
}

const SELECT: &str = "SELECT id, user_id, entry, created_at, created_by FROM net_hosts";

impl Store {
    /// Adds connections to those recorded for the exec. Those beyond
    /// [`ExecNetwork::MAX_CONNECTIONS`] are only counted.
    pub async fn record_network(
        &self,
        exec_id: &ExecId,
        (user_id, agent_id): (UserId, AgentId),
        network: ExecNetwork,
        at: Timestamp,
    ) -> Result<(), Error> {
        check_text("connections", &network.connections.to_string())?;
        check_number("left_out", network.left_out)?;
        let exec_id = exec_id.clone();
        self.submit(async move |ledger| add_connections(ledger, &exec_id, (&user_id, &agent_id), &network, at).await)
            .await
    }

    /// `None` if no connections were recorded for the exec.
    pub async fn network(&self, exec_id: &ExecId) -> Result<Option<ExecNetwork>, Error> {
        self.readers().row(select_network(exec_id)).await?.as_ref().map(read_network).transpose()
    }

    /// The hosts in this scope, oldest first. An agent's scope gives those of its user.
    pub async fn allowed_hosts(&self, scope: &Scope) -> Result<Vec<NetHostEntry>, Error> {
        let query = match scope {
            Scope::All => Statement::new("list the allowed hosts", format!("{SELECT} ORDER BY id")),
            Scope::User(user) | Scope::Agent(user, _) => {
                let text = format!("{SELECT} WHERE user_id = $1 ORDER BY id");
                Statement::new("list the allowed hosts", text).bind(user.as_str())
            }
        };
        self.readers().rows(query).await?.iter().map(read).collect()
    }

    /// Removes a host and returns it, or `None` if there is none with this id.
    pub async fn forget_host(&self, id: i64, at: Timestamp, by: &str) -> Result<Option<NetHostEntry>, Error> {
        check_text("actor", by)?;
        let by = by.to_owned();
        self.submit(async move |ledger| forget(ledger, id, at, &by).await).await
    }
}

async fn add_connections(
    ledger: &mut Ledger<'_>,
    exec_id: &ExecId,
    (user_id, agent_id): (&UserId, &AgentId),
    network: &ExecNetwork,
    at: Timestamp,
) -> Result<(), Error> {
    let before = ledger.row(select_network(exec_id)).await?.as_ref().map(read_network).transpose()?;
    let network = before.map_or_else(|| network.clone(), |before| before.and(network));
    let (text, count) = (network.connections.to_string(), network.connections.as_array().map_or(0, Vec::len));
    let left_out = check_number("left_out", network.left_out)?;
    let digest = Digest::of(text.as_bytes());
    let insertion = "INSERT INTO exec_networks (exec_id, connections, left_out) VALUES ($1, $2, $3) \
                     ON CONFLICT (exec_id) DO UPDATE SET connections = excluded.connections, \
                     left_out = excluded.left_out";
    let insertion = Statement::new("record the connections of an exec", insertion);
    ledger.execute(insertion.bind(exec_id.as_str()).bind(text).bind(left_out)).await?;
    let detail = json!({ "connections": count, "left_out": left_out, "digest": digest.to_string() });
    let draft = Draft::new(at, "ringwall", "exec.network", exec_id, detail);
    ledger.append(draft.owned_by(Some(user_id), Some(agent_id)));
    Ok(())
}

impl ExecNetwork {
    /// Maximum number of stored connections per exec.
    pub const MAX_CONNECTIONS: usize = 500;

    /// Appends later connections up to [`Self::MAX_CONNECTIONS`] and counts the others.
    fn and(self, later: &Self) -> Self {
        let Json::Array(mut all) = self.connections else { return self };
        let more = later.connections.as_array().map_or(&[][..], Vec::as_slice);
        let room = Self::MAX_CONNECTIONS.saturating_sub(all.len()).min(more.len());
        all.extend_from_slice(&more[..room]);
        let left_out = self.left_out.saturating_add(later.left_out).saturating_add((more.len() - room) as u64);
        Self { connections: Json::Array(all), left_out }
    }
}

/// Allows a host permanently. Does nothing if it is allowed already.
pub(crate) async fn allow_host(
    ledger: &mut Ledger<'_>,
    user: &UserId,
    entry: &str,
    context: ChangeContext<'_>,
) -> Result<(), Error> {
    let text = "INSERT INTO net_hosts (user_id, entry, created_at, created_by) VALUES ($1, $2, $3, $4) \
                ON CONFLICT (user_id, entry) DO NOTHING RETURNING id";
    let insertion = Statement::new("allow a host", text)
        .bind(user.as_str())
        .bind(entry)
        .bind(context.at)
        .bind(context.author.by.as_str());
    if let Some(row) = ledger.row(insertion).await? {
        let id: i64 = row.read("net_hosts", "id", |row| row.get("id"))?;
        let detail = json!({ "entry": entry, "from": context.author.from, "request_id": context.answer_to });
        let draft = Draft::new(context.at, &context.author.by, "net.host.allowed", id, detail);
        let digest = NET_HOSTS.digest(ledger, [id.into()]).await?;
        ledger.append(draft.owned_by(Some(user), None).with_digest(digest));
    }
    Ok(())
}

async fn forget(ledger: &mut Ledger<'_>, id: i64, at: Timestamp, by: &str) -> Result<Option<NetHostEntry>, Error> {
    let query = Statement::new("read an allowed host", format!("{SELECT} WHERE id = $1")).bind(id);
    let Some(found) = ledger.row(query).await?.as_ref().map(read).transpose()? else { return Ok(None) };
    let deletion = Statement::new("remove an allowed host", "DELETE FROM net_hosts WHERE id = $1");
    ledger.execute(deletion.bind(id)).await?;
    let draft = Draft::new(at, by, "net.host.forgotten", id, json!({ "entry": found.entry }));
    ledger.append(draft.owned_by(Some(&found.user_id), None));
    Ok(Some(found))
}

fn select_network(exec_id: &ExecId) -> Statement {
    let text = "SELECT exec_id, connections, left_out FROM exec_networks WHERE exec_id = $1";
    Statement::new("read the connections of an exec", text).bind(exec_id.as_str())
}

fn read_network(row: &Row) -> Result<ExecNetwork, Error> {
    row.read("exec_networks", "exec_id", |row| {
        Ok(ExecNetwork {
            connections: columns::json(row, "connections")?,
            left_out: row.get::<i64>("left_out")?.unsigned_abs(),
        })
    })
}

fn read(row: &Row) -> Result<NetHostEntry, Error> {
    row.read("net_hosts", "id", |row| {
        Ok(NetHostEntry {
            id: row.get("id")?,
            user_id: name(row, "user_id")?,
            entry: row.get("entry")?,
            created_at: Timestamp::from_milliseconds(row.get("created_at")?),
            created_by: row.get("created_by")?,
        })
    })
}
