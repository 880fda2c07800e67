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

use crate::protocol::plan::{InterpreterInput, Plan};
use crate::protocol::report::{Failure, Report, Step};
use crate::protocol::wire;
use crate::roles::{
    command,
    command::{FIRST_EXTRA_FD, Streams},
};
use crate::setup::identity;
use crate::setup::restrict::FileRules;
use crate::sys::{self, BpfInstruction};

/// Its end of the conversation with PID 1, and the Landlock ruleset.
const SOCKET_FD: i32 = 3;
const RULESET_FD: i32 = 4;
/// Descriptors are moved above this number before 0 to 4 are assigned.
const FIRST_FREE_FD: i32 = 64;

/// Bytes that the interpreter sends: started, and restricted.
const READY: u8 = b'r';
const RESTRICTED: u8 = b'y';
/// Bytes that it receives: apply the ruleset, or continue without Landlock.
const RESTRICT: u8 = b'l';
const NO_LANDLOCK: u8 = b'n';

const NOT_STARTED: i32 = 127;

pub(crate) struct Interpreter {
    pub(crate) process: Pid,
    socket: OwnedFd,
    landlock: bool,
}

impl Interpreter {
    /// Starts the interpreter and waits until it is ready.
    pub(crate) fn start(
        plan: &Plan,
        streams: &Streams,
        rules: &FileRules,
        filter: &[BpfInstruction],
        control: &OwnedFd,
    ) -> std::result::Result<Self, Failure> {
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let (socket, theirs) = pair.map_err(fail)?;
        let rules = rules.share()?;
        let mut child = || {
            let setup = Setup { plan, streams, socket: theirs.as_fd(), rules: rules.as_ref().map(AsFd::as_fd), filter };
            setup.become_interpreter(control.as_fd());
        };
        let process = sys::start_vfork(&mut child).map_err(fail)?;
        drop(theirs);
        let interpreter = Interpreter { process, socket, landlock: rules.is_some() };
        interpreter.expect(READY, control)?;
        Ok(interpreter)
    }

    /// Called when the ruleset is complete. The interpreter restricts itself while PID 1 does the
    /// same.
    pub(crate) fn request_restriction(&self) -> std::result::Result<(), Failure> {
        let message = if self.landlock { RESTRICT } else { NO_LANDLOCK };
        write(&self.socket, &[message]).map_err(fail)
    }

    /// Waits for the confirmation. The interpreter exits if it cannot restrict itself.
    pub(crate) fn expect_restriction(&self, control: &OwnedFd) -> std::result::Result<(), Failure> {
        self.expect(RESTRICTED, control)
    }

    /// Sends the code and closes the sending direction. A write error means that the interpreter
    /// has ended, which PID 1 sees when it reaps.
    pub(crate) fn send_input(self, input: &InterpreterInput) {
        let _ = write(&self.socket, &input.0);
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
    }

    fn expect(&self, expected: u8, control: &OwnedFd) -> std::result::Result<(), Failure> {
        let mut events = [
            PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN),
            // No message is expected there; a hang-up means that the executor is gone.
            PollFd::from_borrowed_fd(control.as_fd(), PollFlags::empty()),
        ];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut events, None)).map_err(fail)?;
        if !events[1].revents().is_empty() {
            sys::exit_now(1);
        }
        let mut received = [0];
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.socket, &mut received)).map_err(fail)? {
            1 if received == [expected] => Ok(()),
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
struct Setup<'a> {
    plan: &'a Plan,
    streams: &'a Streams,
    socket: BorrowedFd<'a>,
    rules: Option<BorrowedFd<'a>>,
    filter: &'a [BpfInstruction],
}

impl Setup<'_> {
    fn become_interpreter(&self, control: BorrowedFd<'_>) -> ! {
        // The control socket may have one of the numbers that are assigned next.
        let Ok(control) = rustix::io::fcntl_dupfd_cloexec(control, FIRST_FREE_FD) else { sys::exit_now(NOT_STARTED) };
        match self.prepare() {
            Ok(()) => command::execute_program(&self.plan.command, control.as_fd()),
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
        let move_up =
            |descriptor: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(descriptor, FIRST_FREE_FD).map_err(fail);
        let (socket, rules) = (move_up(self.socket)?, self.rules.map(move_up).transpose()?);
        for (number, pipe) in pipes.iter().enumerate() {
            sys::dup_to(pipe.as_fd(), number as i32).map_err(fail)?;
        }
        sys::dup_to(socket.as_fd(), SOCKET_FD).map_err(fail)?;
        let mut next = FIRST_EXTRA_FD + 1;
        if let Some(rules) = &rules {
            sys::dup_to(rules.as_fd(), RULESET_FD).map_err(fail)?;
            next += 1;
        }
        sys::close_descriptors_on_execute(next).map_err(fail)?;
        rustix::process::chdir(&self.plan.command.directory).map_err(fail)?;
        sys::set_signal_mask(false);
        sys::reset_personality();
        identity::drop_privileges()?;
        sys::install_filter(self.filter).map_err(|errno| Failure::new(Step::FilterCalls, "", errno))?;
        identity::verify(&self.plan.identity)
    }
}
