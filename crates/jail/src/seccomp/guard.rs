//! Calls whose arguments decide: for each kind of argument the few instructions that judge it.
//!
//! A guard sees registers, never memory: what lies behind a pointer can change after the check. Arguments
//! are compared as the 32 bits that the kernel itself uses, so bits set above them neither help nor hurt.
//! The exception is a pointer, which is null only when all its 64 bits are zero.

use super::assemble::{
    ALLOW, DENY, Instruction, PRETEND, and, jump_any_bit, jump_equal, load_argument,
    load_argument_high, ret,
};

const SET_ID_BITS: u32 = 0o6000;
/// O_CREAT, and the bit that makes O_TMPFILE out of O_DIRECTORY: the two ways in which open(2) uses its mode.
const CREATING: u32 = 0o100 | 0o20_000_000;
/// CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const NAMESPACES: u32 =
    0x80 | 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;
const FILE_TYPE: u32 = 0o170_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;
/// TIOCSTI and TIOCLINUX type for the user, TIOCCONS takes the console, TIOCSETD loads a line discipline.
const TERMINAL_REQUESTS: [u32; 4] = [0x5412, 0x541C, 0x541D, 0x5423];
const UNIX: u32 = 1;
const INET: u32 = 2;
const INET6: u32 = 10;
const NETLINK: u32 = 16;
const NETLINK_ROUTE: u32 = 0;
const RLIMIT_CORE: u32 = 4;
/// Plain Linux, the 32-bit machine name, the old version number, both, and "only ask".
const PERSONALITIES: [u32; 5] = [0, 0x0008, 0x0002_0000, 0x0002_0008, 0xFFFF_FFFF];

/// Which argument decides, and how. The numbers are argument positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    OpenMode {
        flags: u8,
        mode: u8,
    },
    FileMode {
        mode: u8,
    },
    NodeMode {
        mode: u8,
    },
    CloneFlags,
    TerminalRequests,
    SocketFamily,
    UnixOnly,
    NotUnix,
    Personality,
    /// `setrlimit`: a new core size limit is ignored.
    OwnLimit,
    /// `prlimit64`: only the caller's own limits, written as process 0, and a new core size limit is ignored.
    ProcessLimit,
}

impl Guard {
    /// The instructions, each way through them ending in a verdict.
    pub(super) fn instructions(self) -> Vec<Instruction> {
        match self {
            Guard::OpenMode { flags, mode } => vec![
                load_argument(flags),
                jump_any_bit(CREATING, 1, 0),
                ret(ALLOW),
                load_argument(mode),
                jump_any_bit(SET_ID_BITS, 1, 0),
                ret(ALLOW),
                ret(DENY),
            ],
            Guard::FileMode { mode } => {
                vec![load_argument(mode), jump_any_bit(SET_ID_BITS, 1, 0), ret(ALLOW), ret(DENY)]
            }
            Guard::NodeMode { mode } => vec![
                load_argument(mode),
                jump_any_bit(SET_ID_BITS, 4, 0),
                and(FILE_TYPE),
                jump_equal(CHARACTER_DEVICE, 2, 0),
                jump_equal(BLOCK_DEVICE, 1, 0),
                ret(ALLOW),
                ret(DENY),
            ],
            Guard::CloneFlags => vec![load_argument(0), jump_any_bit(NAMESPACES, 1, 0), ret(ALLOW), ret(DENY)],
            Guard::TerminalRequests => one_of(1, &TERMINAL_REQUESTS, DENY, ALLOW),
            Guard::SocketFamily => vec![
                load_argument(0),
                jump_equal(UNIX, 5, 0),
                jump_equal(INET, 4, 0),
                jump_equal(INET6, 3, 0),
                jump_equal(NETLINK, 0, 3),
                load_argument(2),
                jump_equal(NETLINK_ROUTE, 0, 1),
                ret(ALLOW),
                ret(DENY),
            ],
            Guard::UnixOnly => one_of(0, &[UNIX], ALLOW, DENY),
            Guard::NotUnix => one_of(0, &[UNIX], DENY, ALLOW),
            Guard::Personality => one_of(0, &PERSONALITIES, ALLOW, DENY),
            Guard::OwnLimit => one_of(0, &[RLIMIT_CORE], PRETEND, ALLOW),
            Guard::ProcessLimit => process_limit(),
        }
    }
}

/// A core size of 0 would make the kernel start a piped core handler, which runs outside the box; the box's limit of 1
/// prevents that. The call succeeds without effect, because programs that keep secrets in memory set the limit to 0 and
/// refuse to run where that fails. With somewhere to store the old limit it fails: nothing would be stored.
fn process_limit() -> Vec<Instruction> {
    vec![
        load_argument(0),
        jump_equal(0, 0, 11),
        load_argument(1),
        jump_equal(RLIMIT_CORE, 0, 4),
        load_argument(2),
        jump_equal(0, 0, 3),
        load_argument_high(2),
        jump_equal(0, 0, 1),
        ret(ALLOW),
        load_argument(3),
        jump_equal(0, 0, 2),
        load_argument_high(3),
        jump_equal(0, 1, 0),
        ret(DENY),
        ret(PRETEND),
    ]
}

/// `listed` when the argument is one of `values`, otherwise `other`.
fn one_of(argument: u8, values: &[u32], listed: u32, other: u32) -> Vec<Instruction> {
    let mut program = vec![load_argument(argument)];
    for (index, value) in values.iter().enumerate() {
        let to_listed = (values.len() - index) as u8;
        program.push(jump_equal(*value, to_listed, 0));
    }
    program.extend([ret(other), ret(listed)]);
    program
}
