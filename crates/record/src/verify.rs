//! The audit chain, read from its beginning to its end, and everything that is wrong with it.
//!
//! One snapshot, so that writers do not disturb it, and one page in memory. A changed entry is found by its own hash, a
//! removed one by its number, a removed tail by the head that is kept apart; an exec's row that was changed later is
//! found by the digest in its entries. Not found: a database rewritten as a whole, or one put back to an older state.
//! Compare [`Verification::head`] with a head that was kept elsewhere for those.

use std::fmt;

use crate::audit::{COLUMNS, Entry, Link};
use crate::columns;
use crate::digest::Digest;
use crate::driver::{Row, Snapshot};
use crate::error::Error;
use crate::statement::Statement;
use crate::store::Store;

/// Rows in memory at once. Each may carry a whole exec, so not many.
const AT_ONCE: i64 = 64;
/// Findings that are kept; whatever comes then is counted.
const FINDINGS: usize = 100;
/// For as many altered entries it is asked where they come from. Each asks every number in the chain.
const ORIGINS: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// What the entry says is not what was hashed.
    Altered { seq: i64 },
    /// The entry is whole, but was written with another number.
    Moved { seq: i64, from: i64 },
    /// An entry that cannot even be read.
    Unreadable { seq: i64 },
    /// The entry is whole, but does not follow the one before it: one of the two was written anew.
    Unlinked { seq: i64 },
    /// These are not there.
    Removed { first: i64, last: i64 },
    /// The newest ones are not there.
    TailRemoved { first: i64, last: i64 },
    /// Entries after the end of the chain, or an end that is not that of the newest entry.
    HeadWrong { seq: i64 },
    /// The exec's row is not what this entry recorded.
    ExecAltered { seq: i64, exec_id: String },
    /// An entry with a number that retention has long passed: nobody appends there.
    Planted { seq: i64 },
    /// An exec that nobody intended: its entry is another's, or not there.
    ExecUnrecorded { exec_id: String },
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Altered { seq } => write!(formatter, "entry {seq} was altered"),
            Finding::Moved { seq, from } => write!(formatter, "entry {seq} was moved there; it was entry {from}"),
            Finding::Unreadable { seq } => write!(formatter, "entry {seq} was altered so that it cannot be read"),
            Finding::Unlinked { seq } => {
                write!(formatter, "entry {seq} does not follow the one before it; one of the two was written anew")
            }
            Finding::Removed { first, last } => write!(formatter, "entries {first} to {last} were removed"),
            Finding::TailRemoved { first, last } => {
                write!(formatter, "the newest entries, {first} to {last}, were removed")
            }
            Finding::HeadWrong { seq } => write!(formatter, "the chain's end is not that of entry {seq}, the newest"),
            Finding::ExecAltered { seq, exec_id } => {
                write!(formatter, "exec {exec_id} was altered after entry {seq} recorded it")
            }
            Finding::Planted { seq } => write!(formatter, "entry {seq} was planted before the chain's start"),
            Finding::ExecUnrecorded { exec_id } => write!(formatter, "exec {exec_id} has no intent in the chain"),
        }
    }
}

/// How far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub checked: u64,
    pub of: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// Where the chain starts: the newest entry that retention removed, or number zero.
    pub start: Link,
    /// Where it ends, as it is kept apart.
    pub head: Link,
    pub checked: u64,
    /// The first ones, in the order in which they were found.
    pub findings: Vec<Finding>,
    /// How many there were beyond those.
    pub further: u64,
}

impl Verification {
    pub fn is_intact(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, finding: Finding) {
        if self.findings.len() < FINDINGS {
            self.findings.push(finding);
        } else {
            self.further += 1;
        }
    }
}

impl Store {
    pub async fn verify(&self, mut progress: impl FnMut(Progress) + Send) -> Result<Verification, Error> {
        let mut snapshot = self.readers().snapshot().await?;
        let start = one_row(&mut snapshot, "audit_checkpoint", "SELECT seq, hash FROM audit_checkpoint").await?;
        let head = one_row(&mut snapshot, "audit_head", "SELECT seq, hash FROM audit_head").await?;
        let of = u64::try_from(head.seq - start.seq).unwrap_or_default();
        let mut walk = Walk {
            last: start.seq,
            hash: Some(start.hash),
            origins: 0,
            verification: Verification { start, head, checked: 0, findings: Vec::new(), further: 0 },
        };
        loop {
            let rows = snapshot.rows(page_after(walk.last)).await?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                walk.step(row)?;
            }
            progress(Progress { checked: walk.verification.checked, of });
        }
        walk.end();
        for seq in planted(&mut snapshot, start.seq).await? {
            walk.verification.find(Finding::Planted { seq });
        }
        for exec_id in unrecorded(&mut snapshot, start.seq).await? {
            walk.verification.find(Finding::ExecUnrecorded { exec_id });
        }
        // Nothing was written; a failing end of the snapshot changes nothing.
        let _ = snapshot.rollback().await;
        Ok(walk.verification)
    }
}

