//! [`decide`] turns a request and its layers into a verdict.
//!
//! Only this file can make a [`Grant`], because its fields are private to it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::arguments::check_arguments;
use crate::code::Code;
use crate::merge::{EffectivePolicy, Layers, merge};
use crate::paths::{check_agent, check_project, check_read_only, check_working_directory, check_workspace};
use crate::request::{Request, Root, Secret, Workspace};
use crate::session::check_session;
use crate::verdict::{Ask, Denial, Verdict};

/// Decides whether the request may run, and within which limits.
///
/// ```
/// use ringwall_policy::{Ceilings, Layer, LayerName, Layers, Request, Root, Verdict, Workspace, decide, profile};
///
/// let request = Request {
///     argv: vec!["true".into()],
///     env: Default::default(),
///     cwd: None,
///     root: Root::Host,
///     workspace: Workspace::Private,
///     read_only: vec![],
/// };
/// let layers = Layers {
///     system: profile::RUN,
///     ceilings: Ceilings {
///         limits: profile::machine_ceilings(8192, 2, 4096),
///         set_by: LayerName::Machine,
///     },
///     operator: Layer::new(LayerName::CommandLine),
///     narrowing: vec![],
/// };
/// let Verdict::Allow(grant) = decide(&request, &layers) else { unreachable!() };
/// assert_eq!(grant.effective().limits.memory_mb, 1024);
/// ```
pub fn decide(request: &Request, layers: &Layers) -> Verdict {
    match grant(request, layers) {
        Ok(grant) => match ask(&grant) {
            Some(ask) => Verdict::Ask(ask),
            None => Verdict::Allow(grant),
        },
        Err(denial) => Verdict::Deny(denial),
    }
}

/// As [`decide`], for assessed code: in strict mode destructive code is denied first, and a risk
/// becomes a question only if everything else is allowed.
pub fn decide_code(request: &Request, layers: &Layers, code: &Code) -> Verdict {
    if let Some(denial) = code.refusal() {
        return Verdict::Deny(denial);
    }
    match (decide(request, layers), code.ask()) {
        (Verdict::Allow(_), Some(ask)) => Verdict::Ask(ask),
        (verdict, _) => verdict,
    }
}

/// Called only with a grant, so an approver is not asked about an exec that would be denied anyway.
fn ask(grant: &Grant) -> Option<Ask> {
    let Workspace::Session(mounts) = &grant.workspace else { return None };
    let blocked = mounts.control.blocked();
    let reasons = blocked.iter().map(|named| match named.path == named.real {
        true => format!("{} is not in the list of allowed paths", named.path),
        false => format!("{} resolves to {}, which is not in the list of allowed paths", named.path, named.real),
    });
    let reasons: Vec<String> = reasons.collect();
    (!blocked.is_empty()).then_some(Ask { reasons, blocked, risk: None })
}

fn grant(request: &Request, layers: &Layers) -> Result<Grant, Denial> {
    check_arguments(&request.argv, &request.env)?;
    let cwd = check_working_directory(request.cwd.as_deref(), &request.workspace)?;
    let workspace = match &request.workspace {
        Workspace::Private => Workspace::Private,
        Workspace::Directory(path) => Workspace::Directory(check_workspace(path)?),
        Workspace::Project(mounts) => Workspace::Project(Box::new(check_project(mounts)?)),
        Workspace::Agent(mounts) => Workspace::Agent(Box::new(check_agent(mounts)?)),
        Workspace::Session(mounts) => Workspace::Session(Box::new(check_session(mounts)?)),
    };
    let read_only = request.read_only.iter().map(|path| check_read_only(path)).collect::<Result<BTreeSet<_>, _>>()?;
    Ok(Grant {
        argv: request.argv.clone(),
        env: request.env.clone(),
        cwd,
        root: request.root.clone(),
        workspace,
        read_only: read_only.into_iter().collect(),
        effective: merge(layers)?,
    })
}

