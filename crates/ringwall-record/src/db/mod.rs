//! Connections, statements, transactions and migrations for SQLite and PostgreSQL.

pub(crate) mod backup;
pub(crate) mod database;
pub(crate) mod driver;
pub(crate) mod schema;
pub(crate) mod sqlite;
pub(crate) mod statement;
pub(crate) mod transaction;