async fn one_row(snapshot: &mut Snapshot, table: &'static str, text: &'static str) -> Result<Link, Error> {
    let row = snapshot.row(Statement::new("read the ends of the audit chain", text)).await?;
    Link::read(row.as_ref(), table)
}

fn page_after(seq: i64) -> Statement {
    let columns = COLUMNS.split(", ").map(|column| format!("entry.{column}")).collect::<Vec<_>>().join(", ");
    let text = format!(
        "SELECT {columns}, {} FROM audit AS entry LEFT JOIN sandbox_execs AS exec \
         ON exec.exec_id = entry.subject AND entry.digest IS NOT NULL \
         WHERE entry.seq > $1 ORDER BY entry.seq LIMIT $2",
        *columns::JOINED
    );
    Statement::new("read the audit chain", text).bind(seq).bind(AT_ONCE)
}

async fn planted(snapshot: &mut Snapshot, start: i64) -> Result<Vec<i64>, Error> {
    let text = "SELECT seq FROM audit WHERE seq <= $1 ORDER BY seq LIMIT $2";
    let question = Statement::new("look before the audit chain's start", text).bind(start).bind(FINDINGS as i64);
    let rows = snapshot.rows(question).await?;
    rows.iter().map(|row| row.read("audit", "seq", |row| row.get("seq"))).collect()
}

async fn unrecorded(snapshot: &mut Snapshot, start: i64) -> Result<Vec<String>, Error> {
    let text = "SELECT exec.exec_id AS exec_id FROM sandbox_execs AS exec \
                LEFT JOIN audit AS entry ON entry.seq = exec.seq \
                WHERE exec.seq > $1 AND (entry.seq IS NULL OR entry.subject <> exec.exec_id) \
                ORDER BY exec.seq LIMIT $2";
    let question = Statement::new("look for execs without an intent", text).bind(start).bind(FINDINGS as i64);
    let rows = snapshot.rows(question).await?;
    rows.iter().map(|row| row.read("sandbox_execs", "exec_id", |row| row.get("exec_id"))).collect()
}

/// A walk along the chain: what the last entry was, and what was found.
struct Walk {
    last: i64,
    /// Not known when the last entry could not be read.
    hash: Option<Digest>,
    origins: usize,
    verification: Verification,
}

impl Walk {
    fn step(&mut self, row: &Row) -> Result<(), Error> {
        let seq: i64 = row.read("audit", "seq", |row| row.get("seq"))?;
        self.verification.checked += 1;
        if seq > self.last + 1 {
            self.verification.find(Finding::Removed { first: self.last + 1, last: seq - 1 });
            self.hash = None;
        }
        self.last = seq;
        let Ok(entry) = Entry::read(row) else {
            self.verification.find(Finding::Unreadable { seq });
            self.hash = None;
            return Ok(());
        };
        if entry.computed_hash() != entry.hash {
            let finding = self.origin(&entry).map_or(Finding::Altered { seq }, |from| Finding::Moved { seq, from });
            self.verification.find(finding);
        } else if self.hash.is_some_and(|hash| entry.previous != hash) {
            self.verification.find(Finding::Unlinked { seq });
        } else {
            self.compare_exec(&entry, row);
        }
        self.hash = Some(entry.hash);
        Ok(())
    }

    /// The number with which the entry would be whole. To try them all costs a second for a million.
    fn origin(&mut self, entry: &Entry) -> Option<i64> {
        if self.origins == ORIGINS {
            return None;
        }
        self.origins += 1;
        let numbers = self.verification.start.seq + 1..=self.verification.head.seq;
        let mut candidate = entry.clone();
        numbers.into_iter().find(|number| {
            candidate.seq = *number;
            candidate.computed_hash() == entry.hash
        })
    }

    /// An exec that is not there any more was pruned, which the chain says too.
    fn compare_exec(&mut self, entry: &Entry, row: &Row) {
        let is_altered = match columns::stored_digest(&entry.action, row) {
            Ok(stored) => stored.is_some_and(|stored| entry.digest != Some(stored)),
            Err(_) => true,
        };
        if is_altered {
            self.verification.find(Finding::ExecAltered { seq: entry.seq, exec_id: entry.subject.clone() });
        }
    }

    fn end(&mut self) {
        let head = self.verification.head;
        if self.last < head.seq {
            self.verification.find(Finding::TailRemoved { first: self.last + 1, last: head.seq });
        } else if self.last > head.seq || self.hash.is_some_and(|hash| hash != head.hash) {
            self.verification.find(Finding::HeadWrong { seq: self.last });
        }
    }
}
