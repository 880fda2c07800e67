//! Attack a10: a box creates device nodes, which must fail everywhere, and leaves a FIFO and a
//! socket in its workspace, which must block neither the end of the run nor the next one.

use std::os::unix::fs::FileTypeExt;

use serde_json::json;
use tests::support::actor::Identity;
use tests::support::payload::Payload;
use tests::support::scratch::Scratch;

use crate::probe::{Context, Probe, Verdict, control, held, need_root, outside_as, surprises};

pub(crate) const PROBE: Probe =
    Probe { id: "a10", title: "device nodes, and a FIFO or socket left in the workspace", run };

const MAKE: &str = r"
import stat
seen = {}
for place in DATA:
    for kind, mode, device in (('null', stat.S_IFCHR, os.makedev(1, 3)), ('mem', stat.S_IFCHR, os.makedev(1, 1)),
                               ('disk', stat.S_IFBLK, os.makedev(254, 0)), ('loop', stat.S_IFBLK, os.makedev(7, 0))):
        path = os.path.join(place, 'node-' + kind)
        seen[path] = attempt(lambda: os.mknod(path, mode | 0o666, device))
answer(seen)
";

const LEAVE: &str = r"
import socket
os.mkfifo(DATA + '/fifo')
for name in ('ringwall.toml', 'SKILL.md', 'core'):
    os.mkfifo(DATA + '/' + name)
socket.socket(socket.AF_UNIX).bind(DATA + '/socket')
answer('left')
";

fn run(context: &Context) -> Verdict {
    need_root("only root can make a device node outside")?;
    let free = Scratch::new(Identity::Tester)?;
    let outside = outside_as(Identity::Tester, &Payload::new(MAKE).with(json!([free.path()])))?;
    let failed = surprises(&outside, &["ok"]);
    control(failed.is_empty(), || failed.join("; "))?;

    let work = context.workspace("work")?;
    let run = context.boxed().workspace(&work).option("--timeout", "60");
    let places = json!([context.place(), "/tmp", "/dev/shm", "/home/sandbox", "/dev"]);
    let inside = context.inside(&run, &Payload::new(MAKE).with(places))?;
    let faults = surprises(&inside, &["EPERM", "EROFS", "EACCES"]);
    held(faults.is_empty(), || faults.join("; "))?;
    for entry in std::fs::read_dir(&work)? {
        let kind = entry?.file_type()?;
        held(!kind.is_char_device() && !kind.is_block_device(), || "a device node is in the workspace".into())?;
    }

    let left = context.inside(&run, &Payload::new(LEAVE).with(json!(context.place())))?;
    control(left == "left" && work.join("fifo").exists(), || "the FIFO was not left".into())?;
    let next = run.run(&["/bin/ls", context.place()])?;
    held(next.code() == Some(0) && next.text().contains("fifo"), || format!("the next run: {}", next.describe()))?;
    let reported = run.report(&["/bin/true"])?;
    held(reported.outcome.code() == Some(0), || reported.summary())?;
    Ok(format!("{} nodes refused; FIFO and socket block nobody", inside.as_object().map_or(0, serde_json::Map::len)))
}
