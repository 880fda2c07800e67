//! Snapshots of whole command lines: a change of what a container may do shows up here as a change of text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ringwall_policy::{
    Access, Ceilings, Field, Grant, Layer, LayerName, Layers, Net, NetMode, NetRequest, Owner, PathAccess, PathControl,
    ProjectAccess, ProjectMounts, Request, Requirement, Root, Secret, SessionMounts, Verdict, Workspace,
};

use super::{ContainerParams, argv};
use crate::docker::daemon::{Daemon, Runtime, test_daemon};
use crate::docker::instance::{ContainerName, Instance};
use crate::error::Error;
use crate::host::python::Python;
use crate::plan::limits::Stay;

fn mounts() -> ProjectMounts {
    ProjectMounts {
        inputs: "/data/p/inputs".into(),
        work: "/data/p/work".into(),
        artifacts: "/data/p/running/e_1".into(),
        access: ProjectAccess::WIDEST,
        owner: Owner::new(2001, 2002).unwrap(),
    }
}

fn request(mounts: ProjectMounts, env: &[(&str, &str)]) -> Request {
    Request {
        argv: ["bash", "-lc", "echo \"$A\" --privileged"].map(Into::into).into(),
        env: env.iter().map(|(key, value)| ((*key).to_owned(), Secret::new(*value))).collect(),
        cwd: None,
        root: Root::Docker("ringwall/sandbox:latest".parse().unwrap()),
        workspace: Workspace::Project(Box::new(mounts)),
        read_only: vec![],
    }
}

fn decide(request: &Request, require: &[Requirement]) -> Grant {
    decide_with(request, require, None)
}

fn decide_with(request: &Request, require: &[Requirement], net: Option<NetRequest>) -> Grant {
    let mut operator = Layer::new(LayerName::CommandLine);
    operator.net = net;
    operator.limits = BTreeMap::from([(Field::CpuMillis, 4000), (Field::MemoryMb, 64), (Field::ScratchMb, 16)]);
    operator.require = require.iter().copied().collect();
    let layers = Layers {
        system: ringwall_policy::profile::RUN,
        ceilings: Ceilings {
            limits: ringwall_policy::profile::machine_ceilings(8192, 8, 32_768),
            set_by: LayerName::Machine,
        },
        operator,
        narrowing: Vec::new(),
    };
    match ringwall_policy::decide(request, &layers) {
        Verdict::Allow(grant) => grant,
        other => panic!("the policy did not allow the test's request: {other:?}"),
    }
}

/// A grant for a project, also used by the tests of other modules.
pub(crate) fn grant(env: &[(&str, &str)], require: &[Requirement]) -> Grant {
    decide(&request(mounts(), env), require)
}

fn words(grant: &Grant, daemon: &Daemon, runtime: Runtime) -> Result<String, Error> {
    words_for(grant, daemon, runtime, Stay::OneCommand)
}

fn words_for(grant: &Grant, daemon: &Daemon, runtime: Runtime, stay: Stay) -> Result<String, Error> {
    let name = ContainerName::of_exec("e_0123456789abcdef")?;
    let instance = Instance::for_tests();
    let environment = Path::new("/proc/7/fd/9");
    let is_open = grant.effective().net != Net::None;
    let params = ContainerParams {
        name: &name,
        instance: &instance,
        runtime,
        environment,
        python: Python::AsNamed,
        stay,
        program: (is_open || stay == Stay::SessionBox).then_some(Path::new("/opt/ringwall")),
        receiver: is_open.then_some(Path::new("/data/ways-out/7-1234-0-3")),
    };
    let words = argv(grant, daemon, &params)?;
    Ok(words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join("\n"))
}

#[test]
fn default() {
    let env = [("TOKEN", "very-secret-value"), ("HTTP_PROXY", "also-secret")];
    let shown = words(&grant(&env, &[]), &test_daemon(), Runtime::Default).unwrap();
    assert!(!shown.contains("secret"), "a value is in the command line");
    insta::assert_snapshot!("usual", shown);
}

#[test]
fn with_a_way_out() {
    let net = NetRequest { mode: NetMode::Allowlist, ..NetRequest::default() };
    let env = [("https_proxy", "secret")];
    let open = decide_with(&request(mounts(), &env), &[], Some(net));
    insta::assert_snapshot!("with_a_way_out", words(&open, &test_daemon(), Runtime::Default).unwrap());
    let refused = words(&open, &test_daemon(), Runtime::Gvisor);
    assert!(matches!(refused, Err(Error::NotForGvisor("a network"))), "{refused:?}");
}

/// A rootless daemon refuses a container whose hard limit is above its own.
#[test]
fn daemon_without_core_limit_is_not_asked_for_one() {
    let asks = |core_limit| {
        let daemon = Daemon { core_limit, ..test_daemon() };
        words(&grant(&[], &[]), &daemon, Runtime::Default).unwrap().contains("--ulimit=core")
    };
    assert!(asks(true));
    assert!(!asks(false));
}

#[test]
fn session_box_runs_agent_in_front_of_its_session() {
    let mounts = SessionMounts {
        work: "/data/s/work".into(),
        owner: Owner::new(2001, 2002).unwrap(),
        control: PathControl::On(PathAccess::default()),
        hidden: Vec::new(),
    };
    let mut request = request(self::mounts(), &[]);
    request.workspace = Workspace::Session(Box::new(mounts));
    let shown = words_for(&decide(&request, &[]), &test_daemon(), Runtime::Default, Stay::SessionBox).unwrap();
    insta::assert_snapshot!("session_box", shown);
}

#[test]
fn narrow_on_gvisor_without_swap() {
    let access = ProjectAccess { inputs: Access::Empty, work: Access::ReadOnly, artifacts: Access::ReadWrite };
    let strange = ProjectMounts { work: "/data/a,b \"c\":d=e/work".into(), access, ..mounts() };
    let mut request = request(strange, &[]);
    request.cwd = Some("/workspace/work/a b".into());
    let daemon = Daemon { swap_limit: false, cpus: 8, ..test_daemon() };
    insta::assert_snapshot!("narrow_on_gvisor", words(&decide(&request, &[]), &daemon, Runtime::Gvisor).unwrap());
}

#[test]
fn grant_that_docker_cannot_serve_is_refused() {
    let mut host = request(mounts(), &[]);
    host.root = Root::Host;
    let mut private = request(mounts(), &[]);
    private.workspace = Workspace::Private;
    let mut wide = request(mounts(), &[]);
    wide.read_only = vec!["/opt".into()];
    for request in [host, private, wide] {
        let refused = words(&decide(&request, &[]), &test_daemon(), Runtime::Default);
        assert!(matches!(refused, Err(Error::NotForDocker(_))), "{refused:?}");
    }
}

#[test]
fn a_path_that_docker_would_read_otherwise_is_refused() {
    use std::os::unix::ffi::OsStringExt;
    let strange = std::ffi::OsString::from_vec(b"/data/\xff/work".to_vec());
    for work in [PathBuf::from(strange), "/data/a\nb/work".into(), "/data/a\rb/work".into()] {
        let request = request(ProjectMounts { work, ..mounts() }, &[]);
        let refused = words(&decide(&request, &[]), &test_daemon(), Runtime::Default);
        assert!(matches!(refused, Err(Error::PathNotForDocker(_))), "{refused:?}");
    }
}
