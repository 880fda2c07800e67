//! Baselines: skills that all users of an agent share, and the copies of them in each workspace.
//!
//! A baseline is an immutable directory of the server that no box can reach. Its files are copied
//! ("checked out") into `skills/` of each workspace, and an index records the copies. A file that
//! still equals its copy follows the baseline; one that the user or a box changed or deleted is the
//! user's. Reasons: docs/decisions/0008-skills-are-checked-out.md.
//!
//! ```text
//! <root>/.current/<agent>.json               the agent's current versions, and the generation
//! <root>/.staging/                           uploads in progress
//! <root>/<agent>/<skill>/<number>/           the files of one version
//! <root>/<agent>/<skill>/<number>.json       their sizes and digests
//! <workspace>/.baseline/index.json           the index of the workspace
//! ```
//!
//! Reading order: `snapshot`, `store`, `index`, `sync`, `new_skills`, `layers`.

mod checkout;
mod index;
mod layers;
mod new_skills;
mod snapshot;
mod store;
mod sync;

pub use layers::{Layer, LayeredSkill, Update};
pub use store::Baselines;
pub use sync::SyncState;
