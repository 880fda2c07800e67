//! Builds the command line of `docker run`. Pure: the same grant and daemon give the same
//! arguments, which snapshot tests show.
//!
//! All permissions of a container are decided in this file. No argument contains the value of an
//! environment variable; those are in `--env-file`. Paths use `--mount`, a CSV line in which a path
//! can be quoted. `-v` would split a path at a colon and create a missing source directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ringwall_jail::agent::AGENT;
use ringwall_jail::shim::PROXY_SOCKET_PATH;
use ringwall_policy::{Access, DockerImage, Field, Grant, Net, ProjectMounts, Root, Workspace};

use super::daemon::{Daemon, Runtime};
use super::instance::{ContainerName, Instance};
use crate::box_layout::WORKSPACE;
use crate::error::Error;
use crate::host::python::Python;
use crate::plan::limits;
use crate::plan::limits::Stay;
use crate::sources::has_own_directory_only;
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

/// No network, no capabilities, no IPC or cgroup namespace of the host, and a read-only image.
const ISOLATION: [&str; 6] = [
    "--network=none",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--ipc=private",
    "--cgroupns=private",
    "--read-only",
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
    pub(crate) receiver: Option<&'a Path>,
}

/// All arguments after `docker`.
pub(crate) fn argv(grant: &Grant, daemon: &Daemon, params: &ContainerParams<'_>) -> Result<Vec<OsString>, Error> {
    let image = image(grant)?;
    let (owner, mounts) = match grant.workspace() {
        Workspace::Project(mounts) => (mounts.owner, project(mounts)?),
        // A session's directory is mounted as all of `/workspace`.
        Workspace::Session(mounts) if has_own_directory_only(mounts) => {
            (mounts.owner, vec![bind(&mounts.work, WORKSPACE)?])
        }
        Workspace::Session(_) => return Err(Error::NotForDocker("paths of the host")),
        Workspace::Private | Workspace::Directory(_) | Workspace::Agent(_) => {
            return Err(Error::NotForDocker("a workspace that is neither a project's nor a session's"));
        }
    };
    if !grant.read_only().is_empty() {
        return Err(Error::NotForDocker("directories beside the project's"));
    }
    let ContainerParams { name, instance, runtime, environment, python, stay, program, receiver } = params;
    match (&grant.effective().net, receiver, runtime) {
        (Net::None, None, _) | (Net::Allowlist { .. }, Some(_), Runtime::Default) => {}
        // gVisor's sockets belong to its own network stack and cannot be passed to the host.
        (Net::Allowlist { .. }, _, Runtime::Gvisor) => return Err(Error::NotForGvisor("a network")),
        (Net::None, Some(_), _) | (Net::Allowlist { .. }, None, Runtime::Default) => return Err(Error::NoProxySocket),
    }
    let (directory, command): (_, Vec<OsString>) = match stay {
        Stay::SessionBox => (Path::new("/"), vec![AGENT.into()]),
        Stay::OneCommand => (grant.cwd(), python.argv(grant.argv()).map(Into::into).collect()),
    };
    let mut words = ["run", "--rm", "--init", "--interactive", "--pull=never"].map(str::to_owned).to_vec();
    words.push(format!("--name={name}"));
    words.extend(instance.labels(name).map(|label| format!("--label={label}")));
    words.extend(runtime.name().map(|name| format!("--runtime={name}")));
    words.push(format!("--hostname={}", box_layout::HOSTNAME));
    words.extend(ISOLATION.map(str::to_owned));
    if daemon.core_limit {
        // 1 byte is too small for a core file. Unlike 0, it also keeps the kernel from starting a
        // piped core handler.
        words.push("--ulimit=core=1".to_owned());
    }
    words.push("--ulimit=nofile=4096".to_owned());
    words.extend(limits(grant, daemon, *runtime, *stay));
    words.push(format!("--user={}:{}", owner.uid(), owner.gid()));
    words.push(format!("--workdir={}", plain(directory)?));
    let files = [(program, AGENT), (receiver, PROXY_SOCKET_PATH)];
    let files = files.into_iter().filter_map(|(source, at)| Some(read_only(bind((*source)?, at))));
    for mount in mounts.into_iter().map(Ok).chain(files) {
        words.extend(["--mount".to_owned(), mount?]);
    }
    words.push(format!("--env-file={}", plain(environment)?));
    let ours: &[(&str, &str)] = if receiver.is_some() { &egress::ENVIRONMENT } else { &[] };
    let is_set = |key: &str| grant.env().contains_key(key) || ours.iter().any(|(name, _)| *name == key);
    words.extend(PROXIES.iter().filter(|key| !is_set(key)).map(|key| format!("--env={key}")));
    // An image's entry point would run in place of the granted command, with it as arguments.
    words.extend(["--entrypoint=", "--no-healthcheck", "--log-driver=none", "--", image.as_str()].map(str::to_owned));
    if receiver.is_some() {
        words.extend([AGENT.to_owned(), egress::PORT.to_string()]);
    }
    Ok(words.into_iter().map(Into::into).chain(command).collect())
}

