//! Attack g22: one box takes all of a pool that the machine has once: terminals, AIO contexts, open files, and the memory
//! for compiled BPF programs.
//!
//! Scaled down: the control takes somewhat more than a box may have, never a whole pool; `tests/vm` empties whole pools.
//! The verdict is read outside while the box lives: the machine's counters, and the limits and filters of its processes.
//!
//! Files that are opened, mapped and closed need no descriptor. The report must say so: `open_files` is `partial` unless
//! mappings or memory keep the box below a quarter of fs.file-max.

use std::fs;

use serde_json::{Value, json};
use tests::support::host;
use tests::support::payload::Payload;

use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g22", title: "machine-wide pools: ptys, AIO, open files, BPF", run };

/// Takes from each pool, prints the amount, and keeps it until its input ends.
const TAKE: &str = r"
import resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
kept = []
def take(act, count):
    taken = 0
    for _ in range(count):
        outcome = attempt(act)
        if outcome != 'ok':
            return [taken, outcome]
        taken += 1
    return [taken, 'ok']
def terminal():
    kept.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))
def file():
    kept.append(os.open('/dev/null', os.O_RDONLY))
def context():
    handle = ctypes.c_ulong()
    result, number = raw(NUMBERS['io_setup'], 100, ctypes.byref(handle))
    if result != 0:
        raise OSError(number, 'io_setup')
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
def mapping():
    file = os.open('/usr/bin/env', os.O_RDONLY)
    at = libc.mmap(None, ctypes.c_size_t(1), 1, 1, file, ctypes.c_long(0))
    os.close(file)
    if at == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), 'mmap')
allow = ctypes.create_string_buffer(struct.pack('HBBI', 0x06, 0, 0, ALLOW))
program = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(allow)))
def by_socket(option):
    datagram = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagram.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    datagram.bind(('127.0.0.1', 0))
    kept.append(datagram)
    return attempt(lambda: datagram.setsockopt(socket.SOL_SOCKET, option, bytes(program)[:16]))
got = {
    'terminals': take(terminal, DATA['terminals']),
    'contexts': take(context, DATA['contexts']),
    'filters': {
        'prctl': attempt(lambda: install_filter([], ALLOW)),
        'seccomp': call('seccomp', 1, 0, program),
        'socket': by_socket(26),
        'reuseport': by_socket(51),
    },
    'mapped': take(mapping, DATA['mapped']),
    'files': take(file, DATA['files']),
}
answer(got)
sys.stdin.read()
";

/// The limits of a box.
const MAX_TERMINALS: u64 = 64;
const MAX_FILES: u64 = 4096;
/// Enough for a terminal multiplexer with many panes.
const USEFUL_TERMINALS: u64 = 32;
const SHARE_OF_FILES: u64 = 4;
const PIDS: u64 = 64;
/// Two times the descriptors of a process, and far below vm.max_map_count.
const MAPPED_FILES: u64 = 8192;
/// A lower bound of the memory that the kernel charges to a box for an open file, in bytes.
const FILE_BYTES: u64 = 128;
const MEMORY_MB: u64 = 512;

