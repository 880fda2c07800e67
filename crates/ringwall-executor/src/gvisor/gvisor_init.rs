//! Client of gVisor's init process (`jail` `gvisor_init`), which keeps runsc's namespaces and
//! starts programs in them.
//!
//! Closing the socket ends the init process and everything in its namespaces; so does the death of
//! this server. Programs have numbers, because one may be waited for while another is started to
//! signal it.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use ringwall_jail::plan::Operation;
use ringwall_jail::report::Ending;
use ringwall_jail::{CgroupEntry, GvisorReport, GvisorRequest, PROCESS_NAME, Request, wire};
use rustix::net::Shutdown;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use crate::error::{Error, talk};
use crate::pidfd::ended;
use crate::process::program::Program;
use crate::process::receive;

#[derive(Debug)]
pub(super) struct GvisorInit {
    shared: Arc<Shared>,
    /// Pidfd of the init process, PID 1 of the namespaces.
    init: OwnedFd,
    /// Its parent on the host, which ends after everything inside.
    _parent: Child,
}

#[derive(Debug)]
struct Shared {
    control: UnixStream,
    pending: Mutex<Pending>,
    numbers: AtomicU32,
}

/// Callers that wait for a report.
#[derive(Debug, Default)]
struct Pending {
    programs: HashMap<u32, oneshot::Sender<Ending>>,
    all_ended: Option<oneshot::Sender<u64>>,
    /// The init process has ended; no report will come.
    is_closed: bool,
}

impl GvisorInit {
    /// Starts the init process and returns when its root file system is ready.
    pub(super) async fn begin(program: &Program, operations: &[Operation]) -> Result<Self, Error> {
        let (ours, theirs) = wire::pair().map_err(talk)?;
        #[expect(clippy::disallowed_methods, reason = "the program that is started is the product's own jail")]
        let parent = Command::new(program.path())
            .arg0(PROCESS_NAME)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::StartJail)?;
        // No mount here maps owners.
        let trees =
            ringwall_jail::sources::open(operations, &mut |_| Err(rustix::io::Errno::PERM)).map_err(Error::Setup)?;
        let packed = wire::pack(&operations).map_err(talk)?;
        let descriptors: Vec<BorrowedFd<'_>> = std::iter::once(&packed).chain(&trees).map(AsFd::as_fd).collect();
        wire::send(&ours, &Request::GvisorInit, &descriptors).map_err(talk)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(talk)?;
        let control = UnixStream::from_std(ours.into()).map_err(Error::Talk)?;
        let init = match receive(&control).await? {
            Some((GvisorReport::Ready, descriptors)) => descriptors.into_iter().next().ok_or(Error::JailDied)?,
            Some((GvisorReport::Failed(failure), _)) => return Err(Error::Setup(failure)),
            Some((GvisorReport::Ended { .. } | GvisorReport::AllEnded { .. }, _)) | None => {
                return Err(Error::JailDied);
            }
        };
        let shared = Arc::new(Shared { control, pending: Mutex::default(), numbers: AtomicU32::new(0) });
        tokio::spawn(listen(Arc::clone(&shared)));
        Ok(GvisorInit { shared, init, _parent: parent })
    }

    /// Starts a program and waits for its end. `None` if the init process ended first.
    pub(super) async fn run(
        &self,
        argv: Vec<CString>,
        streams: [OwnedFd; 3],
        (entry, cgroups): (CgroupEntry, Vec<BorrowedFd<'_>>),
    ) -> Option<Ending> {
        let descriptors: Vec<BorrowedFd<'_>> = streams.iter().map(AsFd::as_fd).chain(cgroups).collect();
        let ending = self.request(|number| GvisorRequest::Run { number, argv, entry }, &descriptors)?;
        // Our copies are closed at once, so that readers see the end of the pipe when the program
        // ends.
        drop(streams);
        ending.await.ok()
    }

    /// Reports the end of the process whose PID is in `file` (a path in runsc's root).
    pub(super) fn follow(&self, file: CString) -> Option<oneshot::Receiver<Ending>> {
        self.request(|number| GvisorRequest::Follow { number, file }, &[])
    }

    fn request(
        &self,
        request: impl FnOnce(u32) -> GvisorRequest,
        descriptors: &[BorrowedFd<'_>],
    ) -> Option<oneshot::Receiver<Ending>> {
        let number = self.shared.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, ending) = oneshot::channel();
        {
            let mut pending = self.shared.pending.lock();
            if pending.is_closed {
                return None;
            }
            pending.programs.insert(number, sender);
        }
        wire::send(&self.shared.control, &request(number), descriptors).ok()?;
        Some(ending)
    }

    /// Ends everything in the namespaces and returns the CPU time of all of it in microseconds.
    pub(super) async fn end(&self) -> Option<u64> {
        let (sender, cpu_time) = oneshot::channel();
        self.shared.pending.lock().all_ended = Some(sender);
        let cpu_time = match wire::send(&self.shared.control, &GvisorRequest::End, &[]) {
            Ok(()) => cpu_time.await.ok(),
            Err(_) => None,
        };
        self.wait().await;
        cpu_time
    }

    /// Ends everything in the namespaces without waiting for a report.
    pub(super) fn kill(&self) {
        let _ = rustix::net::shutdown(&self.shared.control, Shutdown::Both);
    }

    /// Waits until every process in the namespaces is dead.
    pub(super) async fn wait(&self) {
        ended(&self.init).await;
    }
}

impl Drop for GvisorInit {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Passes reports to their callers until the init process has ended.
async fn listen(shared: Arc<Shared>) {
    while let Ok(Some((report, _))) = receive(&shared.control).await {
        let mut pending = shared.pending.lock();
        match report {
            GvisorReport::Ended { number, ending } => {
                if let Some(sender) = pending.programs.remove(&number) {
                    let _ = sender.send(ending);
                }
            }
            GvisorReport::AllEnded { cpu_microseconds } => {
                if let Some(sender) = pending.all_ended.take() {
                    let _ = sender.send(cpu_microseconds);
                }
            }
            GvisorReport::Ready | GvisorReport::Failed(_) => {}
        }
    }
    *shared.pending.lock() = Pending { is_closed: true, ..Pending::default() };
}
