//! Execs in the database: intent, outcome, and queries.

pub(crate) mod columns;
pub(crate) mod find;
pub(crate) mod finish;
pub(crate) mod intend;
pub(crate) mod rows;
pub(crate) mod status;
