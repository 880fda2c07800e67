//! The `/v1` routes: the files and skills of an agent, and what is run on them.
//!
//! Every answer is one envelope, successes here (`envelope`) and problems where all of them are told (`problem`).

mod envelope;
mod upload;

pub(super) mod execute;
pub(super) mod files;
pub(super) mod sandbox;
pub(super) mod skill_files;
pub(super) mod skills;

pub(super) use files::largest;
pub(super) use upload::SETTING as UPLOAD_SETTING;