/// The image of the grant's root.
pub(crate) fn image(grant: &Grant) -> Result<&DockerImage, Error> {
    match grant.root() {
        Root::Docker(image) => Ok(image),
        Root::Host | Root::Image(_) => Err(Error::NotForDocker("a root file system that is not a docker image")),
    }
}

fn limits(grant: &Grant, daemon: &Daemon, runtime: Runtime, stay: Stay) -> Vec<String> {
    let limit = |field| grant.effective().limits.get(field);
    // Processes that do not count against the box's limit: docker's PID 1, our agent, and the threads
    // of gVisor's kernel, which aborts if it cannot start one.
    let agent = if stay == Stay::SessionBox { limits::OUR_AGENT } else { 0 };
    let gvisor = if runtime == Runtime::Gvisor { limits::GVISOR_THREADS } else { 0 };
    let pids = limit(Field::Pids) + limits::OUR_PROCESSES + agent + gvisor;
    let (memory, scratch) = (limit(Field::MemoryMb) * MIB, limit(Field::ScratchMb) * MIB);
    let inodes = (scratch / BYTES_PER_INODE).max(64);
    // Docker refuses `--cpus` above the number of CPUs.
    let cpus = limit(Field::CpuMillis).min(daemon.cpus.max(1).saturating_mul(MILLIS));
    let mut words = vec![
        format!("--pids-limit={pids}"),
        format!("--memory={memory}b"),
        format!("--cpus={}.{:03}", cpus / MILLIS, cpus % MILLIS),
        format!("--tmpfs=/tmp:rw,exec,nosuid,nodev,mode=1777,size={scratch},nr_inodes={inodes}"),
    ];
    // If the kernel does not count swap, docker would print a warning into the command's stderr.
    if daemon.swap_limit {
        words.push(format!("--memory-swap={memory}b"));
    }
    words
}

fn project(mounts: &ProjectMounts) -> Result<Vec<String>, Error> {
    let directories = [
        ("/workspace/inputs", &mounts.inputs, mounts.access.inputs),
        ("/workspace/work", &mounts.work, mounts.access.work),
        ("/workspace/artifacts", &mounts.artifacts, mounts.access.artifacts),
    ];
    let mount = |(at, path, access): (&str, &PathBuf, Access)| match access {
        Access::Empty => Ok(format!("type=tmpfs,dst={at},readonly,tmpfs-mode=0555,tmpfs-size=4096")),
        Access::ReadOnly => read_only(bind(path, at)),
        Access::ReadWrite => bind(path, at),
    };
    directories.into_iter().map(mount).collect()
}

fn read_only(mount: Result<String, Error>) -> Result<String, Error> {
    mount.map(|mount| format!("{mount},readonly"))
}

/// The CSV line of a bind mount.
fn bind(path: &Path, at: &str) -> Result<String, Error> {
    let source = format!("src={}", plain(path)?);
    let source = match source.contains([',', '"']) {
        true => format!("\"{}\"", source.replace('"', "\"\"")),
        false => source,
    };
    Ok(format!("type=bind,{source},dst={at}"))
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
