//! Steps by which PID 1 isolates a box: mounts, identity, network, cgroups, Landlock, rlimits,
//! seccomp.

pub mod cgroups;
pub(crate) mod identity;
pub(crate) mod mount_target;
pub(crate) mod mounts;
pub(crate) mod network;
pub(crate) mod networks;
pub mod restrict;
pub(crate) mod root;
pub mod seccomp;
pub(crate) mod socket_memory;
pub mod sources;
pub(crate) mod terminal;
