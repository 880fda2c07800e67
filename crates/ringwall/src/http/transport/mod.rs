//! Connections, limits, authentication and bodies: everything that handlers share.

pub(crate) mod access;
pub(crate) mod archive_answer;
pub(crate) mod attended;
pub(crate) mod body;
pub(crate) mod connections;
pub(crate) mod cookie;
pub(crate) mod file_answer;
pub(crate) mod gate;
pub(crate) mod host_check;
pub(crate) mod json;
pub(crate) mod long_answers;
pub(crate) mod places;
pub(crate) mod problem;
pub(crate) mod range;
pub(crate) mod rest;
pub(crate) mod stalls;
