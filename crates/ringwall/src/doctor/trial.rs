//! Starts the trial box: an ordinary request that the policy decides and the executor runs.
//!
//! The command only fills the box. If the host has none of [`COMMANDS`], the result is still a success:
//! the box and its protections existed when the command was looked up.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use ringwall_executor::{Ending, Error, Executor, Host, Options, Protection, ProtectionName, ProtectionState};
use ringwall_policy::{Ceilings, Field, Layer, LayerName, Layers, Request, Root, Verdict, Workspace};
use ringwall_service::causes;

use super::facts::{Trial, TrialFailure};

/// Tried in this order until one can be started.
const COMMANDS: [&[&str]; 3] = [&["/usr/bin/true"], &["/bin/true"], &["/bin/sh", "-c", ":"]];
const COMMAND_LIMIT_MS: u64 = 10_000;
/// For the start and the end of the box, which may hang on a file system that does not answer.
const TRIAL_LIMIT: Duration = Duration::from_secs(30);

/// A box without one of these counts as a failure.
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

/// Starts a box, runs a command in it and returns the box's protections.
pub(crate) async fn make(host: Host, data: &Path) -> Trial {
    let layers = layers(&host);
    let executor = match Executor::new(host, data) {
        Ok(executor) => executor,
        Err(error) => return Trial::Failed(failure(&error)),
    };
    let trial = tokio::time::timeout(TRIAL_LIMIT, attempt(&executor, &layers)).await;
    match trial {
        Ok(trial) => trial,
        Err(_) => failed(format!("the trial box did not end within {} seconds", TRIAL_LIMIT.as_secs())),
    }
}

async fn attempt(executor: &Executor, layers: &Layers) -> Trial {
    let mut stood = Vec::new();
    for command in COMMANDS {
        let grant = match ringwall_policy::decide(&request(command), layers) {
            Verdict::Allow(grant) => grant,
            Verdict::Deny(denial) => return failed(denial.message),
            Verdict::Ask(_) => return failed("the policy requires an approval for the trial box".to_owned()),
        };
        let running = match executor.start(grant, Options::default()).await {
            Ok(running) => running,
            Err(error) => return Trial::Failed(failure(&error)),
        };
        let protections = running.protections().to_vec();
        if let Some(lacking) = lacking(&protections) {
            return failed(format!("the trial box started without a required protection: {lacking:?}"));
        }
        match running.wait().await {
            Ok(outcome) if outcome.ending == Ending::Exited(0) => {
                return Trial::Made { protections, command: Some(command.join(" ")) };
            }
            Ok(outcome) => return failed(format!("{} failed in the trial box: {:?}", command[0], outcome.ending)),
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

/// The first required protection that is not enforced.
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
    fn missing_or_partial_required_protection_is_lacking() {
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
    fn missing_optional_protection_is_not_lacking() {
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
