//! Opens, settles and lists approvals.
//!
//! The question of an approval never changes. It is settled exactly once: the UPDATE matches only a
//! pending approval, in the transaction that appends the audit entry. The service checks whether an
//! answer is late and who may give it.

use ringwall_ids::{AgentId, ApprovalId, ExecId, UserId};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::audit::entry::{Author, Draft, read_digest};
use crate::audit::rows::{APPROVAL_QUESTIONS, APPROVALS};
use crate::db::driver::{BadColumn, Row};
use crate::db::statement::{Statement, check_indexed, check_text};
use crate::digest::Digest;
use crate::error::Error;
use crate::exec::{columns, columns::name};
use crate::networks::allow_host;
use crate::page::{Cursor, Limit, Page, Scope, where_all};
use crate::paths::{ChangeContext, RememberedPath, check_new, remember};
use crate::store::Store;
use crate::text_enum::text_enum;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

text_enum! {
    /// The subject of the approval: a path, risky code or a network host
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, utoipa::ToSchema)]
    #[serde(rename_all = "snake_case")]
    ApprovalKind, "a kind of approval: path, risk or network",
    Path = "path",
    Risk = "risk",
    Network = "network",
}

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, utoipa::ToSchema)]
    #[serde(rename_all = "snake_case")]
    ApprovalStatus, "an approval's status: pending, approved, remembered, denied, expired or cancelled",
    Pending = "pending",
    Approved = "approved",
    Remembered = "remembered",
    Denied = "denied",
    Expired = "expired",
    Cancelled = "cancelled",
}

text_enum! {
    /// From the lowest to the highest level
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, utoipa::ToSchema)]
    #[serde(rename_all = "snake_case")]
    RiskLevel, "a risk level: safe, low, medium, high or critical",
    Safe = "safe",
    Low = "low",
    Medium = "medium",
    High = "high",
    Critical = "critical",
}

/// The final statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettledStatus {
    Approved,
    Remembered,
    Denied,
    Expired,
    Cancelled,
}

impl From<SettledStatus> for ApprovalStatus {
    fn from(settled: SettledStatus) -> Self {
        match settled {
            SettledStatus::Approved => Self::Approved,
            SettledStatus::Remembered => Self::Remembered,
            SettledStatus::Denied => Self::Denied,
            SettledStatus::Expired => Self::Expired,
            SettledStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// The files that a command line names, and whether the approval covers their content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApprovalFiles {
    pub covered: Vec<CoveredFile>,
    pub not_covered: Vec<UncoveredFile>,
}

/// A file whose content is part of the approval
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CoveredFile {
    /// The path in the box
    pub path: String,
    pub sha256: String,
    pub size: u64,
    /// True if no program can change the file between the last check and the end of the command. If
    /// false, it is checked only at the answer and right before the start
    pub pinned: bool,
    /// The text of a script or sourced file; absent for a binary
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptText>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ScriptText {
    /// At most 64 KiB for all scripts of an approval together
    pub text: String,
    /// False if the text is truncated
    pub is_whole: bool,
}

/// A file that may change after the answer
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct UncoveredFile {
    pub path: String,
    pub why: Uncovered,
}

/// Why a file is not covered, or not until the command has ended
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Uncovered {
    Written,
    Directory,
    Link,
    Special,
    Unreadable,
    Missing,
    Changing,
    Unclear,
    NotAllowed,
    TooMany,
    TooLarge,
    OpenedByScript,
    /// Covered and in an allowed path: compared right before the start, but not protected from
    /// later changes
    NotPinned,
    /// Files that approved code opens or starts
    OpenedByCode,
}

impl Uncovered {
    /// The text that clients show.
    pub const fn message(self) -> &'static str {
        match self {
            Self::Written => "only written",
            Self::Directory => "a directory",
            Self::Link => "reached through a link",
            Self::Special => "a FIFO, a socket or a device",
            Self::Unreadable => "not readable for the box",
            Self::Missing => "does not exist yet",
            Self::Changing => "written while it was read",
            Self::Unclear => "a pattern, or a value that is known only when the command runs",
            Self::NotAllowed => "not allowed yet, so it was not read",
            Self::TooMany => "beyond the limit of 16 files",
            Self::TooLarge => "beyond the limit of 64 MB in all",
            Self::OpenedByScript => "files that this script opens or runs itself",
            Self::NotPinned => {
                "in an allowed path: compared right before the start, and another program that may write there can \
                 change it afterwards"
            }
            Self::OpenedByCode => "files that the code opens or starts",
        }
    }
}

/// The question of an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApproval {
    pub id: ApprovalId,
    pub kind: ApprovalKind,
    pub exec_id: ExecId,
    pub user_id: UserId,
    pub agent_id: AgentId,
    pub session_id: String,
    pub command: String,
    pub code: Option<String>,
    /// The paths that a remembered answer would add to the allowed paths.
    pub requested_paths: Vec<String>,
    pub blocked_paths: Vec<String>,
    pub risk_level: RiskLevel,
    pub patterns: Vec<String>,
    pub files: ApprovalFiles,
    /// The digest of the action that is to be approved.
    pub digest: Digest,
    /// The id of the token that made the request.
    pub asked_by: String,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

/// An approval as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    pub asked: NewApproval,
    pub status: ApprovalStatus,
    pub answered_at: Option<Timestamp>,
    pub answered_by: Option<String>,
    pub reason: Option<String>,
}

/// An answer, an expiry or a cancellation of an approval.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: SettledStatus,
    pub at: Timestamp,
    pub author: Author,
    pub reason: Option<String>,
    pub remembered: Remembering,
}

