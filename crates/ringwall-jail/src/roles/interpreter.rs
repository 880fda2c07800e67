//! An interpreter that is started before its code is known, in a box that is made ahead.
//!
//! It is born like any command, with every restriction but one: which files it may reach is not known yet. Until it is
//! told, it runs a text of ours and nothing else. First it is told to restrict itself by rules that it was born with and
//! that PID 1 has completed meanwhile; only when it says that they are in force does it get its order, and the order is
//! the last thing that it is ever told: descriptors 3 and 4 are closed before any of a tenant's code runs.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};
use rustix::process::Pid;

use crate::protocol::plan::{Order, Plan};
use crate::protocol::report::{Failure, Report, Step};
use crate::protocol::wire;
use crate::roles::{
    command,
    command::{FIRST_OTHER, Streams},
};
use crate::setup::identity;
use crate::setup::restrict::Rules;
use crate::sys::{self, BpfInstruction};

/// Its end of our conversation, and the rules that it will restrict itself by.
const TALK: i32 = 3;
const RULES: i32 = 4;
/// Out of the way of these numbers.
const ASIDE: i32 = 64;

/// What it says when it is ready, and when it is restricted.
const READY: u8 = b'r';
const RESTRICTED: u8 = b'y';
/// What it is told: to restrict itself, or that this kernel has no Landlock to do it by.
const RESTRICT: u8 = b'l';
const NO_LANDLOCK: u8 = b'n';

const NOT_STARTED: i32 = 127;

pub(crate) struct Interpreter {
    pub(crate) process: Pid,
    talk: OwnedFd,
    landlock: bool,
}

impl Interpreter {
    /// Starts it, and waits until it is ready.
    pub(crate) fn start(
        plan: &Plan,
        streams: &Streams,
        rules: &Rules,
        filter: &[BpfInstruction],
        control: &OwnedFd,
    ) -> std::result::Result<Self, Failure> {
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (talk, theirs) = pair.map_err(fail)?;
        let rules = rules.share()?;
        let mut child = || {
            let born = Born { plan, streams, talk: theirs.as_fd(), rules: rules.as_ref().map(AsFd::as_fd), filter };
            born.become_interpreter(control.as_fd());
        };
        let process = sys::start_sharing_memory(&mut child).map_err(fail)?;
        drop(theirs);
        let interpreter = Interpreter { process, talk, landlock: rules.is_some() };
        interpreter.hear(READY, control)?;
        Ok(interpreter)
    }

    /// Its rules are complete. It restricts itself while we do the same.
    pub(crate) fn tell_to_restrict_itself(&self) -> std::result::Result<(), Failure> {
        let word = if self.landlock { RESTRICT } else { NO_LANDLOCK };
        write(&self.talk, &[word]).map_err(fail)
    }

    /// Waits until it is restricted. It ends by itself where it could not be.
    pub(crate) fn hear_that_it_is(&self, control: &OwnedFd) -> std::result::Result<(), Failure> {
        self.hear(RESTRICTED, control)
    }

    /// The last words to it. One that has died meanwhile is found dead soon.
    pub(crate) fn tell(self, order: &Order) {
        let _ = write(&self.talk, &order.0);
        let _ = rustix::net::shutdown(&self.talk, Shutdown::Write);
    }

    fn hear(&self, word: u8, control: &OwnedFd) -> std::result::Result<(), Failure> {
        let mut events = [
            PollFd::from_borrowed_fd(self.talk.as_fd(), PollFlags::IN),
            // Nothing is expected there, but it says when nobody is there any more.
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::empty()),
        ];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut events, None)).map_err(fail)?;
        if !events[1].revents().is_empty() {
            sys::exit_now(1);
        }
        let mut heard = [0];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.talk, &mut heard)).map_err(fail)? {
            1 if heard == [word] => Ok(()),
            _ => Err(Failure::plain(Step::StartCommand, "(the interpreter that waits for code ended)")),
        }
    }
}

fn fail(errno: Errno) -> Failure {
    Failure::new(Step::StartCommand, "(an interpreter that waits for code)", errno)
}

fn write(to: &OwnedFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(to, bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// What the new process has.
struct Born<'a> {
    plan: &'a Plan,
    streams: &'a Streams,
    talk: BorrowedFd<'a>,
    rules: Option<BorrowedFd<'a>>,
    filter: &'a [BpfInstruction],
}

impl Born<'_> {
    fn become_interpreter(&self, control: BorrowedFd<'_>) -> ! {
        // Number 3 may be this socket's.
        let Ok(control) = rustix::io::fcntl_dupfd_cloexec(control, ASIDE) else { sys::exit_now(NOT_STARTED) };
        match self.prepare() {
            Ok(()) => command::replace(&self.plan.command, control.as_fd()),
            Err(failure) => {
                let _ = wire::send(&control, &Report::Failed(failure), &[]);
                sys::exit_now(NOT_STARTED)
            }
        }
    }

    /// The same steps as those of PID 1 before it starts a command, and of that command.
    fn prepare(&self) -> std::result::Result<(), Failure> {
        rustix::process::setsid().map_err(fail)?;
        let Streams::Pipes(pipes) = self.streams else { return Err(fail(Errno::NOTTY)) };
        let aside = |descriptor: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(descriptor, ASIDE).map_err(fail);
        let (talk, rules) = (aside(self.talk)?, self.rules.map(aside).transpose()?);
        for (number, pipe) in pipes.iter().enumerate() {
            sys::place_descriptor(pipe.as_fd(), number as i32).map_err(fail)?;
        }
        sys::place_descriptor(talk.as_fd(), TALK).map_err(fail)?;
        let mut own = FIRST_OTHER + 1;
        if let Some(rules) = &rules {
            sys::place_descriptor(rules.as_fd(), RULES).map_err(fail)?;
            own += 1;
        }
        sys::close_descriptors_on_execute(own).map_err(fail)?;
        rustix::process::chdir(&self.plan.command.directory).map_err(fail)?;
        sys::set_signal_mask(false);
        sys::reset_personality();
        identity::drop_privileges()?;
        sys::install_filter(self.filter).map_err(|errno| Failure::new(Step::FilterCalls, "", errno))?;
        identity::verify(&self.plan.identity)
    }
}
