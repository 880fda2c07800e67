//! The allowed host paths, and the switch of path control.
//!
//! Operators may edit these tables with SQL. Nothing is cached, so the next read sees such a
//! change. The service decides what a path means, which paths are equal and who may change them.
//! Every change through this module is an audit entry in the same transaction. The subject of a
//! path's entry is the row's id, because a path can be too long for an index.

use ringwall_ids::{ApprovalId, UserId};
use serde_json::{Value as Json, json};

use crate::audit::entry::{Author, Draft};
use crate::audit::rows::SANDBOX_PATHS;
use crate::db::driver::{BadColumn, Row};
use crate::db::statement::{Statement, check_indexed, check_text};
use crate::error::Error;
use crate::store::Store;
use crate::timestamp::Timestamp;
use crate::writer::ledger::Ledger;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    On,
    Off,
}

impl Switch {
    pub const fn of(is_on: bool) -> Self {
        if is_on { Switch::On } else { Switch::Off }
    }

    pub const fn is_on(self) -> bool {
        matches!(self, Switch::On)
    }

    /// Any number but 0 is on, as in SQL: operators may write this column.
    const fn read(number: i64) -> Self {
        Self::of(number != 0)
    }

    const fn number(self) -> i64 {
        match self {
            Switch::On => 1,
            Switch::Off => 0,
        }
    }
}

/// The users to whom an allowed path applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathScope {
    Global,
    User(UserId),
}

impl PathScope {
    /// The text in the database and in the API.
    pub fn text(&self) -> String {
        match self {
            PathScope::Global => GLOBAL.to_owned(),
            PathScope::User(user) => format!("{OF_USER}{user}"),
        }
    }

    fn read(text: &str) -> Result<Self, Error> {
        match text.strip_prefix(OF_USER) {
            Some(user) => Ok(PathScope::User(user.parse()?)),
            None if text == GLOBAL => Ok(PathScope::Global),
            None => Err(Error::NameMalformed { what: "a path's scope: global, or user: and a user id" }),
        }
    }

    fn user(&self) -> Option<&UserId> {
        match self {
            PathScope::Global => None,
            PathScope::User(user) => Some(user),
        }
    }
}

const GLOBAL: &str = "global";
const OF_USER: &str = "user:";

/// An allowed path as stored. If it was written with SQL, the path may not be normalised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathEntry {
    pub id: i64,
    pub path: String,
    pub description: String,
    pub enabled: Switch,
    pub scope: PathScope,
    pub created_at: Timestamp,
    pub created_by: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPath {
    pub path: String,
    pub description: String,
    pub scope: PathScope,
}

/// A path that a person allowed permanently.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RememberedPath {
    pub new: NewPath,
    /// Existing rows for the same path, perhaps in another spelling. They are enabled; `new` is
    /// added only if none of them exists any more.
    pub known: Vec<i64>,
}

/// Absent fields are not changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathChange {
    pub enabled: Option<Switch>,
    pub description: Option<String>,
}

/// The answer to [`Store::add_path`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    Recorded {
        id: i64,
    },
    /// A row of the same scope has exactly this path; it was not changed.
    Known {
        id: i64,
    },
}

const SELECT: &str = "SELECT id, path, description, enabled, scope, created_at, created_by FROM sandbox_paths";
pub(crate) const SWITCH: &str = "SELECT enabled FROM sandbox_configs ORDER BY id DESC LIMIT 1";

impl Store {
    pub async fn path_switch(&self) -> Result<Switch, Error> {
        let row = self.readers().row(Statement::new("read whether paths are controlled", SWITCH)).await?;
        read_switch(row.as_ref())
    }

    /// The allowed paths of all users, oldest first.
    pub async fn paths(&self) -> Result<Vec<PathEntry>, Error> {
        self.list_paths(Statement::new("list the allowed paths", format!("{SELECT} ORDER BY id"))).await
    }

    /// The allowed paths that apply to one user, global ones included, oldest first.
    pub async fn paths_for(&self, user: &UserId) -> Result<Vec<PathEntry>, Error> {
        let text = format!("{SELECT} WHERE scope IN ($1, $2) ORDER BY id");
        let query = Statement::new("list a user's allowed paths", text);
        let own = PathScope::User(user.clone()).text();
        self.list_paths(query.bind(PathScope::Global.text()).bind(own)).await
    }

