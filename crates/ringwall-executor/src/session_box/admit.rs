//! Checks that a command may run in an existing box.
//!
//! The box was made for another grant, and whatever that grant allows the command gets too. So
//! files, root and network must be the same, and every protection that the command requires must
//! hold. Limits of the whole box (memory, processes, CPUs, scratch space) stay those of the box; a
//! grant that asks for more is refused.

use std::collections::BTreeSet;
use std::path::Path;

use ringwall_policy::{Field, Grant, PathControl, SessionMounts, Workspace};

use crate::error::Error;

/// Limits of the whole box.
const SHARED: [Field; 4] = [Field::MemoryMb, Field::CpuMillis, Field::Pids, Field::ScratchMb];

pub(crate) fn admit(home: &Grant, visitor: &Grant) -> Result<(), Error> {
    let refuse = |what| Err(Error::NotForThisBox { what });
    if home.root() != visitor.root() {
        return refuse("programs");
    }
    if !is_same_workspace(home.workspace(), visitor.workspace()) || home.read_only() != visitor.read_only() {
        return refuse("files");
    }
    let (allowed, asked) = (&home.effective().limits, &visitor.effective().limits);
    if SHARED.iter().any(|field| asked.get(*field) > allowed.get(*field)) {
        return refuse("limits");
    }
    if !visitor.effective().require.is_subset(&home.effective().require) {
        return refuse("protections");
    }
    if home.effective().net != visitor.effective().net {
        return refuse("networks");
    }
    Ok(())
}

fn is_same_workspace(home: &Workspace, visitor: &Workspace) -> bool {
    match (home, visitor) {
        (Workspace::Session(home), Workspace::Session(visitor)) => {
            home.work == visitor.work && home.owner == visitor.owner && reach(home) == reach(visitor)
        }
        (home, visitor) => home == visitor,
    }
}

/// The mounted paths of the host. The paths that a command names do not matter.
fn reach(mounts: &SessionMounts) -> Option<BTreeSet<(&Path, &Path)>> {
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
    fn a_command_comes_in_only_where_nothing_is_that_it_was_not_granted() {
        let home = grant(DEFAULT);
        for (asked, expected) in [
            (DEFAULT, None),
            (Asked { memory: 32, timeout: 900_000, ..DEFAULT }, None),
            (Asked { memory: 65, ..DEFAULT }, Some("limits")),
            (Asked { work: "/data/s/two", ..DEFAULT }, Some("files")),
            (Asked { read_only: vec!["/opt/tools".into()], ..DEFAULT }, Some("files")),
            (Asked { require: Some(Requirement::Memory), ..DEFAULT }, Some("protections")),
        ] {
            let refused = match admit(&home, &grant(asked)) {
                Ok(()) => None,
                Err(Error::NotForThisBox { what }) => Some(what),
                Err(other) => panic!("{other}"),
            };
            assert_eq!(refused, expected);
        }
    }
}
