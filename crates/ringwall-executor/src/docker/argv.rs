//! Builds the command line of `docker run`. Pure: the same grant and daemon give the same
//! arguments, which snapshot tests show.
//!
//! All permissions of a container are decided in this file. No argument contains the value of an
//! environment variable; those are in `--env-file`. Paths use `--mount`, a CSV line in which a path
//! can be quoted. `-v` would split a path at a colon and create a missing source directory.

use std::ffi::OsString;
use std::path::Path;

use ringwall_jail::agent::AGENT;
use ringwall_jail::shim::PROXY_SOCKET_PATH;
use ringwall_policy::{Access, DockerImage, Field, Grant, Net, ProjectMounts, Root, SessionMounts, Workspace};

use super::daemon::{Daemon, Runtime};
use super::instance::Instance;
use super::name::ContainerName;
use crate::box_layout::WORKSPACE;
use crate::error::Error;
use crate::host::python::Python;
use crate::plan::limits;
use crate::plan::limits::Stay;
use crate::sources::is_alone;
use crate::{box_layout, egress};

const MIB: u64 = 1024 * 1024;
const BYTES_PER_INODE: u64 = 4096;
const MILLIS: u64 = 1000;
/// Docker's client copies the proxies of its own settings, passwords included, into every container
/// whose command line does not name them. `--env=NAME` without a value names the variable and,
/// because the client's environment lacks it too, leaves it unset.
const PROXIES: [&str; 10] = [
    "ALL_PROXY",
    "FTP_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "ftp_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// The arguments that grant no permission: names, labels, runtime and our own files.
#[derive(Debug)]
pub(crate) struct ContainerParams<'a> {
    pub(crate) name: &'a ContainerName,
    pub(crate) instance: &'a Instance,
    pub(crate) runtime: Runtime,
    pub(crate) environment: &'a Path,
    pub(crate) python: Python,
    pub(crate) stay: Stay,
    /// Our executable, mounted as the agent of a session box or as the entrypoint shim.
    pub(crate) program: Option<&'a Path>,
    /// The socket on which the entrypoint shim sends us the proxy socket.
    pub(crate) doorway: Option<&'a Path>,
}

/// All arguments after `docker`.
pub(crate) fn argv(grant: &Grant, daemon: &Daemon, params: &ContainerParams<'_>) -> Result<Vec<OsString>, Error> {
    let image = image(grant)?;
    let (owner, mounts) = match grant.workspace() {
        Workspace::Project(mounts) => (mounts.owner, project(mounts)?),
        Workspace::Session(mounts) if is_alone(mounts) => (mounts.owner, session(mounts)?),
        Workspace::Session(_) => return Err(Error::NotForDocker("paths of the host")),
        Workspace::Private | Workspace::Directory(_) | Workspace::Agent(_) => {
            return Err(Error::NotForDocker("a workspace that is neither a project's nor a session's"));
        }
    };
    if !grant.read_only().is_empty() {
        return Err(Error::NotForDocker("directories beside the project's"));
    }
    match (&grant.effective().net, params.doorway, params.runtime) {
        (Net::None, None, _) | (Net::Allowlist { .. }, Some(_), Runtime::Default) => {}
        // gVisor's sockets belong to its own network stack and cannot be passed to the host.
        (Net::Allowlist { .. }, _, Runtime::Gvisor) => return Err(Error::NotForGvisor("a network")),
        (Net::None, Some(_), _) | (Net::Allowlist { .. }, None, Runtime::Default) => return Err(Error::NoProxySocket),
    }
    let (directory, command) = match params.stay {
        Stay::SessionBox => (Path::new("/"), vec![AGENT.into()]),
        Stay::OneCommand => (grant.cwd(), params.python.argv(grant.argv()).map(Into::into).collect()),
    };
    let ContainerParams { name, instance, runtime, environment, stay, program, doorway, .. } = params;
    let mut words: Vec<OsString> = ["run", "--rm", "--init", "--interactive", "--pull=never"].map(Into::into).into();
    words.push(format!("--name={name}").into());
    words.extend(instance.labels(name).map(|label| format!("--label={label}").into()));
    words.extend(runtime.name().map(|name| format!("--runtime={name}").into()));
    words.push(format!("--hostname={}", box_layout::HOSTNAME).into());
    words.extend(isolation().map(Into::into));
    if daemon.core_limit {
        // 1 byte is too small for a core file. Unlike 0, it also keeps the kernel from starting a
        // piped core handler.
        words.push("--ulimit=core=1".into());
    }
    words.push("--ulimit=nofile=4096".into());
    words.extend(limits(grant, daemon, *runtime, *stay).into_iter().map(Into::into));
    words.push(format!("--user={}:{}", owner.uid(), owner.gid()).into());
    words.push(joined("--workdir=", directory)?);
    words.extend(mounts);
    for (source, at) in [(program, AGENT), (doorway, PROXY_SOCKET_PATH)] {
        if let Some(source) = source {
            words.extend(["--mount".into(), format!("{},readonly", bind(source, at)?).into()]);
        }
    }
    words.push(joined("--env-file=", environment)?);
    let ours: &[(&str, &str)] = if doorway.is_some() { &egress::ENVIRONMENT } else { &[] };
    let is_set = |key: &str| grant.env().contains_key(key) || ours.iter().any(|(name, _)| *name == key);
    let unset = PROXIES.iter().filter(|key| !is_set(key));
    words.extend(unset.map(|key| format!("--env={key}").into()));
    // An image's entry point would run in place of the granted command, with it as arguments.
    words.extend(["--entrypoint=", "--no-healthcheck", "--log-driver=none", "--"].map(Into::into));
    words.push(image.as_str().into());
    if doorway.is_some() {
        words.extend([AGENT.into(), egress::PORT.to_string().into()]);
    }
    words.extend(command);
    Ok(words)
}

