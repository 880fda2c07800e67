//! Turns the grant of a session process into a message to the agent. Pure, except for the lookup of
//! Python in a box on the host's system.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ringwall_jail::agent::frame::{BaseEnvironment, ProcessSpec};
use ringwall_jail::plan::Command;
use ringwall_policy::Grant;

use super::process::ProcessOptions;
use crate::box_layout::TERMINAL;
use crate::c_string::{c_string, literal};
use crate::error::Error;
use crate::host::python::{ASKED, INSTALLED, Python};
use crate::plan::lower;
use crate::sources::Sources;

/// The source of the default variables and of Python for the commands of a box.
#[derive(Debug)]
pub(crate) enum ProcessDefaults {
    /// A root that we made: its home directory, and its path on the host.
    OwnRoot { home: &'static str, root: PathBuf },
    /// A Docker image, with whose variables the agent was started.
    DockerImage,
}

impl ProcessDefaults {
    /// For a box whose root we made.
    pub(crate) fn of(sources: &Sources) -> Self {
        let root = sources.image.as_ref().map_or(PathBuf::from("/"), |image| image.as_path().to_owned());
        ProcessDefaults::OwnRoot { home: lower::home(sources), root }
    }

    pub(crate) fn process_spec(&self, grant: &Grant, options: ProcessOptions) -> Result<ProcessSpec, Error> {
        let ProcessOptions { terminal, channel, stdin } = options;
        let on_terminal = terminal.is_some();
        let (command, base, fallback) = match self {
            ProcessDefaults::OwnRoot { home, root } => {
                let python = Python::choose(grant, root);
                (lower::command(grant, home, python, on_terminal)?, BaseEnvironment::Empty, None)
            }
            ProcessDefaults::DockerImage => {
                let is_python = grant.argv().first().is_some_and(|name| name == ASKED);
                (in_image(grant, on_terminal)?, BaseEnvironment::Agent, is_python.then(|| literal(INSTALLED)))
            }
        };
        Ok(ProcessSpec { command, base, fallback, terminal, channel, stdin })
    }
}

/// Only the grant's variables; the agent adds those of the image.
fn in_image(grant: &Grant, on_terminal: bool) -> Result<Command, Error> {
    let terminal = on_terminal.then_some((TERMINAL.0, TERMINAL.1.as_bytes()));
    let granted = grant.env().iter().map(|(key, value)| (key.as_str(), value.expose().as_bytes()));
    let entry = |(key, value): (&str, &[u8])| c_string("the environment", &[key.as_bytes(), b"=", value].concat());
    let argv = grant.argv().iter().map(|word| c_string("an argument", word.as_bytes()));
    Ok(Command {
        argv: argv.collect::<Result<_, _>>()?,
        environment: terminal.into_iter().chain(granted).map(entry).collect::<Result<Vec<CString>, _>>()?,
        search: Vec::new(),
        directory: c_string("the directory", grant.cwd().as_os_str().as_bytes())?,
    })
}