/// The paths or hosts that an answer adds, in the transaction that records the answer.
#[derive(Debug, Clone, Default)]
pub enum Remembering {
    #[default]
    Nothing,
    Paths(Vec<RememberedPath>),
    /// Hosts that all boxes of this user may reach.
    Hosts {
        user: UserId,
        entries: Vec<String>,
    },
}

/// The result of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    Recorded(Box<Approval>),
    /// The approval has another answer already, which stays.
    AlreadySettled(Box<Approval>),
    Unknown,
}

/// Selects the approvals of a list. An absent field does not restrict it.
#[derive(Debug, Clone)]
pub struct ApprovalFilter {
    pub scope: Scope,
    pub status: Option<ApprovalStatus>,
    pub exec_id: Option<ExecId>,
}

const COLUMNS: &str = "seq, id, kind, status, exec_id, user_id, agent_id, session_id, command, code, requested_paths, \
                       blocked_paths, risk_level, patterns, digest, asked_by, created_at, expires_at, answered_at, \
                       answered_by, reason, files";
/// Number of approvals that one transaction expires; other operations can run in between.
const MAX_APPROVALS: i64 = 256;
/// The digest of the approval's row, in the details of its entries. Their `digest` is that of the
/// action.
pub(crate) const ROW_DIGEST: &str = "row_sha256";
/// Maximum bytes of a command in the audit entry, which may outlive the approval.
const MAX_COMMAND_BYTES: usize = 1000;

impl Store {
    /// Opens an approval. A used id is a database error, because ids are random. `from` is the
    /// origin of the request, for the audit entry only.
    pub async fn open_approval(&self, new: NewApproval, from: Json) -> Result<(), Error> {
        check_indexed("session_id", &new.session_id)?;
        check_text("command", &new.command)?;
        check_text("asked_by", &new.asked_by)?;
        new.code.as_ref().map_or(Ok(()), |code| check_text("code", code))?;
        self.submit(async move |ledger| open(ledger, &new, &from).await).await
    }