    async fn list_paths(&self, query: Statement) -> Result<Vec<PathEntry>, Error> {
        self.readers().rows(query).await?.iter().map(read).collect()
    }

    pub async fn switch_path_control(&self, switch: Switch, at: Timestamp, author: Author) -> Result<(), Error> {
        check_text("actor", &author.by)?;
        self.submit(async move |ledger| set_switch(ledger, switch, at, &author).await).await
    }

    pub async fn add_path(&self, path: NewPath, at: Timestamp, author: Author) -> Result<Added, Error> {
        check_new(&path)?;
        check_text("created_by", &author.by)?;
        self.submit(async move |ledger| match find_same(ledger, &path).await? {
            Some(known) => Ok(Added::Known { id: known.id }),
            None => insert(ledger, &path, ChangeContext { at, author: &author, answer_to: None })
                .await
                .map(|id| Added::Recorded { id }),
        })
        .await
    }

    /// Changes an allowed path and returns the new state, or `None` if there is none with this id.
    pub async fn change_path(
        &self,
        id: i64,
        change: PathChange,
        at: Timestamp,
        author: Author,
    ) -> Result<Option<PathEntry>, Error> {
        change.description.as_ref().map_or(Ok(()), |text| check_indexed("description", text))?;
        check_text("actor", &author.by)?;
        self.submit(async move |ledger| {
            let context = ChangeContext { at, author: &author, answer_to: None };
            match find(ledger, id).await? {
                Some(before) => update(ledger, before, &change, context).await.map(Some),
                None => Ok(None),
            }
        })
        .await
    }

    /// Removes these allowed paths and returns how many of them existed.
    pub async fn remove_paths(&self, ids: &[i64], at: Timestamp, author: Author) -> Result<usize, Error> {
        check_text("actor", &author.by)?;
        let ids = ids.to_vec();
        self.submit(async move |ledger| {
            remove(ledger, &ids, ChangeContext { at, author: &author, answer_to: None }).await
        })
        .await
    }
}

pub(crate) fn check_new(path: &NewPath) -> Result<(), Error> {
    check_text("path", &path.path)?;
    check_indexed("description", &path.description)
}

async fn set_switch(ledger: &mut Ledger<'_>, switch: Switch, at: Timestamp, author: &Author) -> Result<(), Error> {
    let row = ledger.row(Statement::new("read whether paths are controlled", SWITCH)).await?;
    if read_switch(row.as_ref())? == switch {
        return Ok(());
    }
    let text = match row {
        Some(_) => "UPDATE sandbox_configs SET enabled = $1, changed_at = $2",
        None => "INSERT INTO sandbox_configs (enabled, changed_at) VALUES ($1, $2)",
    };
    ledger.execute(Statement::new("switch path control", text).bind(switch.number()).bind(at)).await?;
    let action = if switch.is_on() { "sandbox.enabled" } else { "sandbox.disabled" };
    let detail = json!({ "enabled": switch.is_on(), "from": author.from });
    ledger.append(Draft::new(at, &author.by, action, "sandbox", detail));
    Ok(())
}

/// Author and time of a change, and the approval whose answer caused it, if any.
#[derive(Clone, Copy)]
pub(crate) struct ChangeContext<'a> {
    pub(crate) at: Timestamp,
    pub(crate) author: &'a Author,
    pub(crate) answer_to: Option<&'a ApprovalId>,
}

/// Ensures that the path is in the table and enabled.
pub(crate) async fn remember(
    ledger: &mut Ledger<'_>,
    path: &RememberedPath,
    context: ChangeContext<'_>,
) -> Result<(), Error> {
    let mut known = Vec::new();
    for id in &path.known {
        known.extend(find(ledger, *id).await?.filter(|entry| entry.scope == path.new.scope));
    }
    if known.is_empty() {
        known.extend(find_same(ledger, &path.new).await?);
    }
    if known.is_empty() {
        return insert(ledger, &path.new, context).await.map(drop);
    }
    for entry in known {
        update(ledger, entry, &PathChange { enabled: Some(Switch::On), description: None }, context).await?;
    }
    Ok(())
}

