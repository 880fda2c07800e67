//! The multi-threaded event loop of a server, and a check that its threads can be started.
//!
//! Tokio panics when it cannot start a worker thread, and dropping the half-made runtime then hangs.
//! So as many threads as a server needs to come up are started and ended before it.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::{Builder, available_parallelism, scope};

use rustix::process::{Resource, geteuid, getrlimit};
use tokio::runtime::Runtime;

use crate::cli::message::Message;

/// Beside the workers: the record's writer, SQLite, the blocking pool, the counter guard, and the
/// processes of the jail and of the first box.
const OTHER_THREADS: usize = 8;

/// Starts the event loop. Until it runs a panic ends the process, because another process of the user
/// can take the threads between the check and the start. From then on it ends the task in which it
/// happens.
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

/// Starts so many threads, which wait until the last one was tried.
fn check_threads(count: usize) -> Result<(), Message> {
    let (is_over, changed) = (Mutex::new(false), Condvar::new());
    let wait = || {
        let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_while(is_over, |is_over| !*is_over));
    };
    scope(|scope| {
        let started = (0..count).try_for_each(|number| match Builder::new().spawn_scoped(scope, wait) {
            Ok(_) => Ok(()),
            Err(error) => Err(refused(number, count, &error)),
        });
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        started
    })
}

fn refused(number: usize, count: usize, error: &std::io::Error) -> Message {
    let uid = geteuid().as_raw();
    let limit = getrlimit(Resource::Nproc).current.map_or("unlimited".to_owned(), |limit| limit.to_string());
    Message::failed(
        "NO_THREADS",
        format!(
            "could not start thread {} of the {count} that the server needs to come up: {error}; RLIMIT_NPROC is \
             {limit}, and all processes and threads of uid {uid} count",
            number + 1
        ),
    )
    .with_hint(
        "end other processes of this user, or raise the limit: `ulimit -u`, LimitNPROC= and TasksMax= of a systemd \
         unit, pids.max of the cgroup",
    )
}
