//! The files of an agent: `files/` and `skills/` of its workspace, as an API reads and changes them beside the boxes.
//!
//! A box may do anything to these two directories at any moment, and the locks of a server do not hold it. So every name
//! is hostile: it is looked up anew beneath the section's handle, reads follow only links that stay within the workspace,
//! and writes follow none. What is written lies ready among the staged before it gets its name.
//!
//! Reading order: what a caller may name (`path`, `refusal`), the two sections (`open`).

mod open;
mod path;
mod refusal;

pub use open::Tree;
pub use path::{AgentPath, Section};
pub(crate) use path::{SKILL_FILE, is_reserved};
pub use refusal::{Refusal, RefusalKind};
