//! The `/v1` routes: files and skills of an agent, and commands that run on them.
//!
//! Every JSON response is the envelope `{"status","data"}`: successes are written by `envelope`,
//! errors by `transport::problem`.

mod envelope;
mod upload;

pub(super) mod execute;
pub(super) mod files;
pub(super) mod sandbox;
pub(super) mod skill_files;
pub(super) mod skills;

pub(super) use files::max_upload_bytes;
pub(super) use upload::SETTING as UPLOAD_SETTING;
