//! The tokio runtimes of servers and of single commands, the signals that stop them, and the log.
//!
//! A server's threads are checked first. Tokio panics when it cannot start a worker thread, and dropping the
//! incomplete runtime then hangs. The check therefore starts as many threads as the server needs, and ends
//! them again.

use std::io::IsTerminal as _;
use std::thread::{Builder, available_parallelism, scope};

use parking_lot::{Condvar, Mutex};
use rustix::process::{Resource, geteuid, getrlimit};
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::message::Message;

/// Threads and processes besides the workers: the record's writer, SQLite, the blocking pool, the
/// counter guard, and the processes of the jail and of the first box.
const OTHER_THREADS: usize = 8;

const LOG_VARIABLE: &str = "RINGWALL_LOG";
const DEFAULT_LOG: &str = "info,sqlx=warn";

/// Starts the runtime. A panic during the start aborts the process, because another process of the
/// user can take the threads after the check. Afterwards a panic ends the task in which it happens.
pub(crate) fn start() -> Result<Runtime, Message> {
    let workers = available_parallelism().map_or(1, usize::from);
    check_threads(workers + OTHER_THREADS)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Message::new(format!("could not start the event loop: {error}")))?;
    drop(std::panic::take_hook());
    Ok(runtime)
}

/// Starts the log on standard error: text on a terminal, otherwise JSON. No line may contain a token, a
/// request body or the value of an environment variable. The filter is `RINGWALL_LOG`, in the syntax of `EnvFilter`: `debug`, or
/// `ringwall=debug,info`.
pub(crate) fn start_logging() -> Result<(), Message> {
    let directives = std::env::var(LOG_VARIABLE).unwrap_or_else(|_| DEFAULT_LOG.to_owned());
    // These two targets would log secrets, so no filter can turn them on: rmcp logs whole messages, and
    // sqlx logs lines of a PGPASSFILE and values of URL parameters.
    let filter = EnvFilter::try_new(format!("{directives},rmcp=off,sqlx_postgres::options=off")).map_err(|error| {
        Message::new(format!("invalid log filter {LOG_VARIABLE}={directives}: {error}"))
            .with_hint("for example: RINGWALL_LOG=debug")
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started =
        if std::io::stderr().is_terminal() { log.try_init() } else { log.json().flatten_event(true).try_init() };
    started.map_err(|error| Message::new(format!("could not start logging: {error}")))
}

/// A runtime for one command, without threads of its own.
pub(crate) fn current_thread() -> Result<Runtime, Message> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Message::new(format!("could not start the event loop: {error}")))
}

/// SIGINT and SIGTERM of this process.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// From now on the signals do not end the process. Call it in a runtime.
    pub(crate) fn listen() -> Result<Self, Message> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Message::new(format!("could not install the handlers of SIGTERM and SIGINT: {error}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Starts `count` threads that all exist at the same time. Stops at the first that fails.
fn check_threads(count: usize) -> Result<(), Message> {
    let (is_over, changed) = (Mutex::new(false), Condvar::new());
    let wait = || {
        let mut is_over = is_over.lock();
        changed.wait_while(&mut is_over, |is_over| !*is_over);
    };
    scope(|scope| {
        let started = (0..count).try_for_each(|number| match Builder::new().spawn_scoped(scope, wait) {
            Ok(_) => Ok(()),
            Err(error) => Err(thread_error(number, count, &error)),
        });
        *is_over.lock() = true;
        changed.notify_all();
        started
    })
}

fn thread_error(number: usize, count: usize, error: &std::io::Error) -> Message {
    let uid = geteuid().as_raw();
    let limit = getrlimit(Resource::Nproc).current.map_or("unlimited".to_owned(), |limit| limit.to_string());
    Message::failed(
        "NO_THREADS",
        format!(
            "could not start thread {} of the {count} that the server needs to start: {error}; RLIMIT_NPROC is \
             {limit} and counts all processes and threads of uid {uid}",
            number + 1
        ),
    )
    .with_hint(
        "end other processes of this user, or raise the limit: `ulimit -u`, LimitNPROC= and TasksMax= of a systemd \
         unit, pids.max of the cgroup",
    )
}
