//! THE HANDS: a grant becomes a running box, and a box an outcome.
//!
//! A grant is the only thing accepted; who asked and why is not known here. `host` learns what this machine
//! offers, `sources` opens the directories that the grant names, `lower` turns both into a plan (pure), `start`
//! hands the plan to a jail that `prepare` began, `running` follows the box to its end. This process itself never
//! forks, unshares or mounts.

pub mod aio_service;
mod cgroup;
pub mod docker;
pub mod egress;
pub mod gvisor;
pub mod image;
mod native;
mod plan;
pub mod pool;

mod capture;
mod counters;
mod error;
mod executor;
mod host;
mod outcome;
mod protection;
pub mod session_box;
mod time_limit;
mod tls_roots;

pub use native::warm;

pub use capture::{Captured, capture, pass_on};
pub use cgroup::layout::{CgroupLayout, CgroupSupport};
pub use counters::{Acceptor, register};
pub use error::Error;
pub use executor::Executor;
pub use host::Host;
pub use host::alias::aliases;
pub use host::real_path::{PlaceKind, RealPlace, find_place, resolve};
pub use host::secrets::keys_near;
pub use host::view::{is_writable, shown_tops};
pub use native::prepare::{Early, Prepared};
pub use native::running::{Handle, Running, Streams};
pub use native::sources::real_path;
pub use native::start::{Hold, Options};
pub use outcome::{Ending, Outcome, Usage};
pub use ringwall_jail::landlock_version;
pub use ringwall_jail::plan::{Privilege, WindowSize};
pub use ringwall_jail::report::{Protection, ProtectionName, ProtectionState, Step, StepTime};
pub use tls_roots::{trust, trusting_client};
