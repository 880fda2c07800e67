//! The porter of a container: it makes the way out where the box is, hands it to the server, and becomes the command.
//!
//! Who makes a box with a network namespace of ours is its PID 1; a container's namespace is made by others, and only
//! somebody inside can open a socket in it. So this program is started there in the command's place, before anything else
//! runs. The server's socket is shown to this one container, answers once, and is gone when the command begins: what the
//! command finds there leads nowhere. A porter who cannot hand the way out over never becomes the command.

use std::ffi::{CString, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::ExitCode;

use rustix::io::Result;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::protocol::plan::Command;
use crate::protocol::report::Report;
use crate::{protocol::wire, roles::command, setup::network, sys};

/// Where the server's socket is in a container that has a way out.
pub const WAY_OUT: &str = "/run/ringwall/way-out";

/// Started with the port of the way out, and then the command's own words. Comes back only when something failed.
pub(crate) fn main(mut words: impl Iterator<Item = OsString>) -> ExitCode {
    let port = words.next().and_then(|word| word.to_str()?.parse().ok());
    let argv: Vec<CString> = words.filter_map(|word| CString::new(word.into_vec()).ok()).collect();
    let (Some(port), false) = (port, argv.is_empty()) else { return complain("a port and a command are needed") };
    let control = match reach_server() {
        Ok(control) => control,
        Err(errno) => return complain(&format!("the server's socket cannot be reached from this container: {errno}")),
    };
    if let Err(failure) = network::open_way_out(port, &control) {
        let words = failure.to_string();
        let _ = wire::send(&control, &Report::Failed(failure), &[]);
        return complain(&words);
    }
    sys::reset_signals();
    // The socket closes as the command begins, which tells the server that it has.
    command::replace(&into_command(argv), control.as_fd())
}

fn reach_server() -> Result<OwnedFd> {
    let control = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(WAY_OUT)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&control, &address))?;
    Ok(control)
}

/// With what this process was started with, where it is.
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

fn complain(words: &str) -> ExitCode {
    let _ = rustix::io::write(rustix::stdio::stderr(), format!("ringwall: no way out: {words}\n").as_bytes());
    ExitCode::FAILURE
}
