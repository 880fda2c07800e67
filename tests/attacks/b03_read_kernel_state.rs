//! Attack b03: a box reads files about the kernel's memory, keys, timers, interrupts and firmware
//! tables. They must be empty or absent.

use serde_json::{Value, json};
use tests::support::actor::Identity;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held, need_root, outside_as};

pub(crate) const PROBE: Probe =
    Probe { id: "b03", title: "read kcore, keys, timer_list, interrupts, firmware tables", run };

const READ: &str = r"
seen = {}
for path in DATA:
    try:
        if os.path.isdir(path):
            seen[path] = len(os.listdir(path))
        else:
            with open(path, 'rb', buffering=0) as file:
                seen[path] = len(file.read(64))
    except OSError as error:
        seen[path] = name_of(error.errno)
answer(seen)
";

const PATHS: [&str; 27] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/key-users",
    "/proc/timer_list",
    "/proc/interrupts",
    "/proc/softirqs",
    "/proc/sched_debug",
    "/proc/latency_stats",
    "/proc/timer_stats",
    "/proc/kmsg",
    "/proc/kallsyms",
    "/proc/sysrq-trigger",
    "/proc/slabinfo",
    "/proc/vmallocinfo",
    "/proc/pagetypeinfo",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/modules",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/acpi",
    "/proc/scsi",
    "/proc/irq",
    "/proc/bus",
    "/sys/firmware",
    "/sys/class/powercap",
    "/sys/kernel/debug",
];

/// The files that must be hidden; the others are only reported.
const MUST: [&str; 12] = [
    "/proc/kcore",
    "/proc/keys",
    "/proc/timer_list",
    "/proc/interrupts",
    "/proc/sched_debug",
    "/proc/latency_stats",
    "/proc/sysrq-trigger",
    "/proc/acpi",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/class/powercap",
    "/sys/kernel/debug",
];

fn run(context: &Context) -> Verdict {
    need_root("these files are root's outside")?;
    let payload = Payload::new(READ).with(json!(PATHS));
    let outside = outside_as(Identity::Tester, &payload)?;
    let full = |answer: &Value, path: &str| answer[path].as_u64().is_some_and(|length| length > 0);
    let readable = MUST.iter().filter(|path| full(&outside, path)).count();
    control(readable >= 3, || format!("only {readable} are readable outside: {outside}"))?;

    let inside = context.inside(&context.boxed(), &payload)?;
    let open: Vec<&str> = MUST.into_iter().filter(|path| full(&inside, path)).collect();
    held(open.is_empty(), || format!("readable inside: {open:?}"))?;
    let further: Vec<&str> = PATHS.into_iter().filter(|path| full(&inside, path)).collect();
    Ok(format!("{readable} readable outside, none inside; not promised, and readable: {further:?}"))
}
