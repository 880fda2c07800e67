//! A Python interpreter that is started in a warm box before its code is known.
//!
//! It starts like a command, with all restrictions except the Landlock rules on files, which depend
//! on the command. Until then it runs our own script (`runner.py` in the executor). When PID 1 has
//! completed the ruleset, the interpreter restricts itself by it and confirms; only then does it
//! get the code. It closes descriptors 3 and 4 before it runs the code.

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

/// Its end of the conversation with PID 1, and the Landlock ruleset.
const TALK: i32 = 3;
const RULES: i32 = 4;
/// Descriptors are moved above this number before 0 to 4 are assigned.
const ASIDE: i32 = 64;

/// Bytes that the interpreter sends: started, and restricted.
const READY: u8 = b'r';
const RESTRICTED: u8 = b'y';
/// Bytes that it receives: apply the ruleset, or continue without Landlock.
const RESTRICT: u8 = b'l';
const NO_LANDLOCK: u8 = b'n';

const NOT_STARTED: i32 = 127;

pub(crate) struct Interpreter {
    pub(crate) process: Pid,
    talk: OwnedFd,
    landlock: bool,
}

impl Interpreter {
    /// Starts the interpreter and waits until it is ready.
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

    /// Called when the ruleset is complete. The interpreter restricts itself while PID 1 does the
    /// same.
    pub(crate) fn tell_to_restrict_itself(&self) -> std::result::Result<(), Failure> {
        let word = if self.landlock { RESTRICT } else { NO_LANDLOCK };
        write(&self.talk, &[word]).map_err(fail)
    }

    /// Waits for the confirmation. The interpreter exits if it cannot restrict itself.
    pub(crate) fn hear_that_it_is(&self, control: &OwnedFd) -> std::result::Result<(), Failure> {
        self.hear(RESTRICTED, control)
    }

    /// Sends the code and closes the sending direction. A write error means that the interpreter
    /// has ended, which PID 1 sees when it reaps.
    pub(crate) fn tell(self, order: &Order) {
        let _ = write(&self.talk, &order.0);
        let _ = rustix::net::shutdown(&self.talk, Shutdown::Write);
    }

    fn hear(&self, word: u8, control: &OwnedFd) -> std::result::Result<(), Failure> {
        let mut events = [
            PollFd::from_borrowed_fd(self.talk.as_fd(), PollFlags::IN),
            // No message is expected there; a hang-up means that the executor is gone.
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::empty()),
        ];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut events, None)).map_err(fail)?;
        if !events[1].revents().is_empty() {
            sys::exit_now(1);
        }
        let mut heard = [0];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.talk, &mut heard)).map_err(fail)? {
            1 if heard == [word] => Ok(()),
            _ => Err(Failure::plain(Step::StartCommand, "(the interpreter of the warm box ended)")),
        }
    }
}

fn fail(errno: Errno) -> Failure {
    Failure::new(Step::StartCommand, "(the interpreter of the warm box)", errno)
}

fn write(to: &OwnedFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let written = rustix::io::retry_on_intr(|| rustix::io::write(to, bytes))?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// What the new process needs to become the interpreter.
struct Born<'a> {
    plan: &'a Plan,
    streams: &'a Streams,
    talk: BorrowedFd<'a>,
    rules: Option<BorrowedFd<'a>>,
    filter: &'a [BpfInstruction],
}

impl Born<'_> {
    fn become_interpreter(&self, control: BorrowedFd<'_>) -> ! {
        // The control socket may have one of the numbers that are assigned next.
        let Ok(control) = rustix::io::fcntl_dupfd_cloexec(control, ASIDE) else { sys::exit_now(NOT_STARTED) };
        match self.prepare() {
            Ok(()) => command::replace(&self.plan.command, control.as_fd()),
            Err(failure) => {
                let _ = wire::send(&control, &Report::Failed(failure), &[]);
                sys::exit_now(NOT_STARTED)
            }
        }
    }

    /// The steps of PID 1 before a command, and those of the command, except the Landlock rules.
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