/// The image of the grant's root.
pub(crate) fn image(grant: &Grant) -> Result<&DockerImage, Error> {
    match grant.root() {
        Root::Docker(image) => Ok(image),
        Root::Host | Root::Image(_) => Err(Error::NotForDocker("a root file system that is not a docker image")),
    }
}

/// No network, no capabilities, no IPC or cgroup namespace of the host, and a read-only image.
fn isolation() -> [&'static str; 6] {
    [
        "--network=none",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--ipc=private",
        "--cgroupns=private",
        "--read-only",
    ]
}

fn limits(grant: &Grant, daemon: &Daemon, runtime: Runtime, stay: Stay) -> Vec<String> {
    let ours = not_the_boxs_own(runtime)
        + match stay {
            Stay::SessionBox => limits::OUR_AGENT,
            Stay::OneCommand => 0,
        };
    let limit = |field| grant.effective().limits.get(field);
    let memory = limit(Field::MemoryMb) * MIB;
    let scratch = limit(Field::ScratchMb) * MIB;
    // Docker refuses `--cpus` above the number of CPUs.
    let most = daemon.cpus.max(1).saturating_mul(MILLIS);
    let cpus = limit(Field::CpuMillis).min(most);
    let mut words = vec![
        format!("--pids-limit={}", limit(Field::Pids) + ours),
        format!("--memory={memory}b"),
        format!("--cpus={}.{:03}", cpus / MILLIS, cpus % MILLIS),
        format!(
            "--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777,size={scratch},nr_inodes={}",
            (scratch / BYTES_PER_INODE).max(64)
        ),
    ];
    // If the kernel does not count swap, docker would print a warning into the command's stderr.
    if daemon.swap_limit {
        words.push(format!("--memory-swap={memory}b"));
    }
    words
}

/// Processes that do not count against the box's limit: docker's PID 1, and the threads of gVisor's
/// kernel, which aborts if it cannot start one.
fn not_the_boxs_own(runtime: Runtime) -> u64 {
    match runtime {
        Runtime::Default => limits::OUR_PROCESSES,
        Runtime::Gvisor => limits::OUR_PROCESSES + limits::GVISOR_THREADS,
    }
}

fn project(mounts: &ProjectMounts) -> Result<Vec<OsString>, Error> {
    let places = [
        ("/workspace/inputs", &mounts.inputs, mounts.access.inputs),
        ("/workspace/work", &mounts.work, mounts.access.work),
        ("/workspace/artifacts", &mounts.artifacts, mounts.access.artifacts),
    ];
    let mut words = Vec::new();
    for (at, path, access) in places {
        words.push("--mount".into());
        words.push(match access {
            Access::Empty => empty(at).into(),
            Access::ReadOnly => format!("{},readonly", bind(path, at)?).into(),
            Access::ReadWrite => bind(path, at)?.into(),
        });
    }
    Ok(words)
}

/// A session's directory is mounted as all of `/workspace`.
fn session(mounts: &SessionMounts) -> Result<Vec<OsString>, Error> {
    Ok(vec!["--mount".into(), bind(&mounts.work, WORKSPACE)?.into()])
}

/// An empty read-only tmpfs.
fn empty(at: &str) -> String {
    format!("type=tmpfs,dst={at},readonly,tmpfs-mode=0555,tmpfs-size=4096")
}

fn bind(path: &Path, at: &str) -> Result<String, Error> {
    Ok(format!("type=bind,{},dst={at}", field(&format!("src={}", plain(path)?))))
}

/// Quotes one CSV value.
fn field(text: &str) -> String {
    match text.contains([',', '"']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

fn joined(option: &str, path: &Path) -> Result<OsString, Error> {
    Ok(format!("{option}{}", plain(path)?).into())
}

/// Refuses control characters, which break the CSV line, and paths that are not UTF-8: the client
/// sends paths as JSON, which would silently replace invalid bytes.
fn plain(path: &Path) -> Result<&str, Error> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    text.ok_or_else(|| Error::PathNotForDocker(path.to_owned()))
}

#[cfg(test)]
#[path = "argv_tests.rs"]
pub(crate) mod tests;
