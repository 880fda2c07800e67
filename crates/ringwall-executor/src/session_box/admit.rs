//! Checks that a command may run in an existing box.
//!
//! The box was made for another grant, and the command gets everything that grant allows. So files,
//! root and network must be the same, and every protection that the command requires must hold.
//! Limits of the whole box (memory, processes, CPUs, scratch space) stay those of the box; a grant
//! that asks for more is refused.

use std::collections::BTreeSet;
use std::path::Path;

use ringwall_policy::{Field, Grant, PathControl, SessionMounts, Workspace};

use crate::error::Error;

/// Limits of the whole box.
const SHARED: [Field; 4] = [Field::MemoryMb, Field::CpuMillis, Field::Pids, Field::ScratchMb];

pub(crate) fn admit(of_box: &Grant, command: &Grant) -> Result<(), Error> {
    let refuse = |what| Err(Error::NotForThisBox { what });
    if of_box.root() != command.root() {
        return refuse("programs");
    }
    if !is_same_workspace(of_box.workspace(), command.workspace()) || of_box.read_only() != command.read_only() {
        return refuse("files");
    }
    let (allowed, asked) = (&of_box.effective().limits, &command.effective().limits);
    if SHARED.iter().any(|field| asked.get(*field) > allowed.get(*field)) {
        return refuse("limits");
    }
    if !command.effective().require.is_subset(&of_box.effective().require) {
        return refuse("protections");
    }
    if of_box.effective().net != command.effective().net {
        return refuse("networks");
    }
    Ok(())
}

fn is_same_workspace(of_box: &Workspace, command: &Workspace) -> bool {
    match (of_box, command) {
        (Workspace::Session(of_box), Workspace::Session(command)) => {
            of_box.work == command.work
                && of_box.owner == command.owner
                && mounted_paths(of_box) == mounted_paths(command)
        }
        (of_box, command) => of_box == command,
    }
}

/// The mounted paths of the host. The paths that a command names do not matter.
fn mounted_paths(mounts: &SessionMounts) -> Option<BTreeSet<(&Path, &Path)>> {
    match &mounts.control {
        PathControl::Off(_) => None,
        PathControl::On(access) => {
            Some(access.mounts.iter().map(|place| (place.at.as_path(), place.real.as_path())).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwall_policy::{
        Ceilings, Layer, LayerName, Layers, Owner, PathAccess, Request, Requirement, Root, Secret, Verdict, decide,
    };

    struct Asked {
        work: &'static str,
        memory: u64,
        require: Option<Requirement>,
        timeout: u64,
        read_only: Vec<std::path::PathBuf>,
    }

    const DEFAULT: Asked =
        Asked { work: "/data/s/one", memory: 64, require: None, timeout: 1000, read_only: Vec::new() };

    fn grant(asked: Asked) -> Grant {
        let mounts = SessionMounts {
            work: asked.work.into(),
            owner: Owner::new(2001, 2002).unwrap(),
            control: PathControl::On(PathAccess::default()),
            hidden: Vec::new(),
        };
        let request = Request {
            argv: vec!["true".into()],
            env: [("A".to_owned(), Secret::new("b"))].into(),
            cwd: None,
            root: Root::Host,
            workspace: Workspace::Session(Box::new(mounts)),
            read_only: asked.read_only,
        };
        let mut operator = Layer::new(LayerName::CommandLine);
        operator.limits = [(Field::MemoryMb, asked.memory), (Field::TimeoutMs, asked.timeout)].into();
        operator.require = asked.require.into_iter().collect();
        let limits = ringwall_policy::profile::machine_ceilings(8192, 8, 32_768);
        let layers = Layers {
            system: ringwall_policy::profile::RUN,
            ceilings: Ceilings { limits, set_by: LayerName::Machine },
            operator,
            narrowing: Vec::new(),
        };
        match decide(&request, &layers) {
            Verdict::Allow(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn grant_that_differs_from_the_box_is_refused() {
        let of_box = grant(DEFAULT);
        for (asked, expected) in [
            (DEFAULT, None),
            (Asked { memory: 32, timeout: 900_000, ..DEFAULT }, None),
            (Asked { memory: 65, ..DEFAULT }, Some("limits")),
            (Asked { work: "/data/s/two", ..DEFAULT }, Some("files")),
            (Asked { read_only: vec!["/opt/tools".into()], ..DEFAULT }, Some("files")),
            (Asked { require: Some(Requirement::Memory), ..DEFAULT }, Some("protections")),
        ] {
            let refused = match admit(&of_box, &grant(asked)) {
                Ok(()) => None,
                Err(Error::NotForThisBox { what }) => Some(what),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(refused, expected);
        }
    }
}