/// The resolved permission to run one command. It holds all that a backend needs and is the only
/// input that a backend accepts.
///
/// Code outside of this crate cannot make a grant,
///
/// ```compile_fail,E0451
/// fn forge(effective: ringwall_policy::Effective) -> ringwall_policy::Grant {
///     ringwall_policy::Grant {
///         argv: vec!["true".into()],
///         env: Default::default(),
///         cwd: "/".into(),
///         root: ringwall_policy::Root::Host,
///         workspace: ringwall_policy::Workspace::Private,
///         read_only: vec![],
///         effective,
///     }
/// }
/// ```
///
/// change one,
///
/// ```compile_fail,E0616
/// fn widen(grant: &mut ringwall_policy::Grant) {
///     grant.cwd = "/".into();
/// }
/// ```
///
/// or duplicate one:
///
/// ```compile_fail,E0277
/// fn copy<T: Clone>() {}
/// copy::<ringwall_policy::Grant>();
/// ```
#[derive(Debug)]
pub struct Grant {
    argv: Vec<OsString>,
    env: BTreeMap<String, Secret>,
    cwd: PathBuf,
    root: Root,
    workspace: Workspace,
    read_only: Vec<PathBuf>,
    effective: EffectivePolicy,
}

impl Grant {
    /// The command and its arguments; never empty.
    pub fn argv(&self) -> &[OsString] {
        &self.argv
    }

    pub fn env(&self) -> &BTreeMap<String, Secret> {
        &self.env
    }

