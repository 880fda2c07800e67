//! Black-box tests of `ringwall serve` and of the commands around it, over real sockets.
//!
//! The `contract` suite tests what all backends and databases have in common.

#![expect(clippy::unwrap_used, reason = "this whole program is a test")]

use tests::support::server;

mod access;
mod aio_service;
mod data_directory;
mod database_password;
mod egress;
mod environment;
mod events;
mod execs;
mod few_threads;
mod full_table;
mod health;
mod idle_clients;
mod idle_guard;
mod logins;
mod queue;
mod ranges;
mod refusals;
mod refused_records;
mod risk;
mod schemas;
mod slow_clients;
mod strict;
mod tampering;
mod verbs;
mod warm_boxes;
