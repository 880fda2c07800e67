//! Starts the probe box: an ordinary request that the policy decides and the executor runs.
//!
//! The command only fills the box. If the host has none of [`COMMANDS`], the result is still a success:
//! the box and its protections existed when the command was looked up.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use ringwall_executor::{Ending, Error, Executor, Host, Options, Protection, ProtectionName, ProtectionState};
use ringwall_policy::{Field, Layer, LayerName, Layers, Request, Root, Verdict, Workspace};
use ringwall_service::causes;

use crate::cli::run::machine_layers;

use super::facts::{ProbeBox, ProbeBoxFailure};

/// Tried in this order until one can be started.
const COMMANDS: [&[&str]; 3] = [&["/usr/bin/true"], &["/bin/true"], &["/bin/sh", "-c", ":"]];
const COMMAND_TIMEOUT_MS: u64 = 10_000;
/// For the start and the end of the box, which may hang on a file system that does not answer.
const TIMEOUT: Duration = Duration::from_secs(30);

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
pub(crate) async fn start(host: Host, data: &Path) -> ProbeBox {
    let mut operator = Layer::new(LayerName::CommandLine);
    operator.limits.insert(Field::TimeoutMs, COMMAND_TIMEOUT_MS);
    let layers = machine_layers(&host, operator);
    let executor = match Executor::new(host, data) {
        Ok(executor) => executor,
        Err(error) => return ProbeBox::Failed(failure(&error)),
    };
    let result = tokio::time::timeout(TIMEOUT, try_commands(&executor, &layers)).await;
    match result {
        Ok(result) => result,
        Err(_) => failed(format!("the probe box did not end within {} seconds", TIMEOUT.as_secs())),
    }
}

/// Starts one box per command until one can be executed.
async fn try_commands(executor: &Executor, layers: &Layers) -> ProbeBox {
    let mut found = Vec::new();
    for command in COMMANDS {
        let grant = match ringwall_policy::decide(&request(command), layers) {
            Verdict::Allow(grant) => grant,
            Verdict::Deny(denial) => return failed(denial.message),
            Verdict::Ask(_) => return failed("the policy requires an approval for the probe box".to_owned()),
        };
        let running = match executor.start(grant, Options::default()).await {
            Ok(running) => running,
            Err(error) => return ProbeBox::Failed(failure(&error)),
        };
        let protections = running.protections.clone();
        if let Some(missing) = first_missing(&protections) {
            return failed(format!("the probe box started without a required protection: {missing:?}"));
        }
        match running.wait().await {
            Ok(outcome) if outcome.ending == Ending::Exited(0) => {
                return ProbeBox::Made { protections, command: Some(command.join(" ")) };
            }
            Ok(outcome) => return failed(format!("{} failed in the probe box: {:?}", command[0], outcome.ending)),
            Err(Error::CommandNotFound { .. } | Error::CommandNotExecutable { .. }) => found = protections,
            Err(error) => return ProbeBox::Failed(failure(&error)),
        }
    }
    ProbeBox::Made { protections: found, command: None }
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

/// The first required protection that is not enforced.
fn first_missing(protections: &[Protection]) -> Option<ProtectionName> {
    REQUIRED.into_iter().find(|name| {
        let holds = |protection: &Protection| protection.name == *name && protection.state == ProtectionState::Enforced;
        !protections.iter().any(holds)
    })
}

fn failure(error: &Error) -> ProbeBoxFailure {
    let (step, errno) = match error {
        Error::Setup(failure) => (Some(failure.step), failure.errno),
        _ => (None, 0),
    };
    ProbeBoxFailure { step, errno, text: causes(error), hint: error.hint() }
}

fn failed(text: String) -> ProbeBox {
    ProbeBox::Failed(ProbeBoxFailure { step: None, errno: 0, text, hint: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwall_executor::ProtectionName;

    #[test]
    fn missing_or_partial_required_protection_is_lacking() {
        let all: Vec<_> = ProtectionName::ALL.into_iter().map(Protection::enforced).collect();
        assert_eq!(first_missing(&all), None);
        for name in REQUIRED {
            let without: Vec<_> = all.iter().filter(|protection| protection.name != name).cloned().collect();
            assert_eq!(first_missing(&without), Some(name));
            let mut weak = without;
            weak.push(Protection::partial(name, "half of it"));
            assert_eq!(first_missing(&weak), Some(name));
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
        assert_eq!(first_missing(&bare), None);
    }
}
