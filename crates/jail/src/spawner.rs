//! The jail's entry: the spawner, which copies itself for every box, or the warden of one box alone.
//!
//! Starting a program costs most of a millisecond (in a virtual machine the C library's first look at the
//! processor alone takes half of one); copying a small process that has just started costs a tenth, and is done
//! ahead. The spawner never sees a plan and never holds anything of a box: its copies wait for requests themselves,
//! and the one that takes a request becomes the warden. When the socket closes it makes no more, waits for the
//! wardens to end, and ends.

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::WaitOptions;

use crate::report::{Failure, Step};
use crate::sys::{self, BpfInstruction, Fork};
use crate::warden::{self, Birth};
use crate::{seccomp, wire};

/// A message to the spawner; with it comes the socket of the new warden.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub enum Request {
    Box(Birth),
}

const BAD_INPUT: u8 = 2;
/// Copies that wait: one for the next request, one for the request after it.
const SPARES: usize = 2;
const TAKEN: u8 = b't';
const REFUSED: u8 = b'r';

/// The jail's entry point, for the process that the executor starts.
pub fn main() -> ExitCode {
    let _ = rustix::thread::set_name(c"ringwall-jail");
    // Out of the caller's process group: a Ctrl-C at the caller's terminal is the executor's to handle.
    let _ = rustix::process::setsid();
    sys::close_inherited_descriptors();
    // A caller that ignores its children's ends must not make us deaf to ours.
    sys::reap_children_automatically(false);
    give_up_oom_protection();
    let inherited = sys::take_control_descriptor();
    let Ok(requests) = rustix::io::fcntl_dupfd_cloexec(&inherited, 3) else { return ExitCode::FAILURE };
    // Descriptor 0 stays occupied, so that nothing received later lands where a command's streams will go; but not
    // by the socket, of which a box must hold no copy.
    match rustix::fs::open(c"/dev/null", OFlags::RDONLY, Mode::empty()) {
        Ok(null) if sys::place_descriptor(null.as_fd(), 0).is_ok() => std::mem::forget(inherited),
        _ => return ExitCode::FAILURE,
    }
    if let Err(errno) = rustix::net::sockopt::socket_type(&requests) {
        return complain(errno);
    }
    if let Some(birth) = std::env::args_os().nth(1).and_then(|word| Birth::from_word(&word)) {
        // For one box alone no copy is needed: this process is its warden.
        return ExitCode::from(warden::main(&requests, birth, &seccomp::program()));
    }
    sys::reap_children_automatically(true);
    match pipe_with(PipeFlags::CLOEXEC) {
        Ok((news, tell)) => {
            serve(requests, &news, tell);
            wait_for_wardens(&news)
        }
        Err(errno) => complain(errno),
    }
}

/// A server may be spared by the kernel when memory runs out; its boxes must not be.
fn give_up_oom_protection() {
    let mut value = [0; 16];
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::open(c"/proc/self/oom_score_adj", flags, Mode::empty())
        && let Ok(count) = rustix::io::read(&file, &mut value)
        && value[..count].starts_with(b"-")
    {
        let _ = rustix::io::pwrite(&file, b"0", 0);
    }
}

/// Keeps spare copies waiting for requests, so that a request does not wait for a copy. A spare that takes one
/// says so, and another is made while it works. Returns when there is nothing more to serve.
fn serve(requests: OwnedFd, news: &OwnedFd, tell: OwnedFd) {
    // The same for every box, so it is made before there is one.
    let filter = seccomp::program();
    for _ in 0..SPARES {
        if make_spare(&requests, &tell, &filter).is_err() {
            return;
        }
    }
    loop {
        let mut events = [
            PollFd::from_borrowed_fd(news.as_fd(), PollFlags::IN),
            // Only whether it is closed; the spares read it.
            PollFd::from_borrowed_fd(requests.as_fd(), PollFlags::empty()),
        ];
        let _ = rustix::event::poll(&mut events, None);
        if events[1].revents().contains(PollFlags::HUP) {
            return;
        }
        if events[0].revents().contains(PollFlags::IN) {
            // Without a spare nobody would answer: when all are gone, the executor starts another of us.
            let mut word = [0];
            match rustix::io::read(news, &mut word) {
                Ok(1) if word == [TAKEN] && make_spare(&requests, &tell, &filter).is_ok() => {}
                // Put back, for the exit code at the end.
                Ok(1) if word == [REFUSED] => {
                    let _ = rustix::io::write(&tell, &word);
                    return;
                }
                _ => return,
            }
        }
    }
}

/// Every warden ends with its own box; nobody else is there to wait for them.
fn wait_for_wardens(news: &OwnedFd) -> ExitCode {
    while rustix::process::wait(WaitOptions::empty()).is_ok() {}
    let mut words = [0; 64];
    match rustix::io::read(news, &mut words) {
        Ok(count) if words[..count].contains(&REFUSED) => ExitCode::from(BAD_INPUT),
        _ => ExitCode::SUCCESS,
    }
}

/// A copy that waits for one request and becomes the warden of that box.
fn make_spare(requests: &OwnedFd, tell: &OwnedFd, filter: &[BpfInstruction]) -> rustix::io::Result<()> {
    match sys::fork()? {
        Fork::Child => sys::exit_now(i32::from(wait_and_serve(requests, tell, filter))),
        Fork::Parent(_) => Ok(()),
    }
}

fn wait_and_serve(requests: &OwnedFd, tell: &OwnedFd, filter: &[BpfInstruction]) -> u8 {
    match wire::receive::<Request>(requests) {
        Ok(Some((Request::Box(birth), descriptors))) => {
            let _ = rustix::io::write(tell, &[TAKEN]);
            // Nothing of the spawner's may be in a box, not even in its PID 1.
            if sys::replace_by_null(&[requests.as_fd(), tell.as_fd()]).is_err() {
                return 1;
            }
            sys::reap_children_automatically(false);
            descriptors.first().map_or(1, |control| warden::main(control, birth, filter))
        }
        Ok(None) => 0,
        Err(errno) => {
            complain(errno);
            let _ = rustix::io::write(tell, &[REFUSED]);
            BAD_INPUT
        }
    }
}

/// Somebody started this process by hand, or sent it something else than a request.
fn complain(errno: Errno) -> ExitCode {
    let failure = Failure::new(Step::ReadPlan, "", errno);
    let text = format!("ringwall: {failure}\n  hint: ringwall starts this process itself; it is not for use by hand\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), text.as_bytes());
    ExitCode::from(BAD_INPUT)
}
