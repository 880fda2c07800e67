//! Entrypoint shim of a container with network access: creates the proxy socket inside the
//! container, sends it to the server, and executes the command.
//!
//! PID 1 of a native box creates this socket itself. The network namespace of a container is made
//! by its runtime, and a socket in it can only be created inside. So the shim runs there instead of
//! the command. The server's Unix socket is mounted into this one container and accepts one
//! connection. If the proxy socket cannot be sent, the command does not run.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;

use rustix::io::Result;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::protocol::plan::Command;
use crate::protocol::report::Report;
use crate::{protocol::wire, roles::command, setup::network, sys};

/// Path of the server's socket inside a container with network access.
pub const PROXY_SOCKET_PATH: &str = "/run/ringwall/way-out";

/// Arguments: the port of the proxy socket, then the command. Returns only on failure.
pub(crate) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let port = arguments.next().and_then(|argument| argument.to_str()?.parse().ok());
    let argv: Vec<CString> = arguments.filter_map(|argument| CString::new(argument.into_vec()).ok()).collect();
    let (Some(port), false) = (port, argv.is_empty()) else { return fail("a port and a command are required") };
    let control = match connect() {
        Ok(control) => control,
        Err(errno) => return fail(&format!("cannot connect to the server's socket {PROXY_SOCKET_PATH}: {errno}")),
    };
    if let Err(failure) = network::open_proxy_socket(port, &control) {
        let reason = failure.to_string();
        let _ = wire::send(&control, &Report::Failed(failure), &[]);
        return fail(&reason);
    }
    sys::reset_signals();
    // The server sees the socket close when the command starts (close on exec).
    command::execute_program(&into_command(argv), control.as_fd())
}

fn connect() -> Result<OwnedFd> {
    let control = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(PROXY_SOCKET_PATH)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&control, &address))?;
    Ok(control)
}

/// The command inherits environment, search path and working directory of this process.
fn into_command(argv: Vec<CString>) -> Command {
    let entry = |(key, value): (OsString, OsString)| CString::new([key.as_bytes(), b"=", value.as_bytes()].concat());
    let search = std::env::var_os("PATH").unwrap_or_default();
    let directories = search.as_bytes().split(|byte| *byte == b':').filter(|directory| !directory.is_empty());
    Command {
        argv,
        environment: std::env::vars_os().filter_map(|variable| entry(variable).ok()).collect(),
        search: directories.filter_map(|directory| CString::new(directory).ok()).collect(),
        directory: c".".into(),
    }
}

fn fail(reason: &str) -> ExitCode {
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("ringwall: no network access: {reason}\n").as_bytes());
    ExitCode::FAILURE
}
