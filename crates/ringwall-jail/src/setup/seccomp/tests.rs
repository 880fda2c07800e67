//! Checks that the table is complete and that the program does what the table says.

use std::collections::BTreeMap;

use super::assemble::Instruction;
use super::assemble::{ABSENT, ALLOW, DENY, KILL, PRETEND, UNSUPPORTED};
use super::rules::{Action, GROUPS};
use super::{ARCHITECTURE, program, without_unix_sockets};

/// Interprets the instructions that the filter uses.
fn run(architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    run_program(&program(), architecture, number, arguments)
}

fn run_program(program: &[Instruction], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
    let mut position = 0;
    let mut accumulator = 0_u32;
    loop {
        let step = program[position];
        position += 1;
        let mut branch = |yes: bool| position += usize::from(if yes { step.jump_true } else { step.jump_false });
        match step.code {
            0x20 => {
                accumulator = match step.operand {
                    0 => number,
                    4 => architecture,
                    offset => {
                        let argument = arguments[(offset as usize - 16) / 8];
                        (if offset % 8 == 0 { argument } else { argument >> 32 }) as u32
                    }
                }
            }
            0x54 => accumulator &= step.operand,
            0x05 => position += step.operand as usize,
            0x15 => branch(accumulator == step.operand),
            0x35 => branch(accumulator >= step.operand),
            0x45 => branch(accumulator & step.operand != 0),
            0x06 => return step.operand,
            other => panic!("unknown instruction in the filter: {other:#x}"),
        }
    }
}

fn number(name: &str) -> u32 {
    let wanted = format!("__NR_{name}");
    let mut calls = GROUPS.iter().flat_map(|group| group.calls);
    calls.find(|(call, _)| *call == wanted).unwrap_or_else(|| panic!("call {name} is not in the table")).1
}

fn judge(name: &str, arguments: [u64; 6]) -> u32 {
    run(ARCHITECTURE, number(name), arguments)
}

#[test]
fn table_lists_every_call_once_with_a_reason() {
    let mut seen = BTreeMap::new();
    for group in GROUPS {
        assert!(group.reason.ends_with('.'), "the reason has no full stop: {}", group.reason);
        for (name, number) in group.calls {
            assert_eq!(seen.insert(number, name), None, "{name} is listed twice");
        }
    }
    if cfg!(target_arch = "x86_64") {
        assert!((0..=335).chain(424..=469).all(|number| seen.contains_key(&number)), "a call is missing");
    }
}

#[test]
fn program_matches_table_for_every_number() {
    let table: BTreeMap<u32, Action> =
        GROUPS.iter().flat_map(|group| group.calls.iter().map(|(_, number)| (*number, group.action))).collect();
    for number in 0..1024 {
        let expected = match table.get(&number) {
            Some(Action::Allow) => ALLOW,
            Some(Action::Deny) => DENY,
            Some(Action::Absent) | None => ABSENT,
            Some(Action::Unsupported) => UNSUPPORTED,
            Some(Action::Guarded(_)) => continue,
        };
        assert_eq!(run(ARCHITECTURE, number, [0; 6]), expected, "call {number}");
    }
}

#[test]
fn second_program_denies_only_unix_sockets() {
    let more = without_unix_sockets();
    let judge = |name: &str, family: u64| run_program(&more, ARCHITECTURE, number(name), [family, 1, 0, 0, 0, 0]);
    assert_eq!(judge("socket", 1), DENY);
    assert_eq!(judge("socket", 1 | 1 << 32), DENY, "bits that the kernel ignores");
    for (name, family) in [("socket", 2), ("socket", 10), ("socket", 16), ("socketpair", 1), ("connect", 1)] {
        assert_eq!(judge(name, family), ALLOW, "{name} {family}");
    }
}

