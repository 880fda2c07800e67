//! Attack g02: a box takes too much memory in one process, in many, in files in memory, or in
//! shared mappings. The result must be `oom_killed`, or "no space" for a full file system.

use serde_json::{Value, json};
use tests::support::actor::Mode;
use tests::support::payload::Payload;

use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "g02", title: "memory hog: private, shared, tmpfs, SysV, memfd", run };

/// Allocates 1 GiB in pieces of 4 MiB and prints the sum. Sleeping children keep their memory.
pub(crate) const TAKE: &str = r"
import mmap
PIECE, TOTAL = 4 << 20, DATA['pieces']
kept = []
def anonymous():
    kept.append(bytearray(b'x') * PIECE)
def shared():
    area = mmap.mmap(-1, PIECE)
    area.write(b'x' * PIECE)
    kept.append(area)
def file_in(place):
    def act():
        with open(place + '/filler-%d' % len(kept), 'wb', buffering=0) as file:
            done = 0
            while done < PIECE:
                done += file.write(b'x' * (PIECE - done))
        kept.append(None)
    return act
handle = None
def in_memfd():
    global handle
    handle = handle or os.memfd_create('filler')
    os.write(handle, b'x' * PIECE)
libc.shmat.restype = ctypes.c_void_p
def in_segment():
    segment = libc.shmget(0, PIECE, 0o1600)
    if segment == -1:
        raise OSError(ctypes.get_errno(), 'shmget')
    kept.append(segment)
    where = ctypes.c_void_p(libc.shmat(segment, None, 0))
    ctypes.memset(where, 1, PIECE)
    libc.shmdt(where)
acts = {'anonymous': anonymous, 'shared mapping': shared, 'memfd': in_memfd, 'detached segment': in_segment}
if DATA['kind'] == 'many processes':
    # The kernel ends one of the children, not the box; the parent ends as that child did.
    def fallen(*_):
        status = os.waitpid(-1, 0)[1]
        if os.WIFSIGNALED(status):
            os.kill(os.getpid(), os.WTERMSIG(status))
    signal.signal(signal.SIGCHLD, fallen)
    reader, writer = os.pipe()
    for child in range(8):
        if os.fork() == 0:
            # Outside a box nobody else ends them.
            libc.prctl(1, signal.SIGKILL, 0, 0, 0)
            for _ in range(TOTAL // 8):
                anonymous()
            os.write(writer, b'.')
            signal.pause()
    count = 0
    while count < 8:
        count += len(os.read(reader, 8))
    answer({'outcome': 'ok', 'pieces': TOTAL})
    sys.exit(0)
act = acts.get(DATA['kind']) or file_in(DATA['kind'])
for piece in range(TOTAL):
    outcome = attempt(act)
    if outcome != 'ok':
        break
answer({'outcome': outcome, 'pieces': piece})
if act is in_segment:
    for segment in kept:
        libc.shmctl(segment, 0, None)
";

fn run(context: &Context) -> Verdict {
    let take = |kind: &str, pieces: u32| Payload::new(TAKE).with(json!({ "kind": kind, "pieces": pieces }));
    let files = context.scratch.path().to_string_lossy();
    for kind in ["anonymous", "many processes", "shared mapping", "memfd", "detached segment", &files] {
        let outside = context.outside(&take(kind, 256))?;
        control(outside["outcome"] == "ok", || format!("{kind} fails outside too: {outside}"))?;
    }
    let mut notes = Vec::new();
    let mut faults = Vec::new();
    for kind in [
        "anonymous",
        "many processes",
        "shared mapping",
        "/tmp",
        "/dev/shm",
        "/home/sandbox",
        if context.is_served() { "/var/tmp" } else { "/workspace" },
        "memfd",
        "detached segment",
    ] {
        let report =
            context.boxed().option("--memory-mb", "128").option("--timeout", "60").report_payload(&take(kind, 256))?;
        let answer: Value =
            report.stdout().lines().last().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        let full = answer["outcome"] == "ENOSPC" || answer["outcome"] == "EDQUOT";
        let reported = report.is_set("oom_killed");
        let peak = report.number("/usage/peak_memory_bytes").unwrap_or_default() >> 20;
        if reported || (full && kind.starts_with('/')) {
            notes.push(format!("{kind}: {} at {peak} MB", if reported { "oom_killed" } else { "no space" }));
        } else {
            faults.push(format!("{kind}: {answer}, {}", report.summary()));
        }
        if reported && report.outcome.code() != Some(137) {
            faults.push(format!("{kind}: oom_killed but exit {:?}", report.outcome.code()));
        }
        if context.mode == Mode::Root && peak > 160 {
            faults.push(format!("{kind}: peak {peak} MB under a limit of 128"));
        }
    }
    if notes.is_empty() && faults.is_empty() {
        return Err(Fault::Inconclusive("nothing was tried".into()));
    }
    held(faults.is_empty(), || format!("{} ‖ held: {}", faults.join(" ‖ "), notes.join(", ")))?;
    Ok(notes.join(", "))
}
