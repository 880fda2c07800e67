//! Baselines: skills that all users of an agent share, and how each workspace gets its own copy of them.
//!
//! A baseline is an immutable directory of the server's that no box ever sees. What a user sees in `skills/` is a checkout:
//! ordinary files, copied in, with an index of what was copied. A file that is still as it was copied follows the
//! baseline; one that somebody changed or deleted is theirs. So whatever an exec or an edit does lands in their own
//! workspace, and nothing needs a mount. Why: docs/decisions/0008-skills-are-checked-out.md.
//!
//! ```text
//! <root>/.current/<agent>.json               which version of which skill is the agent's, and the generation
//! <root>/.staging/                           uploads on their way
//! <root>/<agent>/<skill>/<number>/           the files of one version
//! <root>/<agent>/<skill>/<number>.json       their sizes and digests
//! <workspace>/.baseline/index.json           what of that workspace is a copy
//! ```
//!
//! Reading order: the nouns (`blob`, `snapshot`), where they are kept (`store`, `publish`, `retire`), what a workspace
//! remembers (`index`), the rule (`rule`), and its use (`sync`, `beside`, `checkout`, `install`).

mod blob;
mod snapshot;

mod publish;
mod retire;
mod store;

mod index;
mod rule;

mod beside;
mod checkout;
mod growth;
mod install;
#[cfg(test)]
mod lab;
mod layers;
mod sync;

pub use layers::{Layer, LayeredSkill, Update};
pub use store::Baselines;
pub use sync::Standing;
