//! Snapshots of a whole configuration and of the operations that build runsc's root file system.

use std::path::Path;

use ringwall_jail::plan::{MountAccess, Owner, Privilege};
use ringwall_policy::{ProjectAccess, ProjectMounts, Root, Workspace};

use super::{config::config, runsc_root};
use crate::host::python::Python;
use crate::plan::limits::Stay;
use crate::plan::lower::tests::{grant, host, version_1};
use crate::sources::{Opened, ProjectPath, Sources};

const OWNER: Owner = Owner { uid: 2001, gid: 2002 };

/// A project whose inputs are hidden, whose work is read-only, and whose artifacts are writable.
fn sources() -> Sources {
    let place = |at, content| ProjectPath { at, content };
    let open = |path, access| Some((Opened::pretend(path, OWNER.uid), access));
    Sources {
        workspace: None,
        project: vec![
            place("/workspace/inputs", None),
            place("/workspace/work", open(c"/data/p/work", MountAccess::ReadOnly)),
            place("/workspace/artifacts", open(c"/data/p/artifacts/e_1", MountAccess::ReadWrite)),
        ],
        read_only: Vec::new(),
        allowed: Vec::new(),
        links: Vec::new(),
        covered: Vec::new(),
        unix_sockets: ringwall_jail::plan::UnixSockets::Allowed,
        image: None,
        python: Python::AsNamed,
    }
}

fn granted() -> ringwall_policy::Grant {
    let mounts = ProjectMounts {
        inputs: "/data/p/inputs".into(),
        work: "/data/p/work".into(),
        artifacts: "/data/p/artifacts/e_1".into(),
        access: ProjectAccess::WIDEST,
        owner: ringwall_policy::Owner::new(OWNER.uid, OWNER.gid).unwrap(),
    };
    grant(Workspace::Project(Box::new(mounts)), Root::Host, &[], &[])
}

#[test]
fn config_of_project_matches_snapshot() {
    let config = config(&granted(), &host(Privilege::Root, version_1()), &sources(), OWNER, Stay::OneCommand).unwrap();
    insta::assert_snapshot!("config", serde_json::to_string_pretty(&config).unwrap());
}

#[test]
fn runsc_root_of_project_matches_snapshot() {
    let host = host(Privilege::Root, version_1());
    let operations =
        runsc_root::operations(&host, &[], &sources(), OWNER, Path::new("/opt/gvisor/runsc"), b"{}".to_vec()).unwrap();
    let shown: Vec<String> = operations.iter().map(|operation| format!("{operation:?}")).collect();
    insta::assert_snapshot!("runsc_root", shown.join("\n"));
}