    /// Settles an approval if it is pending, and stores what the answer remembers in the same
    /// transaction.
    pub async fn settle_approval(&self, id: &ApprovalId, answer: Answer) -> Result<Settled, Error> {
        check_text("answered_by", &answer.author.by)?;
        answer.reason.as_ref().map_or(Ok(()), |reason| check_text("reason", reason))?;
        match &answer.remembered {
            Remembering::Nothing => {}
            Remembering::Paths(paths) => paths.iter().try_for_each(|path| check_new(&path.new))?,
            Remembering::Hosts { entries, .. } => {
                entries.iter().try_for_each(|entry| check_indexed("entry", entry))?;
            }
        }
        let id = id.clone();
        self.submit(async move |ledger| {
            if let Some(approval) = settle(ledger, &id, &answer).await? {
                remember_answer(ledger, &id, &answer).await?;
                return Ok(Settled::Recorded(Box::new(approval)));
            }
            let text = format!("SELECT {COLUMNS} FROM approvals WHERE id = $1");
            let row = ledger.row(Statement::new("read an approval", text).bind(id.as_str())).await?;
            let found = row.map(|row| read(&row)).transpose()?;
            Ok(found.map_or(Settled::Unknown, |(_, approval)| Settled::AlreadySettled(Box::new(approval))))
        })
        .await
    }

    /// Expires all pending approvals and returns their number. For the start and the end of a
    /// server, when no exec waits for an answer.
    pub async fn expire_pending_approvals(&self, at: Timestamp, by: &str, reason: &str) -> Result<usize, Error> {
        let answer = Answer {
            status: SettledStatus::Expired,
            at,
            author: Author::new(by),
            reason: Some(reason.to_owned()),
            remembered: Remembering::Nothing,
        };
        let mut expired = 0;
        loop {
            let answer = answer.clone();
            match self.submit(async move |ledger| expire_some(ledger, &answer).await).await? {
                0 => return Ok(expired),
                some => expired += some,
            }
        }
    }

    pub async fn approval(&self, id: &ApprovalId, scope: &Scope) -> Result<Option<Approval>, Error> {
        let mut query = Statement::new("read an approval", "");
        let mut conditions = vec![format!("id = {}", query.placeholder(id.as_str()))];
        scope.restrict(&mut conditions, &mut query);
        query.text = format!("SELECT {COLUMNS} FROM approvals{}", where_all(&conditions)).into();
        let row = self.readers().row(query).await?;
        row.map(|row| read(&row).map(|(_, approval)| approval)).transpose()
    }

    /// Newest first.
    pub async fn approvals(
        &self,
        filter: &ApprovalFilter,
        limit: Limit,
        cursor: Option<Cursor>,
    ) -> Result<Page<Approval>, Error> {
        let rows = self.readers().rows(query(filter, limit, cursor)).await?;
        Ok(Page::cut(rows.iter().map(read).collect::<Result<_, Error>>()?, limit))
    }
}

fn query(filter: &ApprovalFilter, limit: Limit, cursor: Option<Cursor>) -> Statement {
    let mut query = Statement::new("list approvals", "");
    let mut conditions = Vec::new();
    filter.scope.restrict(&mut conditions, &mut query);
    if let Some(status) = filter.status {
        conditions.push(format!("status = {}", query.placeholder(status.as_str())));
    }
    // The list of all approvals, and the few of one exec, are read in the order of `seq` itself;
    // other lists use an index in the order of `-seq`.
    let order = if conditions.is_empty() || filter.exec_id.is_some() { "seq DESC" } else { "-seq" };
    if let Some(exec_id) = &filter.exec_id {
        conditions.push(format!("exec_id = {}", query.placeholder(exec_id.as_str())));
    }
    if let Some(Cursor(seq)) = cursor {
        conditions.push(match order {
            "-seq" => format!("-seq > {}", query.placeholder(-seq)),
            _ => format!("seq < {}", query.placeholder(seq)),
        });
    }
    let at_most = query.placeholder(limit.plus_one());
    let wanted = where_all(&conditions);
    query.text = format!("SELECT {COLUMNS} FROM approvals{wanted} ORDER BY {order} LIMIT {at_most}").into();
    query
}

