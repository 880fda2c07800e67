//! Errors between grant and outcome: what failed, on what, and what to do.

use std::path::PathBuf;
use std::time::Duration;

use ringwall_jail::report::{Failure, ProtectionName, Step};
use ringwall_policy::{DockerImage, Grant};

use crate::aio_error::AioError;
use crate::backend;
use crate::image::ImageError;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the session's box is busy, and another one cannot be made now")]
    SessionBusy,
    #[error("no box became free in time")]
    PoolFull,
    #[error("the server is stopping and makes no more boxes for sessions")]
    PoolStopped,
    #[error("this context runs {language}")]
    OtherLanguage { language: &'static str },
    #[error("{} does not exist", .0.display())]
    DirectoryMissing(PathBuf),
    #[error("{} is not a directory", .0.display())]
    NotADirectory(PathBuf),
    #[error("{} is a symbolic link", .0.display())]
    DirectoryIsLink(PathBuf),
    #[error("{} cannot be read by this user", .0.display())]
    DirectoryUnreadable(PathBuf),
    #[error("could not open {}", path.display())]
    OpenDirectory { path: PathBuf, source: std::io::Error },
    #[error("reading the host's directories that this box shows took longer than {} s", timeout.as_secs())]
    HostViewTimeout { timeout: Duration },
    #[error("reading the host's directories that this box shows failed")]
    ReadHostView(#[source] tokio::task::JoinError),
    #[error("{} was replaced while the box was being created", .0.display())]
    DirectoryReplaced(PathBuf),
    #[error("{} belongs to Ringwall itself and is never shown to a box", .0.display())]
    OwnData(PathBuf),
    #[error("{0} contains a NUL byte")]
    NulByte(&'static str),
    #[error("only docker can make a box of {0}")]
    OnlyForDocker(DockerImage),
    #[error("an agent's files cannot be used with an image")]
    OnlyOnTheHost,
    #[error("docker cannot make a box with {0}")]
    NotForDocker(&'static str),
    #[error("the box has no connection to the server's proxy")]
    NoProxySocket,
    #[error("the container ended before it was connected to the server's proxy: {words}")]
    EgressWithheld { words: String },
    #[error("could not create the socket {}", path.display())]
    OpenProxySocketReceiver { path: PathBuf, source: std::io::Error },
    #[error("docker cannot mount the path {}", .0.display())]
    PathNotForDocker(PathBuf),
    #[error("docker cannot be given the environment variable {key}: {why}")]
    EnvironmentNotForDocker { key: String, why: &'static str },
    #[error("gVisor cannot make a box with {0}")]
    NotForGvisor(&'static str),
    #[error("gVisor refused to make the box: {words}")]
    GvisorRefused { words: String },
    #[error("could not write the command's environment")]
    WriteEnvironment(#[source] std::io::Error),
    #[error("{0:?} is not a valid name for a container")]
    ExecIdMalformed(String),
    #[error("could not read or create {}", path.display())]
    InstanceFile { path: PathBuf, source: std::io::Error },
    #[error("the {backend} backend is not available: {why}")]
    BackendUnavailable { backend: &'static str, why: String },
    #[error("the {backend} backend lacks a protection, {name:?}: {why}")]
    ProtectionMissing { backend: &'static str, name: ProtectionName, why: String },
    #[error("there is no docker image {0}")]
    DockerImageMissing(DockerImage),
    #[error("docker refused to make the container: {words}")]
    ContainerRefused { words: String },
    #[error("could not start the process that removes containers after a crash")]
    StartWatcher(#[source] std::io::Error),
    #[error("could not follow the docker client")]
    ClientStreams(#[source] std::io::Error),
    #[error("could not {step} for the docker image: {words}")]
    BuildDockerImage { step: &'static str, words: String },
    #[error("{setting} {wrong}")]
    PathSetting { setting: &'static str, wrong: String },
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Aio(#[from] AioError),
    #[error("could not start the jail")]
    StartJail(#[source] std::io::Error),
    #[error("could not make a private copy of this program for the jail")]
    CopyProgram(#[source] std::io::Error),
    #[error("{} was replaced since this server was started", .0.display())]
    ProgramReplaced(PathBuf),
    #[error("the box of this session has ended: {why}")]
    BoxDied { why: String },
    #[error("this box is paused")]
    BoxPaused,
    #[error("{what} cannot be paused")]
    PauseUnsupported { what: &'static str },
    #[error("the box could not be paused or resumed: {why}")]
    NotPaused { why: String },
    #[error("this command cannot run in this box, which has other {what}")]
    NotForThisBox { what: &'static str },
    #[error("the box already runs {most} commands, the most that it can")]
    TooManyProcesses { most: usize },
    #[error("terminals in this box cannot be interrupted from the keyboard (Ctrl-C), so none is opened")]
    NoTerminal,
    #[error("lost the connection to the jail")]
    Talk(#[source] std::io::Error),
    #[error("the jail ended unexpectedly")]
    JailDied,
    #[error("the box did not start in time: {from} did not answer within {} s", timeout.as_secs())]
    NoAnswer { from: &'static str, timeout: Duration },
    #[error("{0}")]
    Setup(Failure),
    #[error("{command}: command not found in the box")]
    CommandNotFound { command: String },
    #[error("{command}: cannot be executed in the box: {}", std::io::Error::from_raw_os_error(*errno))]
    CommandNotExecutable { command: String, errno: i32 },
    #[error("all {limit} user ids for boxes without a workspace are in use; retry when one of these boxes has ended")]
    NoFreeUid { limit: u32 },
    #[error("a box that was made ahead cannot serve: {0}")]
    WarmBoxUnfit(&'static str),
    #[error("the start of the box was halted at {0:?} until the box was killed")]
    Held(Step),
}

/// A warm box that could not serve: the reason, and the unused grant.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Unserved {
    pub grant: Grant,
    #[source]
    pub error: Error,
}

const EPERM: i32 = 1;
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ELOOP: i32 = 40;
const ENOEXEC: i32 = 8;
const ENOSYS: i32 = 38;
const EAGAIN: i32 = 11;

impl Error {
    /// The error of a command that the kernel did not execute, from its errno.
    pub(crate) fn not_executed(command: impl Into<String>, errno: i32) -> Self {
        let command = command.into();
        match errno {
            ENOENT => Error::CommandNotFound { command },
            errno => Error::CommandNotExecutable { command, errno },
        }
    }

    /// Advice for the user or operator; `None` if the message says everything.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Error::DirectoryMissing(_) => "create it, or name another directory",
            Error::NotADirectory(_) => "a box can see directories only; name the directory that contains it",
            Error::DirectoryIsLink(path) => {
                return Some(match std::fs::read_link(path) {
                    Ok(target) => format!("name the directory that it leads to: {}", target.display()),
                    Err(_) => "name the directory that it leads to".to_owned(),
                });
            }
            Error::DirectoryUnreadable(_) => "change its permissions, or run as its owner",
            Error::DirectoryReplaced(_) => "another process is changing this path; try again later",
            Error::HostViewTimeout { .. } => {
                "try again; if that does not help, look for a file system in /etc, /opt or /srv that does not answer \
                 (a dead network mount), or switch path control on and allow single paths"
            }
            Error::Image(error) => return Some(error.hint()),
            Error::Aio(error) => error.hint(),
            Error::OnlyForDocker(_) => "choose the docker backend, or an image that was imported with `ringwall image`",
            Error::NotForDocker(_) | Error::NotForGvisor(_) => "use the native backend",
            Error::NoProxySocket | Error::EgressWithheld { .. } => {
                "the docker daemon must run on this machine and let a container call a socket of the server's, which a \
                 virtual machine or SELinux prevents; use the native backend, or ask for no network"
            }
            Error::PathNotForDocker(_) => "use a path of UTF-8 without control characters, or the native backend",
            Error::EnvironmentNotForDocker { .. } => {
                "put the value into a file of the inputs, or use the native backend"
            }
            Error::InstanceFile { .. } => "the file contains the random id that labels the containers of this server",
            Error::BackendUnavailable { backend: backend::GVISOR, .. } => {
                "install runsc and run the server as root, or give the docker daemon a runtime of that name"
            }
            Error::BackendUnavailable { .. } => {
                "start the docker daemon, or use the native backend; `docker info` shows what the client can reach"
            }
            Error::ProtectionMissing { .. } => "use the native backend, or drop the requirement",
            Error::DockerImageMissing(_) => {
                "build the default image with `ringwall image build-docker`, or pull this one with docker"
            }
            Error::NoAnswer { .. } => {
                "try again; if that does not help, the machine is overloaded, or a process of Ringwall is stopped"
            }
            Error::ProgramReplaced(_) => "start the server again",
            Error::SessionBusy => "wait until its command has ended, or send the request with `on_busy`: `wait`",
            Error::PoolFull => "try again, or raise pool.max_instances or pool.acquire_timeout_s",
            Error::OtherLanguage { .. } => "use another context_id for another language",
            Error::BoxDied { .. } => "ask again: the next command gets a new box",
            Error::BoxPaused => "resume the session first",
            Error::NotForThisBox { .. } => "run it in a box of its own",
            Error::TooManyProcesses { .. } => "wait until one of them has ended, or end one",
            Error::NoTerminal => {
                "run it as a process (/api/sessions/{id}/processes); a newer runsc may support terminals"
            }
            Error::JailDied => "the kernel probably killed it because memory ran out; see the kernel log",
            Error::CommandNotFound { command } if command.contains('/') => {
                "the path is looked up inside the box: the host's /usr, /bin and /lib are there, your directory is at /workspace"
            }
            Error::CommandNotFound { .. } => {
                "programs come from the host's /usr, or from the image; add a directory with --ro DIR and --env PATH=…"
            }
            Error::CommandNotExecutable { errno: EACCES, .. } => {
                "make it executable (chmod +x), or name its interpreter"
            }
            Error::CommandNotExecutable { errno: ENOEXEC, .. } => {
                "a script needs a first line like #!/bin/sh; a program must be built for this machine"
            }
            Error::Setup(failure) => return setup_hint(failure).map(str::to_owned),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

fn setup_hint(failure: &Failure) -> Option<&'static str> {
    Some(match (failure.step, failure.errno) {
        (Step::MakeNamespaces | Step::MapIdentity, EPERM | EACCES) => {
            "unprivileged user namespaces are not allowed here; `ringwall doctor` says how to allow them"
        }
        (Step::MakeNamespaces, ENOSPC) => {
            "the limit on namespaces is reached; raise the user.max_*_namespaces settings"
        }
        (Step::MakeNamespaces | Step::StartCommand, EAGAIN) => {
            "the limit on processes is reached; end some, or raise --pids"
        }
        (Step::OpenSources, EINVAL) if failure.subject.contains("owner mapped") => {
            "this file system has no id-mapped mounts; use a directory on ext4, xfs or btrfs, or run as its owner"
        }
        (Step::OpenSources, EACCES | ENOENT) => "the directory must be reachable for the user who runs the box",
        (Step::BuildRoot, ELOOP) => "the image has a symbolic link where a box needs a directory; import a clean one",
        (Step::BuildRoot, EPERM) if failure.subject == "/proc" => {
            "this system hides parts of /proc, as containers do; a box needs a complete /proc to start from"
        }
        (_, ENOSYS) => "this kernel is too old; Linux 5.12 or newer is needed",
        (Step::RestrictFiles | Step::MakeCgroups | Step::LimitResources, 0) => {
            "drop the requirement, or run `ringwall doctor`, which says how to enable it"
        }
        (Step::MakeCgroups, EACCES | EPERM) => "cgroups cannot be created here; `ringwall doctor` says why",
        _ => return None,
    })
}

pub(crate) fn talk(errno: rustix::io::Errno) -> Error {
    Error::Talk(errno.into())
}
