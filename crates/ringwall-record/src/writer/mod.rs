//! The writer thread: groups operations into transactions and answers them after the commit.

pub(crate) mod ledger;
pub(crate) mod queue;
