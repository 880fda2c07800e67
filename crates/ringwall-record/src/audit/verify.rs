//! Verifies the audit chain from its start to its head, and the rows that its entries recorded.
//!
//! All reads use one snapshot, so that writers do not disturb it. Memory: one page of entries, and
//! one line for each row of the tables in [`crate::audit::rows`]. It finds
//!
//! - a changed entry, by its hash; a removed one, by its number; a cut tail or a rewritten chain,
//!   by the head's signature, if the key is at hand; removed oldest entries, by the missing entry
//!   of retention;
//! - an exec or approval that is not what its entries recorded, or that has no entries;
//! - a token, settings version, session rule, allowed host or host uid that the newest entry about
//!   it does not match.
//!
//! Not found: the removal of whole execs and approvals, which looks like retention, and a database
//! that was put back to an older state as a whole. For the latter compare with a head that was
//! stored elsewhere.

use crate::audit::entry::{COLUMNS, Entry, Link};
use crate::audit::finding::{Finding, Note, Signature};
use crate::audit::head::{SELECT_HEAD, SIGNED_ACTION, StoredHead};
use crate::audit::rows::{Difference, Expected, SANDBOX_PATHS, TABLES};
use crate::audit::verify_rows;
use crate::db::driver::{Row, Snapshot};
use crate::db::statement::Statement;
use crate::digest::Digest;
use crate::error::Error;
use crate::exec::columns;
use crate::store::Store;

/// Entries per page. Each may be joined with a whole exec.
const PAGE: i64 = 64;
/// Maximum number of reported findings; further ones are counted.
const MAX_FINDINGS: usize = 100;
/// For this many altered entries all numbers of the chain are tried, to tell a moved entry from a
/// changed one.
const MAX_ORIGIN_SEARCHES: usize = 8;

/// The number of checked entries, and of all entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub checked: u64,
    pub of: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// The start of the chain: the newest entry that retention removed, or number 0.
    pub start: Link,
    /// The stored head.
    pub head: Link,
    pub checked: u64,
    /// The first 100 findings.
    pub findings: Vec<Finding>,
    /// The number of further findings.
    pub further: u64,
    pub signature: Signature,
    pub notes: Vec<Note>,
}

impl Verification {
    pub fn is_intact(&self) -> bool {
        self.findings.is_empty()
    }

    pub(crate) fn note(&mut self, note: Note) {
        if self.notes.len() < MAX_FINDINGS {
            self.notes.push(note);
        }
    }

    pub(crate) fn find(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.further += 1;
        }
    }
}

impl Store {
    pub async fn verify(&self, progress: impl FnMut(Progress) + Send) -> Result<Verification, Error> {
        self.verify_with(None, progress).await
    }

    /// Also checks that the chain contains a head that was stored elsewhere.
    pub async fn verify_with(
        &self,
        kept: Option<Link>,
        mut progress: impl FnMut(Progress) + Send,
    ) -> Result<Verification, Error> {
        let mut snapshot = self.readers().snapshot().await?;
        let start = snapshot.row(Statement::new(ENDS, "SELECT seq, hash FROM audit_checkpoint")).await?;
        let start = Link::read(start.as_ref(), "audit_checkpoint")?;
        let stored = StoredHead::read(snapshot.row(Statement::new(ENDS, SELECT_HEAD)).await?.as_ref())?;
        let filed = snapshot.row(Statement::new(ENDS, "SELECT filed_through FROM audit_head")).await?;
        let filed = filed.map(|row| row.read("audit_head", "filed_through", |row| row.get("filed_through")));
        let head = stored.link;
        let of = u64::try_from(head.seq - start.seq).unwrap_or_default();
        let signature = match (&stored.mac, self.key()) {
            (None, _) if head.seq == 0 => Signature::Valid,
            (None, _) => Signature::Missing,
            (Some(_), None) => Signature::NotChecked,
            (Some(mac), Some(key)) if key.is_signed(head, mac) => Signature::Valid,
            (Some(_), Some(_)) => Signature::Invalid,
        };
        let mut walk = Walk {
            last: start.seq,
            hash: Some(start.hash),
            origins: 0,
            filed_through: filed.transpose()?.unwrap_or_default(),
            kept,
            expected: Expected::default(),
            outcomes: 0,
            pruned_through: 0,
            path_control: None,
            verification: Verification {
                start,
                head,
                checked: 0,
                findings: Vec::new(),
                further: 0,
                signature,
                notes: Vec::new(),
            },
        };
        loop {
            let rows = snapshot.rows(page_after(walk.last)).await?;
            if rows.is_empty() {
                break;
            }
            let mut approvals = Vec::new();
            for row in &rows {
                approvals.extend(walk.step(row)?.filter(|entry| entry.action.starts_with("approval.")));
            }
            verify_rows::compare_approvals(&mut snapshot, &approvals, &mut walk.verification).await?;
            progress(Progress { checked: walk.verification.checked, of });
        }
        walk.end();
        for seq in planted(&mut snapshot, start.seq).await? {
            walk.verification.find(Finding::Planted { seq });
        }
        for exec_id in unrecorded(&mut snapshot, start.seq).await? {
            walk.verification.find(Finding::ExecUnrecorded { exec_id });
        }
        walk.compare_rows(&mut snapshot).await?;
        // The snapshot only reads, so a failed rollback is harmless.
        let _ = snapshot.rollback().await;
        Ok(walk.verification)
    }
}

