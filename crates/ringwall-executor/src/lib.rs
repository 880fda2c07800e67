//! Turns a grant into a running box, and a box into an outcome.
//!
//! A grant is the only input; this crate does not know who asked and why. `host` collects facts
//! about the machine, `sources` opens the directories that the grant names, `plan` turns both into
//! a plan (pure), `native` sends the plan to a jail process and follows the box to its end. This
//! process itself never forks, unshares or mounts.

mod aio_error;
pub mod aio_service;
pub mod docker;
pub mod egress;
#[doc(hidden)]
pub mod fuzzing;
pub mod image;
pub mod pool;
pub mod session_box;

mod box_layout;
mod c_string;
mod capture;
mod cgroup;
mod counters;
mod error;
mod executor;
mod gvisor;
mod host;
mod native;
mod pidfd;
mod plan;
mod process;
mod protection;
mod running;
mod sources;
mod tls_roots;
mod uids;

pub use native::warm;

pub use capture::{Captured, capture, pass_on};
pub use cgroup::layout::{CgroupLayout, CgroupSupport};
pub use counters::{Acceptor, register};
pub use error::Error;
pub use executor::Executor;
pub use host::Host;
pub use host::mount_table::aliases;
pub use host::real_path::{PathKind, RealPath, find_path, resolve};
pub use host::secrets::keys_near;
pub use native::prepare::{Early, Prepared};
pub use native::start::{Hold, Options};
pub use ringwall_jail::landlock_version;
pub use ringwall_jail::plan::{Privilege, WindowSize};
pub use ringwall_jail::report::{Protection, ProtectionName, ProtectionState, Step, StepTime};
pub use running::{
    BoxControl, BoxExit, Ending, GRACE, Input, InputWriter, Outcome, Output, RunningBox, Streams, Usage,
};
pub use sources::real_path;
pub use sources::view::{is_writable, shown_tops};
pub use tls_roots::{trust, trusting_client};

/// The names of the backends in requests, records and messages.
pub mod backend {
    pub const NATIVE: &str = "native";
    pub const DOCKER: &str = "docker";
    pub const GVISOR: &str = "gvisor";
    pub const AIO: &str = "aio";
}
