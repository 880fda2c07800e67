//! A box with a running agent and no grant yet: the first stage of a session box.
//!
//! Three tasks serve it: one writes to the agent, one reads from it, and one waits for the end of
//! the box and publishes it. Dropping the value ends the box.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use ringwall_jail::agent::frame::Enabled;
use ringwall_jail::report::{Protection, ProtectionName};
use tokio::net::unix::pipe::Sender;

use super::listen::{ignore, listen};
use super::register::{Death, Life, Shared};
use super::writer::AgentWriter;
use crate::counters::register;
use crate::error::Error;
use crate::outcome::{Ending, Outcome};
use crate::running::RunningBox;

/// Time limit for the agent's first message and for starting a command.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct AgentConnection {
    pub(super) shared: Arc<Shared>,
    pub(super) proxy_socket: Option<OwnedFd>,
    pub(super) protections: Vec<Protection>,
}

impl AgentConnection {
    /// Returns after the agent's first message.
    pub(crate) async fn begin(mut running: RunningBox) -> Result<Self, Error> {
        let pipes = running.take_streams().into_pipes();
        let [stdin, stdout, stderr] = pipes.ok_or(Error::JailDied)?;
        let writer = AgentWriter::open(register(stdin, Sender::from_owned_fd).await.map_err(Error::Talk)?);
        let shared = Arc::new(Shared::new(running.control(), writer));
        let (protections, proxy_socket) = (running.protections().to_vec(), running.proxy_socket.take());
        tokio::spawn(listen(stdout, Arc::clone(&shared)));
        tokio::spawn(ignore(stderr));
        tokio::spawn(follow(running, Arc::clone(&shared)));
        // From here on, dropping `agent` ends the box.
        let mut agent = AgentConnection { shared, proxy_socket, protections };
        let mut life = agent.shared.life.subscribe();
        match tokio::time::timeout(TIMEOUT, life.wait_for(|life| *life != Life::Waking)).await {
            Ok(Ok(life)) => match &*life {
                Life::Over(death) => return Err(death.to_error()),
                Life::Waking | Life::AgentConnection | Life::Paused => {}
            },
            Ok(Err(_)) | Err(_) => return Err(Error::NoAnswer { from: "the agent in the box", timeout: TIMEOUT }),
        }
        agent.protections.push(match agent.shared.isolated.get() {
            Some(Enabled::Yes) => Protection::enforced(ProtectionName::CommandsApart),
            Some(Enabled::No) | None => {
                Protection::not_available(ProtectionName::CommandsApart, "there is no Landlock in this box")
            }
        });
        Ok(agent)
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.shared.doom().is_none() && !matches!(*self.shared.life.borrow(), Life::Over(_))
    }

    /// Ends the box and waits for its last process.
    pub(crate) async fn end(&self) {
        self.shared.end_for(Death::Ordered);
        self.died().await;
    }

    pub(crate) async fn died(&self) -> Death {
        let mut life = self.shared.life.subscribe();
        let over = life.wait_for(|life| matches!(life, Life::Over(_))).await;
        match over.as_deref() {
            Ok(Life::Over(death)) => death.clone(),
            Ok(Life::Waking | Life::AgentConnection | Life::Paused) | Err(_) => Death::Ordered,
        }
    }
}

impl Drop for AgentConnection {
    fn drop(&mut self) {
        self.shared.end_for(Death::Ordered);
    }
}

/// Waits for the end of the box and publishes the reason.
async fn follow(running: RunningBox, shared: Arc<Shared>) {
    let outcome = running.wait().await;
    // An OOM kill can also be the cause of an agent that seemed to end by itself.
    let ran_out = matches!(&outcome, Ok(Outcome { out_of_memory: true, .. }));
    let death = match (shared.doom().cloned(), outcome) {
        (Some(Death::Ordered), _) => Death::Ordered,
        (_, Ok(_)) if ran_out && ended_by_kernel(&shared) => Death::OutOfMemory,
        (_, Ok(Outcome { ending: Ending::OverCounters, .. })) => {
            Death::Itself("it held more epoll watches or unreceived descriptors than one box may".to_owned())
        }
        (Some(death), Ok(_)) => death,
        (None, Ok(_)) => Death::Itself("its agent has ended".to_owned()),
        (_, Err(error)) => Death::Itself(error.to_string()),
    };
    shared.mark_dead(death);
}

/// True if we did not end the box; an OOM kill then explains it best.
fn ended_by_kernel(shared: &Shared) -> bool {
    matches!(shared.doom(), None | Some(Death::Itself(_)))
}