async fn open(ledger: &mut Ledger<'_>, new: &NewApproval, from: &Json) -> Result<(), Error> {
    let text = "INSERT INTO approvals (seq, id, kind, status, exec_id, user_id, agent_id, session_id, command, code, \
                requested_paths, blocked_paths, risk_level, patterns, digest, asked_by, created_at, expires_at, \
                files) VALUES ($1, $2, $3, 'pending', $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";
    let insertion = Statement::new("open an approval", text)
        .bind(ledger.next())
        .bind(new.id.as_str())
        .bind(new.kind.as_str())
        .bind(new.exec_id.as_str())
        .bind(new.user_id.as_str())
        .bind(new.agent_id.as_str())
        .bind(new.session_id.as_str())
        .bind(new.command.as_str())
        .bind(new.code.as_deref())
        .bind(json!(new.requested_paths).to_string())
        .bind(json!(new.blocked_paths).to_string())
        .bind(new.risk_level.as_str())
        .bind(json!(new.patterns).to_string())
        .bind(new.digest)
        .bind(new.asked_by.as_str())
        .bind(new.created_at)
        .bind(new.expires_at)
        .bind(json!(new.files).to_string());
    ledger.execute(insertion).await?;
    let row = APPROVAL_QUESTIONS.digest(ledger, [new.id.as_str().into()]).await?;
    let covered = new.files.covered.iter();
    let covered = covered.map(|file| json!({ "path": file.path, "sha256": file.sha256, "pinned": file.pinned }));
    let detail = json!({
        ROW_DIGEST: row,
        "exec_id": new.exec_id,
        "session_id": new.session_id,
        "kind": new.kind,
        "command": shortened(&new.command),
        "blocked_paths": new.blocked_paths,
        "requested_paths": new.requested_paths,
        "risk_level": new.risk_level,
        "covered_files": covered.collect::<Vec<_>>(),
        "expires_at": new.expires_at,
        "from": from,
    });
    append(ledger, new, "opened", new.created_at, &new.asked_by, detail);
    Ok(())
}

/// Stores the paths or hosts that an answer allows permanently.
async fn remember_answer(ledger: &mut Ledger<'_>, id: &ApprovalId, answer: &Answer) -> Result<(), Error> {
    let context = ChangeContext { at: answer.at, author: &answer.author, answer_to: Some(id) };
    match &answer.remembered {
        Remembering::Nothing => {}
        Remembering::Paths(paths) => {
            for path in paths {
                remember(ledger, path, context).await?;
            }
        }
        Remembering::Hosts { user, entries } => {
            for entry in entries {
                allow_host(ledger, user, entry, context).await?;
            }
        }
    }
    Ok(())
}

/// Expires up to [`MAX_APPROVALS`] approvals and returns their number.
async fn expire_some(ledger: &mut Ledger<'_>, answer: &Answer) -> Result<usize, Error> {
    let text = "SELECT id FROM approvals WHERE status = 'pending' ORDER BY -seq LIMIT $1";
    let rows = ledger.rows(Statement::new("look for pending approvals", text).bind(MAX_APPROVALS)).await?;
    for row in &rows {
        let id = row.read("approvals", "id", |row| name(row, "id"))?;
        settle(ledger, &id, answer).await?;
    }
    Ok(rows.len())
}

/// `None` if the approval is not pending or does not exist.
async fn settle(ledger: &mut Ledger<'_>, id: &ApprovalId, answer: &Answer) -> Result<Option<Approval>, Error> {
    let status = ApprovalStatus::from(answer.status);
    let text = format!(
        "UPDATE approvals SET status = $1, answered_at = $2, answered_by = $3, reason = $4 \
         WHERE id = $5 AND status = 'pending' RETURNING {COLUMNS}"
    );
    let update = Statement::new("settle an approval", text)
        .bind(status.as_str())
        .bind(answer.at)
        .bind(answer.author.by.as_str())
        .bind(answer.reason.as_deref())
        .bind(id.as_str());
    let Some(row) = ledger.row(update).await? else { return Ok(None) };
    let (_, approval) = read(&row)?;
    let row = APPROVALS.digest(ledger, [id.as_str().into()]).await?;
    let detail = json!({
        ROW_DIGEST: row,
        "exec_id": approval.asked.exec_id,
        "session_id": approval.asked.session_id,
        "asked_by": approval.asked.asked_by,
        "reason": answer.reason,
        "from": answer.author.from,
    });
    append(ledger, &approval.asked, status.as_str(), answer.at, &answer.author.by, detail);
    Ok(Some(approval))
}

