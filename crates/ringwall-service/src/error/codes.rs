//! The values of `error_reason.code` of an exec that are used in more than one place.

pub(crate) const BACKEND_UNAVAILABLE: &str = "BACKEND_UNAVAILABLE";
pub(crate) const RUNTIME_ERROR: &str = "RUNTIME_ERROR";
pub(crate) const DISK_QUOTA: &str = "DISK_QUOTA";
pub(crate) const OOM: &str = "OOM";
pub(crate) const SHARED_COUNTER: &str = "SHARED_COUNTER";
pub(crate) const SESSION_BUSY: &str = "SESSION_BUSY";
/// The session's box died while the process ran in it.
pub(crate) const BOX_DIED: &str = "BOX_DIED";
pub(crate) const POOL_FULL: &str = "POOL_FULL";
pub(crate) const INVALID_ARGUMENT: &str = "INVALID_ARGUMENT";