#[test]
fn foreign_abi_is_killed_or_absent() {
    assert_eq!(run(0x4000_0003, number("read"), [0; 6]), KILL, "i386");
    assert_eq!(run(ARCHITECTURE, number("read") | 0x4000_0000, [0; 6]), ABSENT, "x32");
    assert_eq!(run(ARCHITECTURE, u32::MAX, [0; 6]), ABSENT, "no such call");
}

#[test]
fn guards_check_their_arguments() {
    let allow: &[(&str, [u64; 6])] = &[
        ("clone", [0x003D_0F00, 0, 0, 0, 0, 0]),
        ("ioctl", [0, 0x5401, 0, 0, 0, 0]),
        ("socket", [1, 1, 0, 0, 0, 0]),
        ("socket", [16, 3, 0, 0, 0, 0]),
        ("socket", [10, 1, 6, 0, 0, 0]),
        ("socketpair", [1, 1, 0, 0, 0, 0]),
        ("personality", [0xFFFF_FFFF, 0, 0, 0, 0, 0]),
        ("openat", [0, 0, 0o101, 0o644, 0, 0]),
        ("openat", [0, 0, 0, 0o6777, 0, 0]),
        ("fchmod", [0, 0o1777, 0, 0, 0, 0]),
        ("mknodat", [0, 0, 0o010_644, 0, 0, 0]),
        ("mknodat", [0, 0, 0o140_644, 0, 0, 0]),
        ("prlimit64", [0, 7, 0, 0, 0, 0]),
    ];
    let deny: &[(&str, [u64; 6])] = &[
        ("clone", [0x1000_0000, 0, 0, 0, 0, 0]),
        ("clone", [0x0002_0011, 0, 0, 0, 0, 0]),
        ("ioctl", [0, 0x5412, 0, 0, 0, 0]),
        ("ioctl", [0, 0xFFFF_FFFF_0000_5412, 0, 0, 0, 0]),
        ("ioctl", [0, 0x541C, 0, 0, 0, 0]),
        ("ioctl", [0, 0x5423, 0, 0, 0, 0]),
        ("socket", [17, 3, 0, 0, 0, 0]),
        ("socket", [38, 5, 0, 0, 0, 0]),
        ("socket", [40, 1, 0, 0, 0, 0]),
        ("socket", [16, 3, 9, 0, 0, 0]),
        ("socketpair", [2, 1, 0, 0, 0, 0]),
        ("personality", [0x0004_0000, 0, 0, 0, 0, 0]),
        ("openat", [0, 0, 0o101, 0o4755, 0, 0]),
        ("openat", [0, 0, 0o20_200_001, 0o2755, 0, 0]),
        ("fchmodat", [0, 0, 0o4755, 0, 0, 0]),
        ("fchmod", [0, 0o2755, 0, 0, 0, 0]),
        ("mknodat", [0, 0, 0o020_666, 0, 0, 0]),
        ("mknodat", [0, 0, 0o060_666, 0, 0, 0]),
        ("mknodat", [0, 0, 0o104_755, 0, 0, 0]),
        ("prlimit64", [1, 7, 0, 0, 0, 0]),
    ];
    for (name, arguments) in allow {
        assert_eq!(judge(name, *arguments), ALLOW, "{name} {arguments:x?}");
    }
    for (name, arguments) in deny {
        assert_eq!(judge(name, *arguments), DENY, "{name} {arguments:x?}");
    }
}

