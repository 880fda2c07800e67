//! Use cases for the files and skills of an agent.
//!
//! Each use case opens the agent from an [`Address`] and a principal (`open`), checks out its
//! baselines (`checkout`), takes the workspace's lock (`workspace_locks`) and lets
//! `ringwall-workspace` do the work. Errors have the messages of the API contract (`AgentProblem`).

mod checkout;
mod open;

mod disk;
mod gc;

pub(crate) mod execute;
mod files;
mod skills;
mod upload;

pub use execute::{Executed, Execution};
pub use files::Edit;
pub(crate) use files::make;
pub use gc::Freed;
pub use open::Address;
pub use skills::{SkillLayer, SkillUpload};
pub use upload::Upload;
