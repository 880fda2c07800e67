//! Filter code for calls whose arguments decide.
//!
//! A filter sees registers, never memory, and memory behind a pointer could change after the check.
//! Arguments are compared as the 32 bits that the kernel uses; higher bits are ignored. Pointers
//! are the exception: they are null only if all 64 bits are zero.

use super::assemble::{
    ALLOW, DENY, Instruction, PRETEND, UNSUPPORTED, and, jump, jump_any_bit, jump_equal, load_argument,
    load_argument_high, ret,
};

const SET_ID_BITS: u32 = 0o6000;
/// O_CREAT and __O_TMPFILE, the two flags with which open(2) uses its mode argument.
const CREATING: u32 = 0o100 | 0o20_000_000;
/// CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const NAMESPACES: u32 =
    0x80 | 0x0002_0000 | 0x0200_0000 | 0x0400_0000 | 0x0800_0000 | 0x1000_0000 | 0x2000_0000 | 0x4000_0000;
const FILE_TYPE: u32 = 0o170_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;
/// TIOCSTI and TIOCLINUX inject input, TIOCCONS takes the console, TIOCSETD loads a line
/// discipline.
const TERMINAL_REQUESTS: [u32; 4] = [0x5412, 0x541C, 0x541D, 0x5423];
const UNIX: u32 = 1;
const INET: u32 = 2;
const INET6: u32 = 10;
const NETLINK: u32 = 16;
const NETLINK_ROUTE: u32 = 0;
/// SOCK_NONBLOCK and SOCK_CLOEXEC, which callers combine with the socket type.
const SOCKET_FLAGS: u32 = 0o4000 | 0o2_000_000;
const STREAM: u32 = 1;
const DATAGRAM: u32 = 2;
/// The default of the socket type: TCP for streams, UDP for datagrams.
const ANY_PROTOCOL: u32 = 0;
const ICMP: u32 = 1;
const TCP: u32 = 6;
const UDP: u32 = 17;
const ICMPV6: u32 = 58;
const SOL_SOCKET: u32 = 1;
/// SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and SO_ATTACH_REUSEPORT_EBPF.
const ATTACH_PROGRAM: [u32; 4] = [26, 50, 51, 52];
const SOL_TCP: u32 = 6;
const TCP_ULP: u32 = 31;
const PR_SET_SECCOMP: u32 = 22;
const RLIMIT_CORE: u32 = 4;
/// PER_LINUX, PER_LINUX32, UNAME26, PER_LINUX32 with UNAME26, and "query only".
const PERSONALITIES: [u32; 5] = [0, 0x0008, 0x0002_0000, 0x0002_0008, 0xFFFF_FFFF];

/// Which argument is checked, and how. Fields are argument positions.
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
    /// Family, type and protocol together.
    Socket,
    /// No BPF program on a socket, and no upper layer protocol on TCP.
    SocketOption,
    UnixOnly,
    NotUnix,
    Personality,
    /// No further filter by `prctl`.
    ProcessOption,
    /// `setrlimit`: a new core size limit is ignored.
    OwnLimit,
    /// `prlimit64`: only the caller's own limits, addressed as process 0; a new core size limit is
    /// ignored.
    ProcessLimit,
}

impl Guard {
    /// Every path through the instructions ends in a return.
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
            Guard::Socket => socket(),
            Guard::SocketOption => vec![
                load_argument(1),
                jump_equal(SOL_TCP, 6, 0),
                jump_equal(SOL_SOCKET, 0, 7),
                load_argument(2),
                jump_equal(ATTACH_PROGRAM[0], 6, 0),
                jump_equal(ATTACH_PROGRAM[1], 5, 0),
                jump_equal(ATTACH_PROGRAM[2], 4, 0),
                jump_equal(ATTACH_PROGRAM[3], 3, 2),
                load_argument(2),
                jump_equal(TCP_ULP, 1, 0),
                ret(ALLOW),
                ret(DENY),
            ],
            Guard::UnixOnly => one_of(0, &[UNIX], ALLOW, DENY),
            Guard::NotUnix => one_of(0, &[UNIX], DENY, ALLOW),
            Guard::Personality => one_of(0, &PERSONALITIES, ALLOW, DENY),
            Guard::ProcessOption => one_of(0, &[PR_SET_SECCOMP], UNSUPPORTED, ALLOW),
            Guard::OwnLimit => one_of(0, &[RLIMIT_CORE], PRETEND, ALLOW),
            Guard::ProcessLimit => process_limit(),
        }
    }
}

/// Allows Unix and routing netlink sockets of any type. Allows IPv4 and IPv6 only with TCP, UDP and
/// ICMP echo: for any other protocol (SCTP, DCCP, L2TP, SMC, UDP-Lite) the kernel loads a module
/// when an unprivileged process creates a socket.
fn socket() -> Vec<Instruction> {
    const IPV4: u8 = 10;
    const BY_PROTOCOL: u8 = 12;
    const EITHER_TYPE: u8 = 15;
    const ONLY_DATAGRAM: u8 = 18;
    const ONLY_STREAM: u8 = 21;
    const DENIED: u8 = 24;
    const ALLOWED: u8 = 25;
    // Jump distance from one position to another.
    let to = |position: u8, target: u8| target - position - 1;
    vec![
        load_argument(0),
        jump_equal(UNIX, to(1, ALLOWED), 0),
        jump_equal(NETLINK, 0, to(2, 5)),
        load_argument(2),
        jump_equal(NETLINK_ROUTE, to(4, ALLOWED), to(4, DENIED)),
        jump_equal(INET, to(5, IPV4), 0),
        jump_equal(INET6, 0, to(6, DENIED)),
        load_argument(2),
        jump_equal(ICMPV6, to(8, ONLY_DATAGRAM), 0),
        jump(u32::from(to(9, BY_PROTOCOL))),
        // IPV4
        load_argument(2),
        jump_equal(ICMP, to(11, ONLY_DATAGRAM), 0),
        // BY_PROTOCOL
        jump_equal(ANY_PROTOCOL, to(12, EITHER_TYPE), 0),
        jump_equal(TCP, to(13, ONLY_STREAM), 0),
        jump_equal(UDP, to(14, ONLY_DATAGRAM), to(14, DENIED)),
        // EITHER_TYPE
        load_argument(1),
        and(!SOCKET_FLAGS),
        jump_equal(STREAM, to(17, ALLOWED), to(17, 20)),
        // ONLY_DATAGRAM
        load_argument(1),
        and(!SOCKET_FLAGS),
        jump_equal(DATAGRAM, to(20, ALLOWED), to(20, DENIED)),
        // ONLY_STREAM
        load_argument(1),
        and(!SOCKET_FLAGS),
        jump_equal(STREAM, to(23, ALLOWED), to(23, DENIED)),
        ret(DENY),
        ret(ALLOW),
    ]
}

/// At a core size limit of 0 the kernel starts a piped core handler, which runs outside the box;
/// the box's limit of 1 prevents that. Setting it succeeds without effect, because programs with
/// secrets in memory set it to 0 and abort if that fails. It is denied if the caller also asks for
/// the old limit, which would not be stored.
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

/// Returns `listed` if the argument is one of `values`, otherwise `other`.
fn one_of(argument: u8, values: &[u32], listed: u32, other: u32) -> Vec<Instruction> {
    let mut program = vec![load_argument(argument)];
    for (index, value) in values.iter().enumerate() {
        let to_listed = (values.len() - index) as u8;
        program.push(jump_equal(*value, to_listed, 0));
    }
    program.extend([ret(other), ret(listed)]);
    program
}
