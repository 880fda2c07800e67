//! The trial box: a request like any other, decided by the policy and made by the executor.
//!
//! What it proves is the box; the command in it is only there because a box needs one. So a host without the
//! usual programs fails no trial: the box stood when the command was looked for.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use ringwall_executor::{Ending, Error, Executor, Host, Options, Protection, ProtectionName, ProtectionState};
use ringwall_policy::{Ceilings, Field, Layer, LayerName, Layers, Request, Root, Verdict, Workspace};
use ringwall_service::causes;

use super::facts::{Trial, TrialFailure};

/// Tried in this order until one can be started.
const COMMANDS: [&[&str]; 3] = [&["/usr/bin/true"], &["/bin/true"], &["/bin/sh", "-c", ":"]];
/// For the command, and for the whole trial: a file system that does not answer must not hold the doctor up.
const COMMAND_LIMIT_MS: u64 = 10_000;
const TRIAL_LIMIT: Duration = Duration::from_secs(30);

/// Without any of these there is no box.
const REQUIRED: [ProtectionName; 8] = [
    ProtectionName::UserNamespace,
    ProtectionName::MountNamespace,
    ProtectionName::PidNamespace,
    ProtectionName::NetworkNamespace,
    ProtectionName::IpcNamespace,
    ProtectionName::NoCapabilities,
    ProtectionName::NoNewPrivileges,
    ProtectionName::Seccomp,
];

/// Makes the box, runs something in it, and looks at what held.
pub(crate) async fn make(host: Host, data: &Path) -> Trial {
    let layers = layers(&host);
    let executor = match Executor::new(host, data) {
        Ok(executor) => executor,
        Err(error) => return Trial::Failed(failure(&error)),
    };
    let trial = tokio::time::timeout(TRIAL_LIMIT, attempt(&executor, &layers)).await;
    match trial {
        Ok(trial) => trial,
        Err(_) => failed(format!("the trial box was not done after {} seconds", TRIAL_LIMIT.as_secs())),
    }
}

async fn attempt(executor: &Executor, layers: &Layers) -> Trial {
    let mut stood = Vec::new();
    for command in COMMANDS {
        let grant = match ringwall_policy::decide(&request(command), layers) {
            Verdict::Allow(grant) => grant,
            Verdict::Deny(denial) => return failed(denial.message),
            Verdict::Ask(_) => return failed("the policy asks a person before it allows a trial box".to_owned()),
        };
        let running = match executor.start(grant, Options::default()).await {
            Ok(running) => running,
            Err(error) => return Trial::Failed(failure(&error)),
        };
        let protections = running.protections().to_vec();
        if let Some(lacking) = lacking(&protections) {
            return failed(format!("the trial box was made without a protection that every box needs: {lacking:?}"));
        }
        match running.wait().await {
            Ok(outcome) if outcome.ending == Ending::Exited(0) => {
                return Trial::Made { protections, command: Some(command.join(" ")) };
            }
            Ok(outcome) => return failed(format!("{} in the trial box: {:?}", command[0], outcome.ending)),
            Err(Error::CommandNotFound { .. } | Error::CommandNotExecutable { .. }) => stood = protections,
            Err(error) => return Trial::Failed(failure(&error)),
        }
    }
    Trial::Made { protections: stood, command: None }
}

fn request(command: &[&str]) -> Request {
    Request {
        argv: command.iter().map(OsString::from).collect(),
        env: Default::default(),
        cwd: None,
        root: Root::Host,
        workspace: Workspace::Private,
        read_only: Vec::new(),
    }
}

fn layers(host: &Host) -> Layers {
    let mut operator = Layer::new(LayerName::CommandLine);
    operator.limits.insert(Field::TimeoutMs, COMMAND_LIMIT_MS);
    Layers {
        system: ringwall_policy::profile::RUN,
        ceilings: Ceilings {
            limits: ringwall_policy::profile::machine_ceilings(host.memory_mb, host.cpus, host.pids),
            set_by: LayerName::Machine,
        },
        operator,
        narrowing: Vec::new(),
    }
}

/// The first protection that no box may be without and this one is.
fn lacking(protections: &[Protection]) -> Option<ProtectionName> {
    REQUIRED.into_iter().find(|name| {
        let holds = |protection: &Protection| protection.name == *name && protection.state == ProtectionState::Enforced;
        !protections.iter().any(holds)
    })
}

fn failure(error: &Error) -> TrialFailure {
    let (step, errno) = match error {
        Error::Setup(failure) => (Some(failure.step), failure.errno),
        _ => (None, 0),
    };
    TrialFailure { step, errno, text: causes(error), hint: error.hint() }
}

fn failed(text: String) -> Trial {
    Trial::Failed(TrialFailure { step: None, errno: 0, text, hint: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwall_executor::ProtectionName;

    #[test]
    fn a_box_without_a_wall_is_no_box() {
        let all: Vec<_> = ProtectionName::ALL.into_iter().map(Protection::enforced).collect();
        assert_eq!(lacking(&all), None);
        for name in REQUIRED {
            let without: Vec<_> = all.iter().filter(|protection| protection.name != name).cloned().collect();
            assert_eq!(lacking(&without), Some(name));
            let mut weak = without;
            weak.push(Protection::partial(name, "half of it"));
            assert_eq!(lacking(&weak), Some(name));
        }
    }

    #[test]
    fn what_is_only_reported_refuses_no_box() {
        let reported = |name: &ProtectionName| !REQUIRED.contains(name);
        let bare: Vec<_> = ProtectionName::ALL
            .into_iter()
            .map(|name| match reported(&name) {
                true => Protection::not_available(name, "not here"),
                false => Protection::enforced(name),
            })
            .collect();
        assert_eq!(lacking(&bare), None);
    }
}
