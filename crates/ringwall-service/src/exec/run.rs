//! Runs the box of an exec: starts it, waits for its end or stops it, and classifies the result.
//!
//! Every started box is waited for, also after a cancellation or a full disk.

use std::time::Instant;

use ringwall_executor::{Outcome, Streams};
use ringwall_policy::Grant;
use ringwall_workspace::{ExecFiles, Stream};
use rustix::process::Signal;
use serde_json::json;
use tokio::sync::watch;

use crate::boxes::Hold;
use crate::boxes::PooledBox;
use crate::disk::{Disk, watch_all};
use crate::error::causes;
use crate::exec::backend::StartedBox;
use crate::exec::lifecycle::{Exec, RunSummary};
use crate::exec::line;
use crate::exec::outcome::ExecResult;
use crate::exec::output::{capture, feed};
use crate::exec::queue::Slot;
use crate::exec::registry::{Cancellation, Lifetime};
use crate::exec::spec::Target;

impl Exec {
    pub(crate) async fn run_box(
        &self,
        grant: Grant,
        files: &ExecFiles,
        disks: &[Disk],
        slot: &mut Option<Slot>,
        hold: &mut Hold,
    ) -> RunSummary {
        let began = Instant::now();
        let net = grant.effective().net.clone();
        // A cancellation does not interrupt the start: a box that comes up is stopped and waited
        // for, and a start that fails ends soon. The cancellation is checked after the start.
        let starting = self.start_box(grant);
        let mut started = match (starting.await, self.running.cancellation()) {
            (Ok(started), _) => started,
            (Err(_), Some(by)) => return RunSummary::never(ExecResult::cancelled(by)),
            (Err(error), None) => return RunSummary::never(self.explain(&error)),
        };
        self.service.inner.counters.set_up(began.elapsed());
        if let Some(home) = started.home() {
            self.running.set_home(home);
            // Releases the session: an exec that takes it exclusively pauses the session's boxes,
            // so it need not wait for this exec.
            *hold = Hold::Nothing;
            // Processes and terminals run until they are stopped. Their box counts against the
            // pool, so they free the slot for other execs.
            if self.running.lifetime() == Lifetime::UntilStopped {
                *slot = None;
            }
        }
        let memory_mb = started.home().map_or(self.limits.memory_mb, |home| home.session_box.memory_mb());
        let protections = Some(json!(started.running.protections()));
        let Streams { stdin, stdout, stderr } = started.running.take_streams();
        let proxy_socket = self.proxy_socket(&net, started.running.proxy_socket.take());
        let (shared, screen) = match &mut started.session {
            Some(session) => (session.gate.clone(), session.screen.take()),
            None => (None, None),
        };
        let (tell, over) = watch::channel(false);
        let wait = async {
            let ended = self.wait(started, disks).await;
            tell.send_replace(true);
            ended
        };
        let capture = |from, screen, stream: Stream, limit, over| {
            capture(from, screen, stream, files.output(stream).clone(), limit, &self.running, over)
        };
        let carry = {
            let mut over = over.clone();
            async move {
                let is_over = async {
                    let _ = over.wait_for(|is_over| *is_over).await;
                };
                Some(proxy_socket?.serve(is_over).await)
            }
        };
        // Long code is sent through stdin. All other commands get an empty stdin, so that a read
        // ends at once.
        let input = match &self.spec.target {
            Target::Code(code) => code.input(),
            Target::Agent { .. } | Target::Session { .. } => line::input(&self.spec.words),
            Target::Project { .. } => &[],
        };
        // `biased` polls the box first: after it has ended, all other branches finish in the same
        // poll.
        let ((outcome, full), gate, (), stdout, stderr) = tokio::join!(
            biased;
            wait,
            carry,
            feed(stdin, input, over.clone()),
            capture(stdout, screen, Stream::Stdout, self.limits.stdout_bytes, over.clone()),
            capture(stderr, None, Stream::Stderr, self.limits.stderr_bytes, over),
        );
        let refused = match gate.or(shared).as_deref() {
            Some(gate) => self.keep_network(gate).await,
            None => None,
        };
        let result = match (self.running.cancellation(), &outcome) {
            (Some(by), _) => ExecResult::cancelled(by),
            (None, Ok(outcome)) => ExecResult::of_outcome(outcome, self.limits.timeout_ms, memory_mb)
                .with_full_disk(full)
                .with_refused_host(refused),
            (None, Err(error)) => self.explain(error),
        };
        let outcome = outcome.ok();
        RunSummary {
            result,
            duration: Some(outcome.as_ref().map_or_else(|| began.elapsed(), |outcome| outcome.duration)),
            protections,
            cpu: outcome.as_ref().and_then(|outcome| outcome.usage.cpu),
            peak_memory_bytes: outcome.as_ref().and_then(|outcome| outcome.usage.peak_memory_bytes),
            stdout,
            stderr,
        }
    }

    /// Waits for the end of the box or stops it. Also returns the message if a full disk ended the
    /// box.
    async fn wait(
        &self,
        started: StartedBox,
        disks: &[Disk],
    ) -> (Result<Outcome, ringwall_executor::Error>, Option<String>) {
        let home = started.home().cloned();
        let (outcome, full) = self.wait_for(started, home.as_deref(), disks).await;
        // Another exec of the session box may have filled the disk, which ends the box with every
        // exec in it.
        let full = full.or_else(|| home?.full().map(str::to_owned));
        (outcome, full)
    }

    async fn wait_for(
        &self,
        started: StartedBox,
        home: Option<&PooledBox>,
        disks: &[Disk],
    ) -> (Result<Outcome, ringwall_executor::Error>, Option<String>) {
        let control = started.running.control();
        let over = started.wait();
        tokio::pin!(over);
        let by = tokio::select! {
            biased;
            outcome = &mut over => return (outcome, None),
            by = self.running.cancelled() => by,
            full = watch_all(disks) => {
                match home {
                    Some(home) => home.end_as_full(full.clone()),
                    None => control.stop(Signal::KILL).await,
                }
                return (over.await, Some(full));
            }
        };
        let stop = async {
            // Stopping a command of a paused session box resumes the box for up to 1 s. While an
            // approved command holds the session exclusively, other processes of the box could
            // change the approved files in that time. So wait until the session is shared again.
            let _shared = match (home, by, self.session_name()) {
                (Some(_), Cancellation::ByCaller | Cancellation::HungUp, Some(name)) => {
                    Some(self.service.inner.session_gates.share(&name).await)
                }
                _ => None,
            };
            match by {
                Cancellation::ByCaller => control.stop(Signal::TERM).await,
                Cancellation::HungUp => control.stop(Signal::HUP).await,
                Cancellation::ServerStops => control.stop(Signal::KILL).await,
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            outcome = &mut over => (outcome, None),
            never = stop => never,
        }
    }

    fn explain(&self, error: &ringwall_executor::Error) -> ExecResult {
        let result = ExecResult::of_error(error);
        if result.exit_code.is_none() {
            tracing::warn!(exec_id = %self.intent.exec_id, error = %causes(error), "a box could not be made");
        }
        result
    }
}