fn run(context: &Context) -> Verdict {
    let take = Payload::new(TAKE)
        .with(json!({ "terminals": MAX_TERMINALS + 36, "contexts": 3, "files": 6000, "mapped": MAPPED_FILES }));
    let outside = context.outside(&take)?;
    let all = [("terminals", MAX_TERMINALS + 36), ("contexts", 3), ("files", 6000), ("mapped", MAPPED_FILES)];
    for (pool, count) in all {
        control(outside[pool] == json!([count, "ok"]), || format!("{pool} outside: {}", outside[pool]))?;
    }
    for way in ["prctl", "seccomp", "socket", "reuseport"] {
        control(outside["filters"][way] == "ok", || format!("{way} outside: {}", outside["filters"]))?;
    }

    let contexts_before = number("/proc/sys/fs/aio-nr")?;
    let terminals_before = number("/proc/sys/kernel/pty/nr")?;
    let files_before = open_files_of_machine()?;
    let mut live = context.boxed().option("--pids", PIDS.to_string()).start_payload(&take)?;
    let inside: Value = serde_json::from_str(&live.line()?).unwrap_or_default();
    let terminals = number("/proc/sys/kernel/pty/nr")?.saturating_sub(terminals_before);
    let contexts = number("/proc/sys/fs/aio-nr")?.saturating_sub(contexts_before);
    let files = open_files_of_machine()?.saturating_sub(files_before);
    let processes = boxed_processes(context.above(&live))?;
    live.finish()?;

    let taken = inside["terminals"][0].as_u64().unwrap_or_default();
    held(taken <= MAX_TERMINALS && terminals <= MAX_TERMINALS, || {
        format!("the box took {taken} terminals, the machine counts {terminals} more")
    })?;
    control(taken >= USEFUL_TERMINALS && terminals >= USEFUL_TERMINALS, || {
        format!("only {taken} terminals in a box ({}), {terminals} on the machine", inside["terminals"])
    })?;
    held(contexts == 0 && inside["contexts"] == json!([0, "ENOSYS"]), || {
        format!("AIO contexts: {}, the machine counts {contexts} more", inside["contexts"])
    })?;
    for (way, refusal) in [("prctl", "EINVAL"), ("seccomp", "EINVAL"), ("socket", "EPERM"), ("reuseport", "EPERM")] {
        held(inside["filters"][way] == refusal, || format!("a program by {way} → {}", inside["filters"]))?;
    }
    control(processes.len() >= 2, || format!("the box's PID 1 and its command are not both seen: {processes:?}"))?;
    let machine = number("/proc/sys/fs/file-max")?;
    for Boxed { number, open_files, filters } in &processes {
        held(*open_files <= MAX_FILES && open_files * PIDS <= machine / SHARE_OF_FILES, || {
            format!("process {number} may open {open_files} files, fs.file-max is {machine}")
        })?;
        held(*filters == processes[0].filters, || format!("process {number} has {filters} filters: {processes:?}"))?;
    }
    held(inside["files"][1] == "EMFILE", || format!("open files: {}", inside["files"]))?;
    let each = processes.iter().map(|process| process.open_files).max().unwrap_or(MAX_FILES);
    control(files > MAPPED_FILES / 2 + each, || {
        format!("mapped files are not counted: {files}, {}", inside["mapped"])
    })?;
    check_reported(context, each, machine)?;
    Ok(format!("{taken} terminals, 0 AIO contexts, {} files a process, no further BPF program", inside["files"][0]))
}

/// `each` is RLIMIT_NOFILE of a process in the box, `machine` is fs.file-max.
fn check_reported(context: &Context, each: u64, machine: u64) -> Result<(), Fault> {
    let boxed = || context.boxed().option("--pids", PIDS.to_string()).option("--memory-mb", MEMORY_MB.to_string());
    let report = boxed().report(&["true"])?;
    let state = |name: &str| report.protections(name).first().map(|(_, state, _)| state.clone()).unwrap_or_default();
    let by_process = (PIDS + 1) * (each + number("/proc/sys/vm/max_map_count")?);
    let by_memory = if state("memory_limit") == "enforced" { (MEMORY_MB << 20) / FILE_BYTES } else { u64::MAX };
    let is_bounded = by_process.min(by_memory) <= machine / SHARE_OF_FILES;
    let expected = if is_bounded { "enforced" } else { "partial" };
    held(state("open_files") == expected, || {
        format!("open_files is {:?}, not {expected}: {}", state("open_files"), report.summary())
    })?;
    if context.is_served() {
        return Ok(());
    }
    let required = boxed().option("--require", "open_files").run(&["true"])?;
    held((required.code() == Some(0)) == is_bounded, || format!("--require open_files: {}", required.describe()))
}

/// The first number of fs.file-nr.
fn open_files_of_machine() -> Result<u64, Fault> {
    let text = fs::read_to_string("/proc/sys/fs/file-nr")?;
    let first = text.split_ascii_whitespace().next().and_then(|count| count.parse().ok());
    first.ok_or_else(|| Fault::Inconclusive(format!("fs.file-nr is {text:?}")))
}

#[derive(Debug)]
struct Boxed {
    number: u32,
    open_files: u64,
    filters: u64,
}

/// The host PIDs of the box that has just answered.
fn boxed_processes(above: u32) -> Result<Vec<Boxed>, Fault> {
    let mut found = Vec::new();
    for number in host::descendants(above)? {
        if host::field(number, "Seccomp").as_deref() != Some("2") {
            continue;
        }
        let limits = fs::read_to_string(format!("/proc/{number}/limits"))?;
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap_or_default();
        let open_files = line.split_ascii_whitespace().nth(4).and_then(|hard| hard.parse().ok()).unwrap_or(u64::MAX);
        let filters = host::field(number, "Seccomp_filters").and_then(|count| count.parse().ok()).unwrap_or(0);
        found.push(Boxed { number, open_files, filters });
    }
    Ok(found)
}

fn number(path: &str) -> Result<u64, Fault> {
    let text = fs::read_to_string(path)?;
    text.trim().parse().map_err(|_| Fault::Inconclusive(format!("{path} is {text:?}")))
}