const ENDS: &str = "read the ends of the audit chain";

fn page_after(seq: i64) -> Statement {
    let columns = COLUMNS.split(", ").map(|column| format!("entry.{column}")).collect::<Vec<_>>().join(", ");
    let text = format!(
        "SELECT {columns}, entry.filed AS filed, exec.seq AS exec_seq, {} FROM audit AS entry \
         LEFT JOIN sandbox_execs AS exec ON exec.exec_id = entry.subject AND entry.digest IS NOT NULL \
         WHERE entry.seq > $1 ORDER BY entry.seq LIMIT $2",
        *columns::JOINED
    );
    Statement::new("read the audit chain", text).bind(seq).bind(PAGE)
}

async fn planted(snapshot: &mut Snapshot, start: i64) -> Result<Vec<i64>, Error> {
    let text = "SELECT seq FROM audit WHERE seq <= $1 ORDER BY seq LIMIT $2";
    let query =
        Statement::new("look for entries before the audit chain's start", text).bind(start).bind(MAX_FINDINGS as i64);
    let rows = snapshot.rows(query).await?;
    rows.iter().map(|row| row.read("audit", "seq", |row| row.get("seq"))).collect()
}

async fn unrecorded(snapshot: &mut Snapshot, start: i64) -> Result<Vec<String>, Error> {
    let text = "SELECT exec.exec_id AS exec_id FROM sandbox_execs AS exec \
                LEFT JOIN audit AS entry ON entry.seq = exec.seq \
                WHERE exec.seq > $1 AND (entry.seq IS NULL OR entry.subject <> exec.exec_id) \
                ORDER BY exec.seq LIMIT $2";
    let query = Statement::new("look for execs without an intent", text).bind(start).bind(MAX_FINDINGS as i64);
    let rows = snapshot.rows(query).await?;
    rows.iter().map(|row| row.read("sandbox_execs", "exec_id", |row| row.get("exec_id"))).collect()
}

/// The state of a pass over the chain.
struct Walk {
    last: i64,
    /// The hash of the last entry. Unknown after an unreadable or missing one.
    hash: Option<Digest>,
    origins: usize,
    /// Entries up to this one are in the indexes of lists.
    filed_through: i64,
    /// The head that was stored elsewhere, until its entry was found.
    kept: Option<Link>,
    expected: Expected,
    /// Execs after the chain's start whose outcome matches its entry.
    outcomes: i64,
    /// The last entry that retention announced to remove.
    pruned_through: i64,
    /// The state of path control according to the newest entry about it.
    path_control: Option<bool>,
    verification: Verification,
}

