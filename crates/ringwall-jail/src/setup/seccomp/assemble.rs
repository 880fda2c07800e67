//! The classic BPF instructions that the filter uses.
//!
//! Offsets into `struct seccomp_data`, opcodes and return values are the kernel's.

pub(super) use crate::sys::BpfInstruction as Instruction;

/// SECCOMP_RET_ALLOW.
pub(super) const ALLOW: u32 = 0x7FFF_0000;
/// SECCOMP_RET_ERRNO with EPERM.
pub(super) const DENY: u32 = 0x0005_0000 | 1;
/// SECCOMP_RET_ERRNO with ENOSYS.
pub(super) const ABSENT: u32 = 0x0005_0000 | 38;
/// SECCOMP_RET_ERRNO with EINVAL.
pub(super) const UNSUPPORTED: u32 = 0x0005_0000 | 22;
/// SECCOMP_RET_ERRNO with errno 0: the kernel skips the call and returns 0 to the caller.
pub(super) const PRETEND: u32 = 0x0005_0000;
/// SECCOMP_RET_KILL_PROCESS.
pub(super) const KILL: u32 = 0x8000_0000;

const LOAD_WORD: u16 = 0x20;
const AND: u16 = 0x54;
const JUMP_ALWAYS: u16 = 0x05;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_AT_LEAST: u16 = 0x35;
const JUMP_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const NUMBER_OFFSET: u32 = 0;
const ARCHITECTURE_OFFSET: u32 = 4;
const ARGUMENTS_OFFSET: u32 = 16;

fn instruction(code: u16, jump_true: u8, jump_false: u8, operand: u32) -> Instruction {
    Instruction { code, jump_true, jump_false, operand }
}

/// The number of the call.
pub(super) fn load_number() -> Instruction {
    instruction(LOAD_WORD, 0, 0, NUMBER_OFFSET)
}

/// The architecture under which the call is made.
pub(super) fn load_architecture() -> Instruction {
    instruction(LOAD_WORD, 0, 0, ARCHITECTURE_OFFSET)
}

/// The low 32 bits of an argument (both architectures are little-endian).
pub(super) fn load_argument(position: u8) -> Instruction {
    instruction(LOAD_WORD, 0, 0, ARGUMENTS_OFFSET + 8 * u32::from(position))
}

/// The high 32 bits of an argument. Only pointers use them.
pub(super) fn load_argument_high(position: u8) -> Instruction {
    instruction(LOAD_WORD, 0, 0, ARGUMENTS_OFFSET + 8 * u32::from(position) + 4)
}

pub(super) fn and(mask: u32) -> Instruction {
    instruction(AND, 0, 0, mask)
}

pub(super) fn jump(distance: u32) -> Instruction {
    instruction(JUMP_ALWAYS, 0, 0, distance)
}

pub(super) fn jump_equal(value: u32, yes: u8, no: u8) -> Instruction {
    instruction(JUMP_EQUAL, yes, no, value)
}

pub(super) fn jump_at_least(value: u32, yes: u8, no: u8) -> Instruction {
    instruction(JUMP_AT_LEAST, yes, no, value)
}

pub(super) fn jump_any_bit(mask: u32, yes: u8, no: u8) -> Instruction {
    instruction(JUMP_ANY_BIT, yes, no, mask)
}

pub(super) fn ret(value: u32) -> Instruction {
    instruction(RETURN, 0, 0, value)
}
