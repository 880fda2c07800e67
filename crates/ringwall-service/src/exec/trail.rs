//! What whoever waits for a piece of code learns beside its record: as which exec it goes on when a person has changed it, how
//! it was assessed, and which files it made.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringwall_record::ExecId;
use ringwall_risk::Assessment;

use crate::boxes::CellAnswer;

#[derive(Debug, Default)]
pub(crate) struct Trail {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    goes_on_as: Option<ExecId>,
    assessment: Option<Arc<Assessment>>,
    created: Created,
    answer: Option<CellAnswer>,
}

/// Which files code made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Created {
    These(Vec<String>),
    /// There are too many to tell which of them are new, or they could not be looked at.
    Unknown,
}

impl Default for Created {
    fn default() -> Self {
        Created::These(Vec::new())
    }
}

impl Trail {
    pub(crate) fn assessed(&self, assessment: Arc<Assessment>) {
        self.lock().assessment = Some(assessment);
    }

    /// Said before the first one ends, so that whoever sees that end knows where to look.
    pub(crate) fn go_on_as(&self, exec_id: ExecId) {
        self.lock().goes_on_as = Some(exec_id);
    }

    pub(crate) fn created(&self, files: Created) {
        self.lock().created = files;
    }

    /// What a run in a context has shown or raised.
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
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
