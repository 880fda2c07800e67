//! Results that a caller waiting for code gets in addition to the record: the exec that replaces it
//! after a person edited the code, its assessment, the files it created, and the answer of its
//! context.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use ringwall_ids::ExecId;
use ringwall_risk::Assessment;

use crate::boxes::CellAnswer;

#[derive(Debug, Default)]
pub(crate) struct RunNotes {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    goes_on_as: Option<ExecId>,
    assessment: Option<Arc<Assessment>>,
    created: Created,
    answer: Option<CellAnswer>,
}

/// The files that code created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Created {
    These(Vec<String>),
    /// The session has too many files to compare, or they could not be listed.
    Unknown,
}

impl Default for Created {
    fn default() -> Self {
        Created::These(Vec::new())
    }
}

impl RunNotes {
    pub(crate) fn assessed(&self, assessment: Arc<Assessment>) {
        self.lock().assessment = Some(assessment);
    }

    /// Set before the first exec ends, so that a caller that sees its end finds the next exec.
    pub(crate) fn go_on_as(&self, exec_id: ExecId) {
        self.lock().goes_on_as = Some(exec_id);
    }

    pub(crate) fn created(&self, files: Created) {
        self.lock().created = files;
    }

    /// The displayed results or the exception of a run in a context.
    pub(crate) fn answered(&self, answer: CellAnswer) {
        self.lock().answer = Some(answer);
    }

    pub(crate) fn answer(&self) -> Option<CellAnswer> {
        self.lock().answer.clone()
    }

    pub(crate) fn latest(&self) -> Option<ExecId> {
        self.lock().goes_on_as.clone()
    }

    pub(crate) fn assessment(&self) -> Option<Arc<Assessment>> {
        self.lock().assessment.clone()
    }

    pub(crate) fn files_created(&self) -> Created {
        self.lock().created.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }
}
