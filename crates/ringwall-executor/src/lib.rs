//! THE HANDS: a grant becomes a running box, and a box an outcome.
//!
//! A grant is the only thing accepted; who asked and why is not known here. `host` learns what this machine
//! offers, `sources` opens the directories that the grant names, `lower` turns both into a plan (pure), `start`
//! hands the plan to a jail that `prepare` began, `running` follows the box to its end. This process itself never
//! forks, unshares or mounts.

pub mod aio_service;
pub mod docker;
pub mod egress;
pub mod gvisor;
pub mod image;
pub mod pool;
pub mod resident;
pub mod warm;

mod alias;
mod allowed;
mod capture;
mod cgroup;
mod counters;
mod covers;
mod error;
mod etc;
mod frame;
mod freezer;
mod groups;
mod host;
mod host_view;
mod kernel_file;
mod limits;
mod lower;
mod maker;
mod mount_table;
mod outcome;
mod prepare;
mod private_files;
mod program;
mod protection;
mod provide;
mod python;
mod real;
mod running;
mod secrets;
mod shelf;
mod skeleton;
mod sources;
mod spawner;
mod start;
mod time_limit;
mod trust;

pub use alias::aliases;
pub use capture::{Captured, capture, pass_on};
pub use cgroup::{CgroupLayout, CgroupSupport};
pub use counters::{Acceptor, register};
pub use error::Error;
pub use host::Host;
pub use host_view::{is_writable, shown_tops};
pub use maker::Executor;
pub use outcome::{Ending, Outcome, Usage};
pub use prepare::{Early, Prepared};
pub use real::{PlaceKind, RealPlace, find_place, resolve};
pub use ringwall_jail::landlock_version;
pub use ringwall_jail::plan::{Privilege, WindowSize};
pub use ringwall_jail::report::{Protection, ProtectionName, ProtectionState, Step, StepTime};
pub use running::{Handle, Running, Streams};
pub use secrets::keys_near;
pub use sources::real_path;
pub use start::{Hold, Options};
pub use trust::{trust, trusting_client};
