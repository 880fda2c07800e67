//! The files and skills of an agent: whose they are, who may use them at the same time, and what is said when not.
//!
//! Every use case opens the agent ([`Address`] and a principal, `open`) with what it shares (`checkout`), takes its lock (`locks`), and lets `workspace` do
//! the work. Errors carry the words of the contract (`problem`).

mod checkout;
mod locks;
mod open;
mod problem;

mod gc;
mod quota;
mod room;
mod watch;

pub(crate) mod execute;
mod files;
mod skills;
mod upload;

pub use execute::{Executed, Execution};
pub use files::Edit;
pub(crate) use files::{detached, make};
pub use gc::Freed;
pub(crate) use locks::Locks;
pub use open::Address;
pub use problem::{AgentProblem, ProblemKind};
pub(crate) use quota::{Disk, Quotas};
pub(crate) use room::Room;
pub use skills::{SkillLayer, SkillUpload};
pub use upload::Upload;
pub(crate) use watch::watch_all;
