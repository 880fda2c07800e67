//! The one thread that writes: operations are grouped into transactions and acknowledged after the commit.

pub(crate) mod ledger;
pub(crate) mod writer;