impl Walk {
    /// Returns the entry if its hash matches and it follows the entry before it.
    fn step(&mut self, row: &Row) -> Result<Option<Entry>, Error> {
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
            return Ok(None);
        };
        if seq <= self.filed_through && row.read("audit", "seq", |row| row.get::<i64>("filed"))? == 0 {
            self.verification.find(Finding::Hidden { seq });
        }
        if self.kept == Some(entry.link()) {
            self.kept = None;
        }
        let (hash, previous) = (entry.computed_hash(), self.hash.replace(entry.hash));
        if hash != entry.hash {
            let finding = self.origin(&entry).map_or(Finding::Altered { seq }, |from| Finding::Moved { seq, from });
            self.verification.find(finding);
            return Ok(None);
        }
        if previous.is_some_and(|previous| entry.previous != previous) {
            self.verification.find(Finding::Unlinked { seq });
            return Ok(None);
        }
        self.compare_exec(&entry, row);
        self.expected.follow(&entry);
        self.follow_events(&entry);
        Ok(Some(entry))
    }

    /// The number with which the entry's hash matches. Trying a million numbers takes a second.
    fn origin(&mut self, entry: &Entry) -> Option<i64> {
        if self.origins == MAX_ORIGIN_SEARCHES {
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

    /// Skips entries about execs that are missing, because retention removes execs.
    fn compare_exec(&mut self, entry: &Entry, row: &Row) {
        let is_altered = match columns::stored_digest(&entry.action, row) {
            Ok(Some(stored)) => entry.digest != Some(stored),
            Ok(None) => return,
            Err(_) => true,
        };
        if is_altered {
            self.verification.find(Finding::ExecAltered { seq: entry.seq, exec_id: entry.subject.clone() });
        } else if entry.action != columns::INTENT_ACTION
            && row.get::<i64>("exec_seq").is_ok_and(|seq| seq > self.verification.start.seq)
        {
            self.outcomes += 1;
        }
    }

    /// Follows entries about the chain itself and about path control.
    fn follow_events(&mut self, entry: &Entry) {
        let detail = || serde_json::from_str::<serde_json::Value>(&entry.detail).unwrap_or_default();
        match entry.action.as_str() {
            "audit.pruned" => {
                self.pruned_through = self.pruned_through.max(detail()["last"].as_i64().unwrap_or_default());
            }
            SIGNED_ACTION => {
                let detail = detail();
                let found = detail["found"].as_str().unwrap_or_default().to_owned();
                let through = detail["through"].as_i64().unwrap_or_default();
                self.verification.find(Finding::HeadReplaced { seq: entry.seq, found, through });
            }
            "sandbox.enabled" => self.path_control = Some(true),
            "sandbox.disabled" => self.path_control = Some(false),
            _ => {}
        }
    }

    fn end(&mut self) {
        let (start, head) = (self.verification.start, self.verification.head);
        if self.last < head.seq {
            self.verification.find(Finding::TailRemoved { first: self.last + 1, last: head.seq });
        } else if self.last > head.seq || self.hash.is_some_and(|hash| hash != head.hash) {
            self.verification.find(Finding::HeadWrong { seq: self.last });
        }
        match self.verification.signature {
            Signature::Valid => {}
            Signature::NotChecked => self.verification.note(Note::SignatureNotChecked),
            Signature::Missing => self.verification.find(Finding::HeadUnsigned),
            Signature::Invalid => self.verification.find(Finding::HeadForged),
        }
        if start.seq > self.pruned_through {
            self.verification.find(Finding::StartRemoved { through: start.seq });
        }
        match self.kept {
            None => {}
            Some(kept) if kept == start => {}
            Some(kept) if kept.seq < start.seq => {
                self.verification.find(Finding::KeptHeadTooOld { kept, start: start.seq });
            }
            Some(kept) => self.verification.find(Finding::KeptHeadMissing { kept }),
        }
    }

    /// Compares the tables with their entries.
    async fn compare_rows(&mut self, snapshot: &mut Snapshot) -> Result<(), Error> {
        let start = self.verification.start.seq;
        verify_rows::find_unrecorded_outcomes(snapshot, start, self.outcomes, &mut self.verification).await?;
        verify_rows::find_unrecorded_approvals(snapshot, start, &mut self.verification).await?;
        for table in TABLES {
            let verification = &mut self.verification;
            let report = |key, difference| match difference {
                _ if *table == SANDBOX_PATHS => verification.note(Note::PathByHand { id: key }),
                Difference::Altered { seq } => verification.find(Finding::RowAltered { table: table.name, key, seq }),
                Difference::Unrecorded => verification.find(Finding::RowUnrecorded { table: table.name, key }),
                Difference::Removed { seq } => verification.find(Finding::RowRemoved { table: table.name, key, seq }),
            };
            self.expected.compare(snapshot, table, report).await?;
        }
        if let Some(recorded) = self.path_control
            && verify_rows::path_control(snapshot).await? != recorded
        {
            self.verification.note(Note::SwitchByHand);
        }
        verify_rows::note_not_compared(snapshot, start, &mut self.verification).await
    }
}
