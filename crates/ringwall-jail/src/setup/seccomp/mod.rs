//! The system call filter: a table of calls with reasons, and the BPF program made from it.
//!
//! The program is a balanced tree over ranges of call numbers, because the kernel runs a new filter
//! once per call number when it is loaded: a list of 330 comparisons costs 0.9 ms per box, a tree
//! 0.1 ms (docs/decisions/0003-seccomp-allow-list.md).

mod assemble;
mod guard;
mod rules;

pub use rules::{Action, GROUPS, Group};

use assemble::{
    ABSENT, ALLOW, DENY, Instruction, KILL, UNSUPPORTED, jump, jump_at_least, jump_equal, load_architecture,
    load_number, ret,
};

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Call numbers from here on belong to the x32 ABI, which shares x86_64's architecture value.
const FIRST_FOREIGN_NUMBER: u32 = 0x4000_0000;

/// Consecutive call numbers with the same action. A range ends where the next begins.
struct Range {
    first: u32,
    action: Action,
}

/// The filter for this machine's architecture.
pub fn program() -> Vec<Instruction> {
    let mut program = vec![
        load_architecture(),
        jump_equal(ARCHITECTURE, 1, 0),
        ret(KILL),
        load_number(),
        jump_at_least(FIRST_FOREIGN_NUMBER, 0, 1),
        ret(ABSENT),
    ];
    program.extend(tree(&ranges()));
    program
}

/// A second filter that denies `socket(AF_UNIX)`. If filters disagree, the kernel applies the
/// strictest result.
pub fn without_unix_sockets() -> Vec<Instruction> {
    let number = GROUPS.iter().flat_map(|group| group.calls).find(|(name, _)| *name == "__NR_socket");
    let guard = guard::Guard::NotUnix.instructions();
    let mut program = vec![load_number()];
    if let (Some((_, number)), Ok(length)) = (number, u8::try_from(guard.len())) {
        program.push(jump_equal(*number, 0, length));
        program.extend(guard);
    }
    program.push(ret(ALLOW));
    program
}

/// The table as ranges in ascending order. A number in no group is [`Action::Absent`].
fn ranges() -> Vec<Range> {
    let mut calls: Vec<(u32, Action)> =
        GROUPS.iter().flat_map(|group| group.calls.iter().map(|(_, number)| (*number, group.action))).collect();
    calls.sort_by_key(|(number, _)| *number);
    let mut ranges: Vec<Range> = Vec::new();
    let mut next = 0;
    for (number, action) in calls {
        if number != next {
            extend(&mut ranges, next, Action::Absent);
        }
        extend(&mut ranges, number, action);
        next = number + 1;
    }
    extend(&mut ranges, next, Action::Absent);
    ranges
}

/// Begins a range, unless the previous one has the same action.
fn extend(ranges: &mut Vec<Range>, first: u32, action: Action) {
    if ranges.last().is_none_or(|last| last.action != action) {
        ranges.push(Range { first, action });
    }
}

/// Builds a binary search tree. The lower half follows the comparison, the higher half follows the
/// lower. If one half is a single return instruction and the other contains the same one within
/// jump range (255), the comparison jumps there instead.
fn tree(ranges: &[Range]) -> Vec<Instruction> {
    if let [range] = ranges {
        return leaf(range.action);
    }
    let (lower, higher) = ranges.split_at(ranges.len() / 2);
    let Some(first) = higher.first().map(|range| range.first) else {
        return leaf(Action::Absent);
    };
    let (lower, higher) = (tree(lower), tree(higher));
    let reachable = |program: &[Instruction], wanted: &[Instruction]| {
        let [answer] = wanted else { return None };
        program.iter().position(|instruction| instruction == answer).and_then(|at| u8::try_from(at).ok())
    };
    if let Some(answer) = reachable(&higher, &lower) {
        let mut program = vec![jump_at_least(first, 0, answer)];
        program.extend(higher);
        return program;
    }
    if let Some(answer) = reachable(&lower, &higher) {
        let mut program = vec![jump_at_least(first, answer, 0)];
        program.extend(lower);
        return program;
    }
    let mut program = match u8::try_from(lower.len()) {
        Ok(distance) => vec![jump_at_least(first, distance, 0)],
        Err(_) => vec![jump_at_least(first, 0, 1), jump(lower.len() as u32)],
    };
    program.extend(lower);
    program.extend(higher);
    program
}

fn leaf(action: Action) -> Vec<Instruction> {
    match action {
        Action::Allow => vec![ret(ALLOW)],
        Action::Deny => vec![ret(DENY)],
        Action::Absent => vec![ret(ABSENT)],
        Action::Unsupported => vec![ret(UNSUPPORTED)],
        Action::Guarded(guard) => guard.instructions(),
    }
}

#[cfg(test)]
mod tests;
