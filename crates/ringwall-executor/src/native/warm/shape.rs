//! The shape of a warm box: limits, mount points, cgroups. Two grants of one shape differ only in
//! files, command and time limit, which come later.

use std::ffi::CString;
use std::sync::Arc;

use ringwall_jail::plan::{Owner, Plan, Privilege, RootKind, UnixSockets};
use ringwall_policy::{Field, Grant, Net, PathControl, Root, Workspace};

use super::interpreter;
use crate::c_string::literal;
use crate::error::Error;
use crate::executor::Executor;
use crate::plan::limits::{BoxLimits, Stay};
use crate::plan::lower::{BaseRoot, MIB, identity};
use crate::plan::{base_rootfs, limits};
use crate::protection::protection_of;
use crate::{box_layout, host};

/// A plan without names, files and command. Warm boxes of equal shape are interchangeable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape(Arc<Plan>);

impl Executor {
    /// The shape of warm boxes for this grant. `None` for a box with another root than the host's
    /// system, for one that shows files outside a workspace, and without root.
    pub fn shape_for(&self, grant: &Grant) -> Option<Shape> {
        let shows_a_workspace_alone = match grant.workspace() {
            Workspace::Project(_) | Workspace::Agent(_) => true,
            Workspace::Session(mounts) => match &mounts.control {
                PathControl::On(access) => access.mounts.is_empty(),
                PathControl::Off(_) => false,
            },
            Workspace::Private | Workspace::Directory(_) => false,
        };
        let fits = shows_a_workspace_alone && *grant.root() == Root::Host && grant.read_only().is_empty();
        let fits = fits && grant.effective().net == Net::None;
        if !fits || !self.makes_warm_boxes() || !self.spawner.is_current() {
            return None;
        }
        self.shape(grant, self.spawner.base_root().ok()?).ok()
    }

    /// True if this process can map files of one user to another, which needs root and a spawner.
    pub(crate) fn makes_warm_boxes(&self) -> bool {
        self.host.privilege == Privilege::Root && self.own_child.is_none()
    }

    pub(super) fn shape(&self, grant: &Grant, base_root: BaseRoot) -> Result<Shape, Error> {
        let allowed = &grant.effective().limits;
        let BoxLimits { cgroups, protections, resource_limits } =
            limits::of_native_box(allowed, &self.host, "", Stay::OneCommand);
        let (root, kernel_mounts) = match base_root {
            BaseRoot::BaseRootfs => (RootKind::Base, Vec::new()),
            BaseRoot::Host => (RootKind::Own, host::kernel_mounts()?),
        };
        Ok(Shape(Arc::new(Plan {
            identity: identity(Privilege::Root, Owner { uid: 0, gid: 0 }),
            hostname: literal(box_layout::HOSTNAME),
            cgroups,
            protections,
            root,
            operations: base_rootfs::warm_root(&self.host, &kernel_mounts, allowed.get(Field::ScratchMb) * MIB, root),
            resource_limits,
            access: Vec::new(),
            watchdog: limits::watchdog(allowed, vec![literal("/")]),
            // A warm box shows no files of the host.
            unix_sockets: UnixSockets::Allowed,
            terminal: None,
            proxy_port: None,
            command: interpreter::COMMAND.clone(),
            required: grant.effective().require.iter().map(|requirement| protection_of(*requirement)).collect(),
            hold_at: None,
        })))
    }
}

impl Shape {
    pub(super) fn root(&self) -> RootKind {
        self.0.root
    }

    /// The plan of one warm box.
    pub(super) fn plan_for(&self, owner: Owner, group: &str) -> Plan {
        let mut plan = Plan::clone(&self.0);
        plan.identity = identity(Privilege::Root, owner);
        for directory in plan.cgroups.iter_mut().flat_map(|cgroups| &mut cgroups.directories) {
            directory.name = CString::new(group).unwrap_or_default();
        }
        plan
    }
}
