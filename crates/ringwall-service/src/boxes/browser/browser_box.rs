//! The box of a browser: one of its own, or its session's box. Each command in it has its own
//! grant.
//!
//! Small commands in the same box transfer files, so that the server never opens a file that the
//! box has created: it reads what the command printed, up to a limit.

use std::fs::File;
use std::io::{Read, Take};
use std::sync::Arc;
use std::time::Duration;

use ringwall_executor::pool::Hold;
use ringwall_executor::session_box::{Enabled, ProcessOptions, ProcessStreams, SessionBox, StartedProcess};
use ringwall_executor::{Ending, Outcome};
use ringwall_policy::{Grant, Layers, Request, Verdict, decide};
use tokio::io::AsyncReadExt;

use super::fault::Fault;
use super::gate::{BrowserGate, CurrentAction};
use crate::boxes::{Boxes, PooledBox};
use crate::egress::{BoxGate, Requester};

const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes of a file per write into the box.
const CHUNK: usize = 64 << 10;
/// Removing the directory is repeated: a process that is being killed may still create files in it.
const REMOVE_ATTEMPTS: usize = 5;
const REMOVE_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct BrowserBox {
    pub(crate) host: BrowserHost,
    pub(crate) request: Request,
    pub(crate) layers: Layers,
    pub(crate) gate: Arc<BrowserGate>,
    pub(crate) proxy_socket: ringwall_browser::Egress,
}

#[derive(Debug)]
pub(crate) enum BrowserHost {
    Own(Box<SessionBox>),
    Session { pooled: Arc<PooledBox>, _hold: Hold<Boxes> },
}

impl BrowserBox {
    fn session_box(&self) -> &SessionBox {
        match &self.host {
            BrowserHost::Own(session_box) => session_box,
            BrowserHost::Session { pooled, .. } => &pooled.session_box,
        }
    }

    /// True while the box is paused. Its processes cannot react or exit then.
    pub(crate) fn is_paused(&self) -> bool {
        self.session_box().is_paused()
    }

    /// Attributes the browser's connections to this action from now on.
    pub(crate) fn begin(&self, requester: Requester) -> CurrentAction {
        let current = self.gate.begin(requester);
        if let BrowserHost::Session { pooled, .. } = &self.host
            && let Some(proxy) = &pooled.proxy
        {
            proxy.add_gate(self.gate.clone());
        }
        current
    }

    /// Starts a command in the box.
    pub(crate) async fn start(&self, argv: &[String], options: ProcessOptions) -> Result<StartedProcess, Fault> {
        let grant = grant(&self.request, argv, &self.layers)?;
        Ok(self.session_box().process(grant, options).await?)
    }

    /// Runs a command and returns its stdout. Fails if it prints more than `max_bytes` bytes, does
    /// not end in time or does not exit with 0.
    pub(crate) async fn run(
        &self,
        command: &[&str],
        input: Option<Take<&File>>,
        max_bytes: u64,
    ) -> Result<Vec<u8>, Fault> {
        let argv: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let stdin = if input.is_some() { Enabled::Yes } else { Enabled::No };
        let options = ProcessOptions { stdin, ..ProcessOptions::default() };
        // The other streams are dropped: a full pipe that is not read would block the command.
        let StartedProcess { streams: ProcessStreams { stdin, stdout, .. }, running, .. } =
            self.start(&argv, options).await?;
        let failed = |why: &str| Fault::failed(format!("{} in the browser's box {why}", command.join(" ")));
        let feed = async {
            let (Some(mut stdin), Some(mut input)) = (stdin, input) else { return Ok(()) };
            let mut chunk = vec![0; CHUNK];
            loop {
                match tokio::task::block_in_place(|| input.read(&mut chunk)) {
                    Ok(0) => break,
                    // A command that does not read its input fails with its own exit code.
                    Ok(count) if stdin.write(&chunk[..count]).await.is_err() => break,
                    Ok(_) => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        let mut printed = Vec::new();
        let mut bounded = stdout.take(max_bytes + 1);
        let work = async {
            let (read, fed) = tokio::join!(bounded.read_to_end(&mut printed), feed);
            fed.and(read).map_err(|error| error.to_string())
        };
        let read = tokio::time::timeout(COMMAND_TIMEOUT, work).await;
        match read {
            Ok(Ok(count)) if count as u64 <= max_bytes => {}
            Ok(Ok(_)) => return Err(failed(&format!("printed more than {max_bytes} bytes"))),
            Ok(Err(why)) => return Err(failed(&why)),
            Err(_) => return Err(failed("took too long")),
        }
        drop(bounded);
        match tokio::time::timeout(COMMAND_TIMEOUT, running.wait()).await {
            Ok(Ok(Outcome { ending: Ending::Exited(0), .. })) => Ok(printed),
            Ok(Ok(Outcome { ending, .. })) => Err(failed(&format!("ended with {ending:?}"))),
            Ok(Err(error)) => Err(error.into()),
            Err(_) => Err(failed("took too long")),
        }
    }

    /// Ends the browser's own box, or removes its directory from the session box. Its processes
    /// have ended before. An error means that some files are left; they are removed with the
    /// session box.
    pub(crate) async fn end(self, folder: &str) -> Result<(), Fault> {
        match &self.host {
            BrowserHost::Own(session_box) => {
                session_box.end().await;
                Ok(())
            }
            BrowserHost::Session { pooled, .. } => {
                if let Some(proxy) = &pooled.proxy {
                    let gate: Arc<dyn BoxGate> = self.gate.clone();
                    proxy.remove_gate(&gate);
                }
                let mut removed = Ok(());
                for _ in 0..REMOVE_ATTEMPTS {
                    removed = match self.run(&["rm", "-rf", "--", folder], None, 0).await {
                        Err(fault) if pooled.session_box.is_alive() => Err(fault),
                        Ok(_) | Err(_) => return Ok(()),
                    };
                    if pooled.session_box.is_paused() {
                        break;
                    }
                    tokio::time::sleep(REMOVE_INTERVAL).await;
                }
                removed
            }
        }
    }
}

pub(crate) fn grant(request: &Request, argv: &[String], layers: &Layers) -> Result<Grant, Fault> {
    let request = Request { argv: argv.iter().map(Into::into).collect(), ..request.clone() };
    match decide(&request, layers) {
        Verdict::Allow(grant) => Ok(grant),
        Verdict::Deny(denial) => Err(Fault::refused(denial.message)),
        Verdict::Ask(_) => Err(Fault::refused("the browser's box would show paths that are not allowed")),
    }
}