    /// Start directory of the command, as a path in the box.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    pub fn root(&self) -> &Root {
        &self.root
    }

    pub fn workspace(&self) -> &Workspace {
        &self.workspace
    }

    /// Without duplicates, a directory before those inside it: mounting in this order hides none.
    pub fn read_only(&self) -> &[PathBuf] {
        &self.read_only
    }

    pub fn effective(&self) -> &EffectivePolicy {
        &self.effective
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Field;
    use crate::layer::{Layer, LayerName};
    use crate::merge::Ceilings;
    use crate::permission::{Access, ProjectAccess};
    use crate::profile;
    use crate::request::{AgentMounts, Owner, ProjectMounts};
    use crate::verdict::{DenialCode, Strictness};

    fn request() -> Request {
        Request {
            argv: vec!["true".into()],
            env: BTreeMap::new(),
            cwd: None,
            root: Root::Host,
            workspace: Workspace::Private,
            read_only: vec![],
        }
    }

    fn layers() -> Layers {
        Layers {
            system: profile::RUN,
            ceilings: Ceilings { limits: profile::machine_ceilings(8192, 2, 4096), set_by: LayerName::Machine },
            operator: Layer::new(LayerName::CommandLine),
            narrowing: vec![],
        }
    }

    fn denied(request: &Request, layers: &Layers) -> Option<DenialCode> {
        match decide(request, layers) {
            Verdict::Deny(denial) => Some(denial.code),
            Verdict::Allow(_) | Verdict::Ask(_) => None,
        }
    }

    #[test]
    fn plain_request_is_granted_unchanged() -> Result<(), Denial> {
        let image: crate::ImageName = "debian-12".parse().expect("a good name");
        let request = Request {
            argv: vec!["echo".into(), "hello".into()],
            env: [("KEY".to_owned(), Secret::new("value"))].into(),
            cwd: Some("/workspace/sub/".into()),
            root: Root::Image(image.clone()),
            workspace: Workspace::Directory("/home/me//work".into()),
            read_only: vec!["/opt/b/c".into(), "/opt/b".into(), "/opt/a".into(), "/opt/b/".into()],
        };
        let grant = grant(&request, &layers())?;
        assert_eq!(grant.argv(), ["echo", "hello"]);
        assert_eq!(grant.env()["KEY"].expose(), "value");
        assert_eq!(grant.cwd(), Path::new("/workspace/sub"));
        assert_eq!(grant.root(), &Root::Image(image));
        assert_eq!(grant.workspace(), &Workspace::Directory("/home/me/work".into()));
        assert_eq!(grant.read_only(), ["/opt/a", "/opt/b", "/opt/b/c"].map(PathBuf::from));
        assert_eq!(grant.effective().limits, profile::RUN);
        Ok(())
    }

    #[test]
    fn command_starts_in_workspace() -> Result<(), Denial> {
        assert_eq!(grant(&request(), &layers())?.cwd(), Path::new("/workspace"));
        let verdict = decide(&request(), &layers());
        assert_eq!(verdict.strictness(), Strictness::Allow);
        Ok(())
    }

    fn project(work: &str) -> Workspace {
        Workspace::Project(Box::new(ProjectMounts {
            inputs: "/data/p/inputs".into(),
            work: work.into(),
            artifacts: "/data/p/artifacts/e_1".into(),
            access: ProjectAccess::WIDEST,
            owner: Owner::new(2001, 2002).expect("an ordinary user"),
        }))
    }

    #[test]
    fn project_command_starts_in_work() -> Result<(), Denial> {
        let mut request = request();
        request.workspace = project("/data//p/work/");
        let granted = grant(&request, &layers())?;
        assert_eq!(granted.cwd(), Path::new("/workspace/work"));
        assert_eq!(granted.workspace(), &project("/data/p/work"));
        for (cwd, code) in [
            ("/workspace/inputs/a", None),
            ("/workspace/artifacts", None),
            ("/workspace", Some(DenialCode::WorkingDirectory)),
            ("/workspace/workshop", Some(DenialCode::WorkingDirectory)),
            ("/tmp", Some(DenialCode::WorkingDirectory)),
            ("/workspace/work/..", Some(DenialCode::PathMalformed)),
        ] {
            request.cwd = Some(cwd.into());
            assert_eq!(denied(&request, &layers()), code, "{cwd}");
        }
        Ok(())
    }

    #[test]
    fn writable_inputs_become_read_only() -> Result<(), Denial> {
        let mut request = request();
        let Workspace::Project(mut mounts) = project("/data/p/work") else { unreachable!() };
        mounts.access = ProjectAccess { inputs: Access::ReadWrite, work: Access::ReadOnly, artifacts: Access::Empty };
        request.workspace = Workspace::Project(mounts);
        let granted = grant(&request, &layers())?;
        let Workspace::Project(mounts) = granted.workspace() else { unreachable!() };
        let expected = ProjectAccess { inputs: Access::ReadOnly, work: Access::ReadOnly, artifacts: Access::Empty };
        assert_eq!(mounts.access, expected);
        Ok(())
    }

    #[test]
    fn nested_project_directories_are_denied() {
        for (work, code) in [
            ("/data/p/work", None),
            ("/data/p", Some(DenialCode::PathForbidden)),
            ("/data/p/inputs", Some(DenialCode::PathForbidden)),
            ("/data/p/inputs/below", Some(DenialCode::PathForbidden)),
            ("/data/p/inputs-2", None),
            ("data/p/work", Some(DenialCode::PathMalformed)),
            ("/etc", Some(DenialCode::PathForbidden)),
        ] {
            let mut request = request();
            request.workspace = project(work);
            assert_eq!(denied(&request, &layers()), code, "{work}");
        }
    }

    #[test]
    fn agent_command_starts_above_files_and_skills() -> Result<(), Denial> {
        let agent = |skills: &str| {
            let owner = Owner::new(2001, 2002).expect("an ordinary user");
            Workspace::Agent(Box::new(AgentMounts { files: "/data//w/files/".into(), skills: skills.into(), owner }))
        };
        let mut request = request();
        request.workspace = agent("/data/w/skills");
        assert_eq!(grant(&request, &layers())?.cwd(), Path::new("/workspace"));
        for (cwd, code) in [
            ("/workspace/", None),
            ("/workspace/files", None),
            ("/workspace/skills/a/b", None),
            ("/workspace/work", Some(DenialCode::WorkingDirectory)),
            ("/workspace/skills/../..", Some(DenialCode::PathMalformed)),
            ("/tmp", Some(DenialCode::WorkingDirectory)),
        ] {
            request.cwd = Some(cwd.into());
            assert_eq!(denied(&request, &layers()), code, "{cwd}");
        }
        request.cwd = None;
        for skills in ["/data/w/files", "/data/w/files/x", "/data", "/etc"] {
            request.workspace = agent(skills);
            assert_eq!(denied(&request, &layers()), Some(DenialCode::PathForbidden), "{skills}");
        }
        Ok(())
    }

    #[test]
    fn each_rule_can_deny() {
        let mut empty = request();
        empty.argv.clear();
        let mut key = request();
        key.env.insert("A=B".into(), Secret::new(""));
        let mut cwd = request();
        cwd.cwd = Some("/root".into());
        let mut workspace = request();
        workspace.workspace = Workspace::Directory("/etc".into());
        let mut read_only = request();
        read_only.read_only = vec!["/opt".into(), "/usr".into()];
        let table = [
            (empty, DenialCode::CommandEmpty),
            (key, DenialCode::EnvironmentKey),
            (cwd, DenialCode::WorkingDirectory),
            (workspace, DenialCode::PathForbidden),
            (read_only, DenialCode::PathReserved),
        ];
        for (request, code) in table {
            assert_eq!(denied(&request, &layers()), Some(code));
        }
        let mut greedy = layers();
        greedy.operator.limits.insert(Field::MemoryMb, 8193);
        assert_eq!(denied(&request(), &greedy), Some(DenialCode::LimitExceeded));
        assert_eq!(denied(&request(), &layers()), None);
    }
}