#[test]
fn socket_guard_checks_family_type_and_protocol_together() {
    const FLAGS: [u64; 4] = [0, 0o4000, 0o2_000_000, 0o2_004_000];
    let (program, socket) = (program(), number("socket"));
    let judge = |arguments| run_program(&program, ARCHITECTURE, socket, arguments);
    let is_allowed = |family: u64, kind: u64, protocol: u64| {
        let is_local = matches!((family, protocol), (1, _) | (16, 0));
        let is_ip = matches!((family, kind, protocol), (2 | 10, 1, 0 | 6) | (2 | 10, 2, 0 | 17));
        is_local || is_ip || matches!((family, kind, protocol), (2, 2, 1) | (10, 2, 58))
    };
    for family in 0..46 {
        for kind in 0..16 {
            for protocol in 0..300 {
                let expected = if is_allowed(family, kind, protocol) { ALLOW } else { DENY };
                let high = 0xABCD << 32;
                let flags = FLAGS[(protocol % 4) as usize];
                for arguments in [[family, kind, protocol], [family | high, kind | flags | high, protocol | high]] {
                    let [family, kind, protocol] = arguments;
                    let verdict = judge([family, kind, protocol, 0, 0, 0]);
                    assert_eq!(verdict, expected, "family {family:x} type {kind:x} protocol {protocol:x}");
                }
            }
        }
    }
    assert_eq!(judge([2, 1 | 0x100, 0, 0, 0, 0]), DENY, "an unknown flag");
}

#[test]
fn setsockopt_that_attaches_programs_or_protocols_is_denied() {
    let judge = |level: u64, option: u64| judge("setsockopt", [3, level, option, 0, 0, 0]);
    for option in [26, 50, 51, 52] {
        assert_eq!(judge(1, option), DENY, "SOL_SOCKET {option}");
        assert_eq!(judge(1 | 1 << 32, option | 1 << 32), DENY, "SOL_SOCKET {option} with high bits");
        assert_eq!(judge(0, option), ALLOW, "IPPROTO_IP {option}");
    }
    assert_eq!(judge(6, 31), DENY, "TCP_ULP");
    for (level, option) in [(1, 2), (1, 7), (1, 8), (1, 27), (1, 31), (6, 1), (6, 13), (6, 26), (41, 26), (0, 31)] {
        assert_eq!(judge(level, option), ALLOW, "level {level} option {option}");
    }
}

#[test]
fn core_size_limit_can_be_read_but_not_set() {
    const POINTER: u64 = 0x7FFF_1234_5678;
    const ABOVE_4_GIB: u64 = 0x1_0000_0000;
    assert_eq!(judge("setrlimit", [4, POINTER, 0, 0, 0, 0]), PRETEND);
    assert_eq!(judge("setrlimit", [7, POINTER, 0, 0, 0, 0]), ALLOW);
    for (arguments, expected) in [
        ([0, 4, 0, POINTER], ALLOW),
        ([0, 4, POINTER, 0], PRETEND),
        ([0, 4, ABOVE_4_GIB, 0], PRETEND),
        ([0, 4 | 1 << 32, POINTER, 0], PRETEND),
        ([0, 4, POINTER, POINTER], DENY),
        ([0, 4, POINTER, ABOVE_4_GIB], DENY),
        ([0, 7, POINTER, POINTER], ALLOW),
        ([1, 4, 0, POINTER], DENY),
        ([1, 7, POINTER, 0], DENY),
    ] {
        let [process, resource, new, old] = arguments;
        assert_eq!(judge("prlimit64", [process, resource, new, old, 0, 0]), expected, "{arguments:x?}");
    }
}

#[test]
fn further_filter_fails_as_on_a_kernel_without_seccomp() {
    for operation in 0..5 {
        assert_eq!(judge("seccomp", [operation, 0, 0, 0, 0, 0]), UNSUPPORTED);
    }
    assert_eq!(judge("prctl", [22, 2, 0, 0, 0, 0]), UNSUPPORTED);
    assert_eq!(judge("prctl", [22 | 1 << 32, 2, 0, 0, 0, 0]), UNSUPPORTED);
    assert_eq!(judge("prctl", [21, 0, 0, 0, 0, 0]), ALLOW, "PR_GET_SECCOMP");
    assert_eq!(judge("prctl", [38, 1, 0, 0, 0, 0]), ALLOW, "PR_SET_NO_NEW_PRIVS");
}

#[test]
fn program_has_at_most_300_instructions() {
    assert!(program().len() <= 300, "{} instructions", program().len());
}
