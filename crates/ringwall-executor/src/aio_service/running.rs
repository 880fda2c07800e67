//! A command on a service while it runs: orders go there, and its end is waited for, or given up when nobody tells of it.
//!
//! The time limit is kept here; the service has a longer one of its own. When it is over its session is closed, so that what
//! it left in the background ends too, as far as the service sees to that. Dropping a running command ends it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringwall_jail::report::Protection;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::AioService;
use super::directory::{self, ServiceDirectory};
use super::follow::End;
use super::protections;
use crate::error::{AioError, Error};
use crate::outcome::{Ending, Outcome, Usage};
use crate::running::Streams;
use crate::time_limit;

/// How long a command that was told to end may take to.
const ENDED_WITHIN: Duration = Duration::from_secs(20);
const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A started command.
#[derive(Debug)]
pub struct RunningOnService {
    /// Taken by whoever moves the bytes.
    pub streams: Option<Streams>,
    handle: ServiceHandle,
    /// Until its end was told.
    followed: Option<JoinHandle<Result<End, AioError>>>,
    began: Instant,
    time_limit: Option<Duration>,
    protections: Vec<Protection>,
    directory: ServiceDirectory,
    before: BTreeSet<String>,
}

/// How it ended, and which files are new in its session's directory.
#[derive(Debug)]
pub struct ServiceOutcome {
    pub outcome: Outcome,
    pub created: Result<Vec<String>, AioError>,
}

/// Gives orders to a running command, from anywhere.
#[derive(Debug, Clone)]
pub struct ServiceHandle {
    service: AioService,
    session: String,
    /// The last signal that was sent from outside.
    ordered: Arc<watch::Sender<Option<i32>>>,
}

impl ServiceHandle {
    pub(super) fn new(service: AioService, session: String) -> Self {
        Self { service, session, ordered: Arc::new(watch::Sender::new(None)) }
    }

    /// Sends a signal to the command, in the background. One that has ended ignores it.
    pub fn signal(&self, number: i32) {
        self.ordered.send_replace(Some(number));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        // The three that the interface knows.
        let name = match number {
            SIGINT => "SIGINT",
            SIGKILL => "SIGKILL",
            _ => "SIGTERM",
        };
        let handle = self.clone();
        runtime.spawn(async move {
            // Whoever waits for the end sees for itself whether it came.
            let _ = handle.service.kill(&handle.session, name).await;
        });
    }

    /// Ends the command now.
    pub fn kill(&self) {
        self.signal(SIGKILL);
    }

    /// Asks with a signal, and after a moment insists.
    pub async fn stop(&self, signal: i32) {
        self.signal(signal);
        tokio::time::sleep(time_limit::GRACE).await;
        self.kill();
    }

    /// Comes back when the command was told to end and had long enough.
    async fn overdue(&self) {
        let mut ordered = self.ordered.subscribe();
        let told = ordered.wait_for(|ordered| *ordered == Some(SIGKILL)).await.is_ok();
        if !told {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(ENDED_WITHIN).await;
    }
}

impl RunningOnService {
    pub(super) fn new(
        streams: Streams,
        handle: ServiceHandle,
        followed: JoinHandle<Result<End, AioError>>,
        time_limit: Option<Duration>,
        directory: ServiceDirectory,
        before: BTreeSet<String>,
    ) -> Self {
        Self {
            streams: Some(streams),
            handle,
            followed: Some(followed),
            began: Instant::now(),
            time_limit,
            protections: protections::of_a_service(),
            directory,
            before,
        }
    }

    pub fn handle(&self) -> ServiceHandle {
        self.handle.clone()
    }

    /// What holds in it, which is not known.
    pub fn protections(&self) -> &[Protection] {
        &self.protections
    }

    /// Waits until the service says that the command has ended, and has told everything that it printed.
    pub async fn wait(mut self) -> Result<ServiceOutcome, Error> {
        let handle = self.handle();
        let deadline = self.time_limit.map(|limit| self.began + limit);
        let Some(followed) = &mut self.followed else { return Err(AioError::Overdue.into()) };
        let end = tokio::select! {
            biased;
            end = followed => end.unwrap_or_else(|error| Err(AioError::Streams(error.into()))),
            () = handle.overdue() => Err(AioError::Overdue),
            never = time_limit::keep(deadline, handle.stop(SIGTERM)) => match never {},
        };
        let ended = Instant::now();
        if let Some(followed) = self.followed.take() {
            followed.abort();
        }
        if end.is_err() {
            // It is not known to be over.
            let _ = handle.service.kill(&handle.session, "SIGKILL").await;
        }
        let _ = handle.service.close_session(&handle.session).await;
        let end = end?;
        let after = self.directory.files(&handle.service).await;
        let ordered = *handle.ordered.borrow();
        let timed_out = deadline.is_some_and(|deadline| ended >= deadline);
        let outcome = Outcome {
            ending: match (end, ordered) {
                (End::TimedOut, _) => Ending::TimedOut,
                _ if timed_out => Ending::TimedOut,
                // Some tell a signal as a negative code.
                (End::Exited(code @ ..0), _) => Ending::Signalled(code.saturating_neg()),
                (End::Exited(code), _) => Ending::Exited(code),
                (End::Killed, Some(signal)) => Ending::Signalled(signal),
                (End::Killed, None) => Ending::Stopped(SIGKILL),
            },
            out_of_memory: false,
            duration: ended - self.began,
            usage: Usage::default(),
            protections: std::mem::take(&mut self.protections),
            steps: Vec::new(),
        };
        Ok(ServiceOutcome { outcome, created: after.map(|after| directory::created(&self.before, &after)) })
    }
}

impl Drop for RunningOnService {
    /// Whatever way we got here, no command stays, as far as the service hears us.
    fn drop(&mut self) {
        let Some(followed) = self.followed.take() else { return };
        followed.abort();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let ServiceHandle { service, session, .. } = self.handle.clone();
        runtime.spawn(async move {
            let _ = service.kill(&session, "SIGKILL").await;
            let _ = service.close_session(&session).await;
        });
    }
}
