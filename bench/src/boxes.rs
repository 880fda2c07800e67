//! The native box: the executor called in this process, as a server calls it, without the start of a program.
//!
//! Two executors are made before the clock starts, as a server does: one with cgroups and one
//! without, which shows the cost of limits. The time includes the decision, the plan, a cold box,
//! the command, and the end of the last process.

use std::path::Path;
use std::time::{Duration, Instant};

use ringwall_executor::{Ending, Executor, Host, Options, Outcome, RunningBox};
use ringwall_policy::{Ceilings, Grant, Layer, LayerName, Layers, Request, Root, Verdict, Workspace};
use tokio::runtime::Runtime;

use crate::error::Error;

/// How limits are enforced: by cgroups, or by rlimits and PID 1's memory watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limits {
    Cgroups,
    WithoutCgroups,
}

#[derive(Debug)]
pub(crate) struct Boxes {
    default: Executor,
    without_cgroups: Executor,
    layers: Layers,
    /// The reason if boxes have no cgroups on this machine.
    pub(crate) no_cgroups: Option<String>,
}

/// The times of one box.
#[derive(Debug)]
pub(crate) struct Timed {
    pub(crate) total: Duration,
    /// Until every protection was in force.
    pub(crate) until_started: Duration,
    pub(crate) outcome: Outcome,
}

impl Boxes {
    pub(crate) fn prepare(data: &Path) -> Result<Self, Error> {
        let host = Host::probe();
        let mut bare_host = Host::probe();
        bare_host.cgroups = Err("left out, for comparison".to_owned());
        let ceilings = ringwall_policy::profile::machine_ceilings(host.memory_mb, host.cpus, host.pids);
        Ok(Boxes {
            no_cgroups: host.cgroups.as_ref().err().cloned(),
            default: Executor::new(host, data)?,
            without_cgroups: Executor::new(bare_host, data)?,
            layers: Layers {
                system: ringwall_policy::profile::RUN,
                ceilings: Ceilings { limits: ceilings, set_by: LayerName::Machine },
                operator: Layer::new(LayerName::CommandLine),
                narrowing: Vec::new(),
            },
        })
    }

    /// Runs one command in a cold box and waits until nothing of it is left.
    pub(crate) fn run(&self, runtime: &Runtime, limits: Limits, command: &[&str]) -> Result<Timed, Error> {
        runtime.block_on(async {
            let began = Instant::now();
            let running = self.start(limits, command).await?;
            let until_started = began.elapsed();
            let outcome = running.wait().await?;
            let total = began.elapsed();
            match outcome.ending {
                Ending::Exited(0) => Ok(Timed { total, until_started, outcome }),
                ending => Err(Error::BoxEnded(ending)),
            }
        })
    }

    pub(crate) async fn start(&self, limits: Limits, command: &[&str]) -> Result<RunningBox, Error> {
        let executor = match limits {
            Limits::Cgroups => &self.default,
            Limits::WithoutCgroups => &self.without_cgroups,
        };
        Ok(executor.start(self.grant(command)?, Options::default()).await?)
    }

    fn grant(&self, command: &[&str]) -> Result<Grant, Error> {
        let request = Request {
            argv: command.iter().map(Into::into).collect(),
            env: Default::default(),
            cwd: None,
            root: Root::Host,
            workspace: Workspace::Private,
            read_only: Vec::new(),
        };
        match ringwall_policy::decide(&request, &self.layers) {
            Verdict::Allow(grant) => Ok(grant),
            Verdict::Deny(denial) => Err(Error::Refused(denial.message)),
            Verdict::Ask(_) => Err(Error::Refused("it wants to ask a person".to_owned())),
        }
    }
}

/// The event loop on which one thread follows its boxes.
pub(crate) fn event_loop() -> Result<Runtime, Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::EventLoop)
}
