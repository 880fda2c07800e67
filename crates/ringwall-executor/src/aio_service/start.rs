//! Hands a granted command over to a service: opens a session, creates its directory, writes its
//! files, and starts the command.
//!
//! Nothing of the command runs before the last step, and every failure closes the session. The last
//! step is not repeated: if its answer is lost the command may run, so it is killed and the exec
//! fails.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ringwall_jail::report::{Protection, ProtectionName};
use ringwall_policy::{Grant, PathControl, Root, Workspace};
use tokio::net::unix::pipe;

use super::client::AioService;
use super::directory::ServiceDirectory;
use super::follow::{OutputPipes, follow};
use super::line;
use super::running::{Guard, SIGKILL, ServiceControl};
use crate::aio_error::AioError;
use crate::backend;
use crate::error::Error;
use crate::protection::protection_of;
use crate::running::{GRACE, RunningBox, Streams, time_limit};

/// Limit of all steps before the command, including its files.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(30);
/// Added to the service's own time limit, which takes effect only if this server does not enforce
/// its own.
const SERVICE_SLACK: Duration = Duration::from_secs(5);
/// The kernel limits one argument to 128 KiB. A longer line is written to a script.
const MAX_LINE_LEN: usize = 96 << 10;

/// A file to write before the command starts, by its path in the session's directory.
#[derive(Debug, Clone)]
pub struct ServiceFile {
    pub path: String,
    pub content: Vec<u8>,
}

/// The session, files and input of a command.
#[derive(Debug, Clone, Default)]
pub struct ServiceWork {
    /// The session whose directory is `/workspace`.
    pub session: String,
    pub files: Vec<ServiceFile>,
    /// The command's stdin.
    pub input: Vec<u8>,
}

/// Called with the names of new files in the session's directory, before [`RunningBox::wait`]
/// returns the outcome.
pub type OnCreated = Box<dyn FnOnce(Result<Vec<String>, AioError>) + Send>;

impl AioService {
    /// Starts the granted command in a session's directory.
    pub async fn start(
        &self,
        grant: Grant,
        exec_id: &str,
        work: ServiceWork,
        on_created: OnCreated,
    ) -> Result<RunningBox, Error> {
        check(&grant)?;
        let place = format!("ringwall-{exec_id}");
        let started = match tokio::time::timeout(PREPARE_TIMEOUT, self.prepare(&place, &work)).await {
            Ok(Ok(directory)) => self.hand_over(&grant, &place, directory, &work.input, on_created).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(AioError::TooLate { action: "prepare a session", timeout: PREPARE_TIMEOUT }),
        };
        if started.is_err() {
            // Fails if the session was never opened or the service does not answer.
            let _ = self.close_session(&place).await;
        }
        Ok(started?)
    }

    async fn prepare(&self, place: &str, work: &ServiceWork) -> Result<ServiceDirectory, AioError> {
        let ServiceWork { session, files, .. } = work;
        let info = self.info().await?;
        let directory = ServiceDirectory::of_session(&info, session)?;
        let places = files.iter().map(|file| directory.place(&file.path)).collect::<Result<Vec<_>, _>>()?;
        self.open_session(place).await?;
        let above = places.iter().filter_map(|place| place.rsplit_once('/')).map(|(above, _)| above);
        let line = line::of_directories(std::iter::once(directory.path()).chain(above));
        self.run_at_once("make the session's directory", place, &line).await?;
        for (file, place) in files.iter().zip(&places) {
            self.write_file(place, &file.content).await?;
        }
        Ok(directory)
    }

    async fn hand_over(
        &self,
        grant: &Grant,
        place: &str,
        directory: ServiceDirectory,
        input: &[u8],
        on_created: OnCreated,
    ) -> Result<RunningBox, AioError> {
        let cwd = line::working_directory(grant.cwd(), directory.path())?;
        let input_file = directory.place(&format!(".{place}.in"))?;
        let mut line = line::of_command(&cwd, grant.argv(), (!input.is_empty()).then_some(input_file.as_str()))?;
        let env = grant.env().iter().map(|(name, value)| {
            let value = value.expose().to_str();
            value.map(|value| (name.as_str(), value)).ok_or(AioError::NotForService("an environment that is not UTF-8"))
        });
        let env = env.collect::<Result<BTreeMap<_, _>, _>>()?;
        let before = directory.files(self).await?;
        if !input.is_empty() {
            self.write_file(&input_file, input).await?;
        }
        if line.len() > MAX_LINE_LEN {
            let script = directory.place(&format!(".{place}.sh"))?;
            self.write_file(&script, line::of_script(&script, &line).as_bytes()).await?;
            line = line::running_script(&script);
        }
        let time_limit = time_limit(grant);
        let hard_timeout = time_limit.map(|limit| limit + GRACE + SERVICE_SLACK);
        let (streams, output) = pipes().map_err(AioError::Streams)?;
        let command = match self.begin(place, &line, env, hard_timeout).await {
            Ok(command) => command,
            Err(error @ (AioError::Unreachable { .. } | AioError::TooLate { .. } | AioError::Malformed { .. })) => {
                let _ = self.kill(place, SIGKILL).await;
                return Err(AioError::Unclear(Box::new(error)));
            }
            Err(error) => return Err(error),
        };
        let control = ServiceControl::new(self.clone(), place.to_owned());
        let followed = tokio::spawn(follow(self.clone(), place.to_owned(), command, output));
        Ok(Guard::new(control, followed, directory, before).into_running(streams, time_limit, on_created))
    }
}

/// The command's streams, and the write ends for its output. stdin has no reader, because the input
/// is sent as a file.
fn pipes() -> std::io::Result<(Streams, OutputPipes)> {
    let (_, stdin) = std::io::pipe()?;
    let (stdout, to_stdout) = std::io::pipe()?;
    let (stderr, to_stderr) = std::io::pipe()?;
    let sender = |writer: std::io::PipeWriter| pipe::Sender::from_owned_fd(OwnedFd::from(writer));
    let streams = Streams::of_pipes(stdin.into(), stdout.into(), stderr.into());
    Ok((streams, OutputPipes { stdout: sender(to_stdout)?, stderr: sender(to_stderr)? }))
}

const WHY: &str = "the AIO service isolates the command, and its protections are unknown";

/// All are reported as not available.
pub(super) fn of_a_service() -> Vec<Protection> {
    ProtectionName::ALL.into_iter().map(|name| Protection::not_available(name, WHY)).collect()
}

/// Refuses a grant that the service cannot keep: it takes a command and a session's files only.
fn check(grant: &Grant) -> Result<(), Error> {
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