fn append(ledger: &mut Ledger<'_>, asked: &NewApproval, verb: &str, at: Timestamp, actor: &str, detail: Json) {
    let draft = Draft::new(at, actor, &format!("approval.{verb}"), &asked.id, detail);
    ledger.append(draft.owned_by(Some(&asked.user_id), Some(&asked.agent_id)).with_digest(Some(asked.digest)));
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_COMMAND_BYTES)]
}

fn read(row: &Row) -> Result<(i64, Approval), Error> {
    row.read("approvals", "id", |row| {
        let at = |column| Ok::<_, BadColumn>(Timestamp::from_milliseconds(row.get(column)?));
        let asked = NewApproval {
            id: name(row, "id")?,
            kind: name(row, "kind")?,
            exec_id: name(row, "exec_id")?,
            user_id: name(row, "user_id")?,
            agent_id: name(row, "agent_id")?,
            session_id: row.get("session_id")?,
            command: row.get("command")?,
            code: row.get("code")?,
            requested_paths: columns::json(row, "requested_paths")?,
            blocked_paths: columns::json(row, "blocked_paths")?,
            risk_level: name(row, "risk_level")?,
            patterns: columns::json(row, "patterns")?,
            files: columns::json(row, "files")?,
            digest: read_digest(row, "digest")?,
            asked_by: row.get("asked_by")?,
            created_at: at("created_at")?,
            expires_at: at("expires_at")?,
        };
        let approval = Approval {
            asked,
            status: name(row, "status")?,
            answered_at: row.get::<Option<i64>>("answered_at")?.map(Timestamp::from_milliseconds),
            answered_by: row.get("answered_by")?,
            reason: row.get("reason")?,
        };
        Ok((row.get("seq")?, approval))
    })
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Row as _};

    use super::*;
    use crate::db::database::{Connector, Database};
    use crate::db::driver::Pool;

    #[test]
    fn approval_status_text_round_trips() {
        for status in ApprovalStatus::ALL {
            assert_eq!(status.as_str().parse::<ApprovalStatus>().unwrap(), status);
            assert_eq!(serde_json::json!(status), status.as_str());
        }
        assert!(RiskLevel::Safe < RiskLevel::Critical);
        for bad in ["", "Pending", "pending "] {
            assert!(bad.parse::<ApprovalStatus>().is_err());
        }
    }

    /// Checked with SQLite's query plans.
    #[tokio::test]
    async fn every_list_is_read_from_an_index_in_list_order() {
        let directory = tempfile::tempdir().unwrap();
        let connector = Connector::new(&Database::Sqlite(directory.path().join("db"))).unwrap();
        connector.migrate().await.unwrap();
        let Pool::Sqlite(pool) = connector.readers() else { panic!("no SQLite") };
        let user = || "u".parse().unwrap();
        for scope in [Scope::All, Scope::User(user()), Scope::Agent(user(), "a".parse().unwrap())] {
            for status in [None, Some(ApprovalStatus::Pending)] {
                for cursor in [None, Some(Cursor(7))] {
                    let filter = ApprovalFilter { scope: scope.clone(), status, exec_id: None };
                    let (text, step) = plan(&pool, &filter, cursor).await;
                    let equalities = text.matches(" = $").count();
                    assert!(step.matches("=?").count() == equalities, "{text}: {step}");
                    assert!(equalities == 0 || step.contains("INDEX approvals_"), "{text}: {step}");
                    // One exec has few approvals, so other conditions are checked row by row.
                    let filter = ApprovalFilter { exec_id: Some("e_0123456789abcdef".parse().unwrap()), ..filter };
                    let (text, step) = plan(&pool, &filter, cursor).await;
                    assert!(step.contains("INDEX approvals_exec (exec_id=?"), "{text}: {step}");
                }
            }
        }
    }

    /// The query, and the only step of its plan.
    async fn plan(pool: &sqlx::SqlitePool, filter: &ApprovalFilter, cursor: Option<Cursor>) -> (String, String) {
        let text = query(filter, Limit::nearest(50), cursor).text.into_owned();
        let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
        let plan = sqlx::query(explain).fetch_all(pool).await.unwrap();
        let [step] = plan.as_slice() else { panic!("{text}: more than a range") };
        (text, step.get("detail"))
    }
}
