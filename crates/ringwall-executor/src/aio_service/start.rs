//! A granted command is handed over: a session on the service, its directory, its files, and then the command itself.
//!
//! Up to the last step nothing of it runs, and whatever fails leaves a session that is closed again. The last step is not
//! repeated: when its answer is lost, the command may run, so it is told to end and the exec has failed.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use ringwall_policy::Grant;
use tokio::net::unix::pipe;

use super::client::AioService;
use super::directory::ServiceDirectory;
use super::follow::{Printing, follow};
use super::line;
use super::protections;
use super::running::{Guard, SIGKILL, ServiceControl};
use crate::error::{AioError, Error};
use crate::running::{GRACE, RunningBox, Streams, time_limit};

/// Everything before the command, with all its files.
const PREPARED_WITHIN: Duration = Duration::from_secs(30);
/// The service's own limit is a little longer than ours, and there for when we are not.
const SERVICE_SLACK: Duration = Duration::from_secs(5);
/// A shell is given no longer word than the kernel takes, which is 128 KiB; a longer line becomes a script.
const MAX_LINE_LEN: usize = 96 << 10;

/// A file that a command is to find, by its name beneath the session's directory.
#[derive(Debug, Clone)]
pub struct ServiceFile {
    pub path: String,
    pub content: Vec<u8>,
}

/// What a command works on.
#[derive(Debug, Clone, Default)]
pub struct ServiceWork {
    /// In whose directory it starts.
    pub session: String,
    pub files: Vec<ServiceFile>,
    /// What it reads, to the end.
    pub input: Vec<u8>,
}

/// Gets the names of the files that are new in the session's directory, before [`RunningBox::wait`] returns the outcome.
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
        protections::check(&grant)?;
        let place = format!("ringwall-{exec_id}");
        let started = match tokio::time::timeout(PREPARED_WITHIN, self.prepare(&place, &work)).await {
            Ok(Ok(directory)) => self.hand_over(&grant, &place, directory, &work.input, on_created).await,
            Ok(Err(error)) => Err(error),
            Err(_) => Err(AioError::TooLate { asked: "prepare a session", patience: PREPARED_WITHIN }),
        };
        if started.is_err() {
            // Refused where it was never opened, and not heard where nobody answers.
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
        let (streams, printing) = pipes().map_err(AioError::Streams)?;
        let command = match self.begin(place, &line, env, hard_timeout).await {
            Ok(command) => command,
            Err(error @ (AioError::Unreachable { .. } | AioError::TooLate { .. } | AioError::Malformed { .. })) => {
                let _ = self.kill(place, SIGKILL).await;
                return Err(AioError::Unclear(Box::new(error)));
            }
            Err(error) => return Err(error),
        };
        let control = ServiceControl::new(self.clone(), place.to_owned());
        let followed = tokio::spawn(follow(self.clone(), place.to_owned(), command, printing));
        Ok(Guard::new(control, followed, directory, before).into_running(streams, time_limit, on_created))
    }
}

/// The command's streams for whoever reads them, and where what it prints is written to. Nobody reads its input.
fn pipes() -> std::io::Result<(Streams, Printing)> {
    let (_, stdin) = std::io::pipe()?;
    let (stdout, to_stdout) = std::io::pipe()?;
    let (stderr, to_stderr) = std::io::pipe()?;
    let sender = |writer: std::io::PipeWriter| pipe::Sender::from_owned_fd(OwnedFd::from(writer));
    let streams = Streams::of_pipes(stdin.into(), stdout.into(), stderr.into());
    Ok((streams, Printing { stdout: sender(to_stdout)?, stderr: sender(to_stderr)? }))
}
