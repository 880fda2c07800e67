//! The jail's entry: the spawner, which copies itself for every box, or the warden of one box alone.
//!
//! Starting a program costs most of a millisecond (in a virtual machine the C library's first look at the
//! processor alone takes half of one); copying a small process that has just started costs a tenth. The spawner
//! never sees a plan and never holds anything of a box: it takes one descriptor from its socket and hands it to a
//! copy of itself, which becomes the warden. When its socket closes it makes no more boxes, waits for
//! the wardens to end, and ends.

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use rustix::process::WaitOptions;

use crate::report::{Failure, Step};
use crate::sys::{self, Fork};
use crate::warden::{self, Birth};
use crate::{seccomp, wire};

/// A message to the spawner; with it comes the socket of the new warden.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum Request {
    Box(Birth),
}

const BAD_INPUT: u8 = 2;

/// The jail's entry point, for the process that the executor starts.
pub fn main() -> ExitCode {
    let _ = rustix::thread::set_name(c"ringwall-jail");
    // Out of the caller's process group: a Ctrl-C at the caller's terminal is the executor's to handle.
    let _ = rustix::process::setsid();
    let inherited = sys::take_control_descriptor();
    let Ok(requests) = rustix::io::fcntl_dupfd_cloexec(&inherited, 3) else { return ExitCode::FAILURE };
    // Descriptor 0 stays occupied, so that nothing received later lands where a command's streams will go; but not
    // by the socket, of which a box must hold no copy.
    match rustix::fs::open(c"/dev/null", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()) {
        Ok(null) if sys::place_descriptor(std::os::fd::AsFd::as_fd(&null), 0).is_ok() => std::mem::forget(inherited),
        _ => return ExitCode::FAILURE,
    }
    if let Some(birth) = std::env::args_os().nth(1).and_then(|word| Birth::from_word(&word)) {
        // For one box alone no copy is needed: this process is its warden.
        return ExitCode::from(warden::main(&requests, birth, &seccomp::program()));
    }
    sys::reap_children_automatically(true);
    let code = serve(requests);
    // Every warden ends with its own box; nobody else is there to wait for them.
    while rustix::process::wait(WaitOptions::empty()).is_ok() {}
    code
}

fn serve(requests: OwnedFd) -> ExitCode {
    // The same for every box, so it is made before there is one.
    let filter = seccomp::program();
    loop {
        match wire::receive::<Request>(&requests) {
            Ok(Some((Request::Box(birth), descriptors))) => match sys::fork() {
                Ok(Fork::Child) => {
                    drop(requests);
                    sys::reap_children_automatically(false);
                    let code = descriptors.first().map_or(1, |control| warden::main(control, birth, &filter));
                    sys::exit_now(i32::from(code));
                }
                // The warden's socket closes with this copy of it, which is how the executor learns of a failure.
                Ok(Fork::Parent(_)) | Err(_) => drop(descriptors),
            },
            Ok(None) => return ExitCode::SUCCESS,
            Err(errno) => {
                let failure = Failure::new(Step::ReadPlan, "", errno);
                let text = format!(
                    "ringwall: {failure}\n  hint: ringwall starts this process itself; it is not for use by hand\n"
                );
                let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
                return ExitCode::from(BAD_INPUT);
            }
        }
    }
}
