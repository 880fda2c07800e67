//! A running command on a service: signals are sent there, and its end is awaited, or given up if
//! it is not reported.
//!
//! The service has its own, longer time limit. When the command is over, its session is closed, so
//! that the service ends what the command left in the background.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::AioService;
use super::directory::{self, ServiceDirectory};
use super::follow::End;
use super::start::{OnCreated, of_a_service};
use crate::aio_error::AioError;
use crate::error::Error;
use crate::running::{BoxControl, BoxExit, Ending, RunningBox, Streams, Usage};

/// How long a command may take to end after SIGKILL.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);
/// The interface accepts this name, SIGINT and SIGTERM.
pub(super) const SIGKILL: &str = "SIGKILL";

#[derive(Debug)]
pub(super) struct ServiceControl {
    service: AioService,
    session: String,
    /// The last signal that was sent from here.
    sent: watch::Sender<Option<Signal>>,
}

impl ServiceControl {
    pub(super) fn new(service: AioService, session: String) -> Self {
        Self { service, session, sent: watch::Sender::new(None) }
    }

    /// Returns [`KILL_TIMEOUT`] after the command was killed.
    async fn overdue(&self) {
        let mut sent = self.sent.subscribe();
        if sent.wait_for(|sent| *sent == Some(Signal::KILL)).await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(KILL_TIMEOUT).await;
    }
}

impl BoxControl for ServiceControl {
    /// Sends the request in the background. Signals other than SIGINT and SIGKILL are sent as
    /// SIGTERM.
    fn signal(&self, signal: Signal) {
        self.sent.send_replace(Some(signal));
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let name = match signal {
            Signal::INT => "SIGINT",
            Signal::KILL => SIGKILL,
            _ => "SIGTERM",
        };
        let (service, session) = (self.service.clone(), self.session.clone());
        runtime.spawn(async move {
            // `follow` notices whether the command ends.
            let _ = service.kill(&session, name).await;
        });
    }

    fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn pause(&self) -> BoxFuture<'_, Result<(), Error>> {
        std::future::ready(Err(Error::PauseUnsupported { what: "a command on an AIO service" })).boxed()
    }

    fn resume(&self) -> BoxFuture<'_, Result<(), Error>> {
        std::future::ready(Ok(())).boxed()
    }
}

/// The running command. Kills it and closes its session if dropped before its end was reported.
#[derive(Debug)]
pub(super) struct Guard {
    control: Arc<ServiceControl>,
    /// `None` after the end was reported.
    followed: Option<JoinHandle<Result<End, AioError>>>,
    directory: ServiceDirectory,
    /// Files in the directory before the command started.
    before: BTreeSet<String>,
}

impl Guard {
    pub(super) fn new(
        control: ServiceControl,
        followed: JoinHandle<Result<End, AioError>>,
        directory: ServiceDirectory,
        before: BTreeSet<String>,
    ) -> Self {
        Self { control: Arc::new(control), followed: Some(followed), directory, before }
    }

    pub(super) fn into_running(
        self,
        streams: Streams,
        time_limit: Option<Duration>,
        on_created: OnCreated,
    ) -> RunningBox {
        let started_at = Instant::now();
        RunningBox {
            streams,
            proxy_socket: None,
            protections: of_a_service(),
            control: Arc::clone(&self.control) as Arc<dyn BoxControl>,
            exit: self.follow(started_at, on_created).boxed(),
            started_at,
            time_limit,
        }
    }

    /// Waits until the service reports the end of the command and all output is read.
    async fn follow(mut self, started_at: Instant, on_created: OnCreated) -> Result<BoxExit, Error> {
        let control = Arc::clone(&self.control);
        let Some(followed) = &mut self.followed else { return Err(AioError::Overdue.into()) };
        let end = tokio::select! {
            biased;
            end = followed => end.unwrap_or_else(|error| Err(AioError::Streams(error.into()))),
            () = control.overdue() => Err(AioError::Overdue),
        };
        let duration = started_at.elapsed();
        if let Some(followed) = self.followed.take() {
            followed.abort();
        }
        if end.is_err() {
            // The command may still run.
            let _ = control.service.kill(&control.session, SIGKILL).await;
        }
        let _ = control.service.close_session(&control.session).await;
        let end = end?;
        let after = self.directory.files(&control.service).await;
        on_created(after.map(|after| directory::created(&self.before, &after)));
        let sent = *control.sent.borrow();
        let ending = match (end, sent) {
            (End::TimedOut, _) => Ending::TimedOut,
            // A negative code is a signal number.
            (End::Exited(code @ ..0), _) => Ending::Signalled(code.saturating_neg()),
            (End::Exited(code), _) => Ending::Exited(code),
            (End::Killed, Some(signal)) => Ending::Signalled(signal.as_raw()),
            (End::Killed, None) => Ending::Stopped(Signal::KILL.as_raw()),
        };
        Ok(BoxExit { ending, duration, out_of_memory: false, usage: Usage::default(), steps: Vec::new() })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(followed) = self.followed.take() else { return };
        followed.abort();
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let control = Arc::clone(&self.control);
        runtime.spawn(async move {
            let _ = control.service.kill(&control.session, SIGKILL).await;
            let _ = control.service.close_session(&control.session).await;
        });
    }
}
