//! Tables of system calls that the filter must refuse, and their check.
//!
//! The arguments are such that the kernel would return another errno than EPERM to a process
//! without capabilities. Where the kernel checks a capability first, the oracle decides (`judged`
//! in the payload).

use serde_json::{Value, json};
use tests::support::actor::Identity;
use tests::support::payload::Payload;

use crate::probe::{Context, Fault, Verdict, control, held, outside_as};

/// One call.
pub(crate) struct Call {
    /// The system call's name, as in the payload's table of numbers.
    pub(crate) name: &'static str,
    /// Its arguments, as Python.
    pub(crate) arguments: &'static str,
    /// The kernel's own errno for a process without capabilities; alternatives are separated by
    /// `|`. If EPERM is among them, the errno cannot tell the filter from the kernel, and only the
    /// oracle can.
    pub(crate) kernel: &'static str,
}

/// The filter's errno.
const REFUSED: &str = "EPERM";

/// Makes every call outside (uncapped), inside, and asks the filter about it.
pub(crate) fn refused(context: &Context, calls: &[Call]) -> Verdict {
    let payload = payload(calls);
    let outside = outside_as(Identity::Unprivileged, &payload)?;
    let inside = context.inside(&context.with_oracle(), &payload)?;
    judge(calls, &outside, &inside)
}

/// The program that makes the calls of a table: `[[made, judged], …]` in the table's order.
pub(crate) fn payload(calls: &[Call]) -> Payload {
    let table: Vec<Value> = calls.iter().map(|call| json!([call.name, call.arguments])).collect();
    Payload::new(PROGRAM).with(Value::Array(table))
}

const PROGRAM: &str = r"
made = []
for name, text in DATA:
    if name not in NUMBERS:
        made.append(['not on this machine', 'not on this machine'])
        continue
    arguments = eval('(' + text + ',)') if text else ()
    made.append([isolated(lambda: call(name, *arguments)), judged(name, *arguments)])
answer(made)
";

fn judge(calls: &[Call], outside: &Value, inside: &Value) -> Verdict {
    let mut by_errno = 0;
    let mut by_oracle = 0;
    let mut unattributed = Vec::new();
    let mut faults = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let text = |value: &Value, column: usize| {
            value.get(index).and_then(|row| row.get(column)).and_then(Value::as_str).unwrap_or("no answer").to_owned()
        };
        let name = format!("{}({})", call.name, call.arguments);
        if text(outside, 0) == "not on this machine" {
            continue;
        }
        control(call.kernel.split('|').any(|errno| errno == text(outside, 0)), || {
            format!("{name} gave {} outside, expected {}", text(outside, 0), call.kernel)
        })?;
        control(text(outside, 1) == "ENOSYS", || {
            format!("the oracle gave {} for {name} outside, expected ENOSYS", text(outside, 1))
        })?;
        if text(inside, 0) != REFUSED {
            faults.push(format!("{name} → {} (kernel alone: {})", text(inside, 0), text(outside, 0)));
            continue;
        }
        if text(outside, 0) != REFUSED {
            by_errno += 1;
        }
        match text(inside, 1).as_str() {
            REFUSED => by_oracle += 1,
            "ENOSYS" => faults.push(format!("{name}: the filter allows it; only the kernel refused")),
            _ if text(outside, 0) == REFUSED => unattributed.push(call.name),
            _ => {}
        }
    }
    held(faults.is_empty(), || faults.join("; "))?;
    if by_errno + by_oracle == 0 {
        return Err(Fault::Inconclusive("no refusal could be attributed to the filter".into()));
    }
    let mut note = format!("{} calls refused; attributed {by_errno} by errno, {by_oracle} by oracle", calls.len());
    if !unattributed.is_empty() {
        note.push_str(&format!("; not attributable: {}", unattributed.join(" ")));
    }
    Ok(note)
}
