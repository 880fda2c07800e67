//! Protections of a box that a service made: all are reported as not available here, and a grant
//! that requires one is refused.

use ringwall_jail::report::{Protection, ProtectionName};
use ringwall_policy::{Grant, PathControl, Root, Workspace};

use crate::backend;
use crate::error::{AioError, Error};
use crate::protection::protection_of;

const WHY: &str = "the isolation is the AIO service's own, and nothing of it is known here";

pub(super) fn of_a_service() -> Vec<Protection> {
    ProtectionName::ALL.into_iter().map(|name| Protection::not_available(name, WHY)).collect()
}

/// Refuses a grant that the service cannot keep: it takes a command and a session's files only.
pub(super) fn check(grant: &Grant) -> Result<(), Error> {
    if let Some(requirement) = grant.effective().require.first() {
        let name = protection_of(*requirement);
        return Err(Error::ProtectionMissing { backend: backend::AIO, name, why: WHY.to_owned() });
    }
    let lacking = match (grant.root(), grant.workspace()) {
        (Root::Image(_) | Root::Docker(_), _) => Some("an image"),
        (Root::Host, Workspace::Directory(_) | Workspace::Project(_) | Workspace::Agent(_)) => {
            Some("a workspace that is not a session's")
        }
        (Root::Host, Workspace::Session(mounts)) => match &mounts.control {
            PathControl::On(access) if !access.mounts.is_empty() => Some("paths of this host"),
            PathControl::On(_) | PathControl::Off(_) => None,
        },
        (Root::Host, Workspace::Private) => None,
    };
    match lacking {
        Some(what) => Err(AioError::NotForService(what).into()),
        None if !grant.read_only().is_empty() => Err(AioError::NotForService("directories of this host").into()),
        None => Ok(()),
    }
}
