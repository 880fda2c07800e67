//! Records the network connections of execs, and the hosts that users allowed permanently.
//!
//! Connections are recorded at the end of the command; connections that its processes make later in
//! a session box are added. Each time an audit entry contains their number and digest. The service
//! decides who may allow which host.

use ringwall_ids::{AgentId, ExecId, UserId};
use serde_json::{Value as Json, json};

use crate::audit::entry::{Draft, Event};
use crate::audit::rows::NET_HOSTS;
use crate::db::driver::{BadColumn, Row};
use crate::db::statement::{Statement, Value, check_number, check_text};
use crate::digest::Digest;
use crate::error::Error;
use crate::exec::columns::name;
use crate::page::Scope;
use crate::paths::ChangeContext;
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;
use crate::writer::queue::Operation;

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
    /// Adds connections to those recorded for the exec. An addition beyond [`ExecNetwork::MAX_CONNECTIONS`] is
    /// only counted.
    pub async fn record_network(
        &self,
        exec_id: &ExecId,
        owner: (UserId, AgentId),
        network: ExecNetwork,
        at: Timestamp,
    ) -> Result<(), Error> {
        check_text("connections", &network.connections.to_string())?;
        check_number("left_out", network.left_out)?;
        self.submit(RecordConnections { exec_id: exec_id.clone(), owner, network, at }).await
    }

    /// `None` if no connections were recorded for the exec.
    pub async fn network(&self, exec_id: &ExecId) -> Result<Option<ExecNetwork>, Error> {
        let text = "SELECT connections, left_out FROM exec_networks WHERE exec_id = $1";
        let query = Statement::new("read the connections of an exec", text).bind(exec_id.as_str());
        let row = self.readers().row(query).await?;
        row.map(|row| row.read("exec_networks", "exec_id", read_network)).transpose()
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
        self.submit(Forget { id, at, by: by.to_owned() }).await
    }
}

struct RecordConnections {
    exec_id: ExecId,
    owner: (UserId, AgentId),
    network: ExecNetwork,
    at: Timestamp,
}

impl Operation for RecordConnections {
    type Answer = ();

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<(), Error> {
        let text = "SELECT connections, left_out FROM exec_networks WHERE exec_id = $1";
        let query = Statement::new("read the connections of an exec", text);
        let before = ledger.row(query.bind(self.exec_id.as_str())).await?;
        let before = before.map(|row| row.read("exec_networks", "exec_id", read_network)).transpose()?;
        let network = before.map_or_else(|| self.network.clone(), |before| before.and(&self.network));
        let (text, count) = (network.connections.to_string(), network.connections.as_array().map_or(0, Vec::len));
        let left_out = check_number("left_out", network.left_out)?;
        let insertion = "INSERT INTO exec_networks (exec_id, connections, left_out) VALUES ($1, $2, $3) \
                         ON CONFLICT (exec_id) DO UPDATE SET connections = excluded.connections, \
                         left_out = excluded.left_out";
        let insertion = Statement::new("record the connections of an exec", insertion)
            .bind(self.exec_id.as_str())
            .bind(text.as_str())
            .bind(left_out);
        ledger.execute(insertion).await?;
        let event = Event {
            at: self.at,
            actor: "ringwall".to_owned(),
            action: "exec.network".to_owned(),
            subject: self.exec_id.to_string(),
            user_id: Some(self.owner.0.clone()),
            agent_id: Some(self.owner.1.clone()),
            detail: json!({
                "connections": count,
                "left_out": left_out,
                "digest": Digest::of(text.as_bytes()).to_string(),
            }),
        };
        ledger.append(Draft { event, digest: None });
        Ok(())
    }
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
        let mut draft = draft("net.host.allowed", id, user, entry, context.at, &context.author.by);
        draft.event.detail["from"] = context.author.from.clone();
        draft.event.detail["request_id"] = json!(context.answer_to);
        draft.digest = NET_HOSTS.digest(ledger, [Value::from(id)]).await?;
        ledger.append(draft);
    }
    Ok(())
}

struct Forget {
    id: i64,
    at: Timestamp,
    by: String,
}

impl Operation for Forget {
    type Answer = Option<NetHostEntry>;

    async fn apply(&self, ledger: &mut Ledger<'_>) -> Result<Option<NetHostEntry>, Error> {
        let query = Statement::new("read an allowed host", format!("{SELECT} WHERE id = $1")).bind(self.id);
        let Some(found) = ledger.row(query).await?.as_ref().map(read).transpose()? else { return Ok(None) };
        let deletion = Statement::new("remove an allowed host", "DELETE FROM net_hosts WHERE id = $1");
        ledger.execute(deletion.bind(self.id)).await?;
        ledger.append(draft("net.host.forgotten", self.id, &found.user_id, &found.entry, self.at, &self.by));
        Ok(Some(found))
    }
}

fn draft(action: &str, id: i64, user: &UserId, entry: &str, at: Timestamp, by: &str) -> Draft {
    let event = Event {
        at,
        actor: by.to_owned(),
        action: action.to_owned(),
        subject: id.to_string(),
        user_id: Some(user.clone()),
        agent_id: None,
        detail: json!({ "entry": entry }),
    };
    Draft { event, digest: None }
}

fn read_network(row: &Row) -> Result<ExecNetwork, BadColumn> {
    let text: String = row.get("connections")?;
    Ok(ExecNetwork {
        connections: serde_json::from_str(&text).map_err(|error| BadColumn::new("connections", error))?,
        left_out: row.get::<i64>("left_out")?.unsigned_abs(),
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