async fn insert(ledger: &mut Ledger<'_>, new: &NewPath, context: ChangeContext<'_>) -> Result<i64, Error> {
    let NewPath { path, description, scope } = new;
    let text = "INSERT INTO sandbox_paths (path, description, enabled, scope, created_at, created_by) \
                VALUES ($1, $2, $3, $4, $5, $6) RETURNING id";
    let insertion = Statement::new("add an allowed path", text)
        .bind(path.as_str())
        .bind(description.as_str())
        .bind(Switch::On.number())
        .bind(scope.text())
        .bind(context.at)
        .bind(context.author.by.as_str());
    let row = ledger.row(insertion).await?;
    let id = row.map_or(Ok(0), |row| row.read("sandbox_paths", "id", |row| row.get("id")))?;
    let detail = json!({ "path": path, "description": description, "scope": scope.text() });
    let digest = SANDBOX_PATHS.digest(ledger, [id.into()]).await?;
    ledger.append(draft("sandbox.path.added", id, scope, detail, context).with_digest(digest));
    Ok(id)
}

/// Changes an allowed path and returns the new state. Writes nothing if the state is the same.
async fn update(
    ledger: &mut Ledger<'_>,
    before: PathEntry,
    change: &PathChange,
    context: ChangeContext<'_>,
) -> Result<PathEntry, Error> {
    let mut after = before.clone();
    after.enabled = change.enabled.unwrap_or(before.enabled);
    after.description = change.description.clone().unwrap_or(before.description.clone());
    if after == before {
        return Ok(after);
    }
    let text = "UPDATE sandbox_paths SET enabled = $1, description = $2 WHERE id = $3";
    let update = Statement::new("change an allowed path", text)
        .bind(after.enabled.number())
        .bind(after.description.as_str())
        .bind(after.id);
    ledger.execute(update).await?;
    let detail = json!({ "path": after.path, "enabled": after.enabled.is_on(), "description": after.description });
    let digest = SANDBOX_PATHS.digest(ledger, [after.id.into()]).await?;
    ledger.append(draft("sandbox.path.changed", after.id, &after.scope, detail, context).with_digest(digest));
    Ok(after)
}

async fn remove(ledger: &mut Ledger<'_>, ids: &[i64], context: ChangeContext<'_>) -> Result<usize, Error> {
    let mut removed = 0;
    for id in ids {
        let Some(entry) = find(ledger, *id).await? else { continue };
        let deletion = Statement::new("remove an allowed path", "DELETE FROM sandbox_paths WHERE id = $1");
        ledger.execute(deletion.bind(*id)).await?;
        let detail = json!({ "path": entry.path, "scope": entry.scope.text() });
        ledger.append(draft("sandbox.path.removed", *id, &entry.scope, detail, context));
        removed += 1;
    }
    Ok(removed)
}

async fn find(ledger: &mut Ledger<'_>, id: i64) -> Result<Option<PathEntry>, Error> {
    let query = Statement::new("read an allowed path", format!("{SELECT} WHERE id = $1")).bind(id);
    ledger.row(query).await?.as_ref().map(read).transpose()
}

/// The oldest row of the same scope with exactly this path.
async fn find_same(ledger: &mut Ledger<'_>, path: &NewPath) -> Result<Option<PathEntry>, Error> {
    let text = format!("{SELECT} WHERE path = $1 AND scope = $2 ORDER BY id LIMIT 1");
    let query = Statement::new("read an allowed path", text).bind(path.path.as_str()).bind(path.scope.text());
    ledger.row(query).await?.as_ref().map(read).transpose()
}

fn draft(action: &str, id: i64, scope: &PathScope, mut detail: Json, context: ChangeContext<'_>) -> Draft {
    detail["from"] = context.author.from.clone();
    if let Some(answer_to) = context.answer_to {
        detail["request_id"] = json!(answer_to);
    }
    Draft::new(context.at, &context.author.by, action, id, detail).owned_by(scope.user(), None)
}

pub(crate) fn read_switch(row: Option<&Row>) -> Result<Switch, Error> {
    let number = row.map(|row| row.read("sandbox_configs", "enabled", |row| row.get::<i64>("enabled"))).transpose()?;
    Ok(number.map_or(Switch::Off, Switch::read))
}

fn read(row: &Row) -> Result<PathEntry, Error> {
    row.read("sandbox_paths", "id", |row| {
        let scope: String = row.get("scope")?;
        Ok(PathEntry {
            id: row.get("id")?,
            path: row.get("path")?,
            description: row.get("description")?,
            enabled: Switch::read(row.get("enabled")?),
            scope: PathScope::read(&scope).map_err(|error| BadColumn::new("scope", error))?,
            created_at: Timestamp::from_milliseconds(row.get("created_at")?),
            created_by: row.get("created_by")?,
        })
    })
}
