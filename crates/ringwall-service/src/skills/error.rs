//! Errors of the skills directory and of skill calls.
//!
//! An invalid manifest is not an error: it is listed with its reasons beside the valid ones.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not create the skills directory {}", path.display())]
    MakeRoot {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("could not open the skills directory {}", path.display())]
    OpenRoot {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("could not list the skills directory {}", path.display())]
    ListRoot {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the skills directory {} holds more than {limit} folders; move some away", path.display())]
    TooManySkills { path: PathBuf, limit: usize },
    #[error("could not write the schema of manifests to {}", path.display())]
    WriteSchema {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the schema for manifests that is built into this program does not compile: {reason}")]
    BuiltInSchema { reason: String },
}

impl From<Error> for crate::error::Error {
    fn from(error: Error) -> Self {
        crate::error::Error::runtime("read the skills", &error)
    }
}

/// An invalid key of a call, or inputs that the interface does not allow. The message names the
/// field and never its value, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct InvalidInput {
    pub field: String,
    pub reason: String,
}

pub(super) fn invalid(field: &str, reason: impl Into<String>) -> InvalidInput {
    InvalidInput { field: field.to_owned(), reason: reason.into() }
}
