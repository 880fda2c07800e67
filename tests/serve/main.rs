//! The contract of `ringwall serve` and of the verbs around it, checked through the real binary and over real sockets.
//! One file per theme. These tests know the routes, the statuses and the bodies, never how they come about. What holds
//! for every backend or for every database is in the contract's suite.

#![expect(clippy::unwrap_used, reason = "this whole program is a test")]

use tests::support::server;

mod access;
mod aio_service;
mod database_password;
mod egress;
mod environment;
mod events;
mod execs;
mod few_threads;
mod forms;
mod full_table;
mod health;
mod idle_guard;
mod lives;
mod logins;
mod parts;
mod queue;
mod refusals;
mod refused_records;
mod risk;
mod slow_clients;
mod spares;
mod strangers;
mod strict;
mod tampering;
mod verbs;
