//! Attack a02: a box changes files and directories below a `--ro` directory that it owns, so that
//! only the mount protects it, and the host's `/usr` and `/etc`.

use serde_json::json;
use tests::support::canary::{Canary, Fingerprint};
use tests::support::payload::Payload;

use crate::probe::{Context, Guarded, Probe, Verdict, control, held, surprises, untouched};

pub(crate) const PROBE: Probe = Probe { id: "a02", title: "change files on read-only paths", run };

const CHANGE: &str = r"
import mmap
place, file, writable = DATA['place'], DATA['file'], DATA['writable']
target = os.path.join(place, file)
def map_and_write():
    descriptor = os.open(target, os.O_RDWR)
    with mmap.mmap(descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as area:
        area[0:1] = b'X'
def opened(flags):
    os.close(os.open(target, flags))
seen = {}
seen['open for write'] = attempt(lambda: opened(os.O_WRONLY))
seen['open for read and write'] = attempt(lambda: opened(os.O_RDWR))
seen['append'] = attempt(lambda: os.write(os.open(target, os.O_WRONLY | os.O_APPEND), b'x'))
seen['shared mapping'] = attempt(map_and_write)
seen['open and truncate'] = attempt(lambda: opened(os.O_RDONLY | os.O_TRUNC))
seen['chmod'] = attempt(lambda: os.chmod(target, 0o600))
seen['utimes'] = attempt(lambda: os.utime(target, (1, 1)))
seen['setxattr'] = attempt(lambda: os.setxattr(target, 'user.mark', b'1'))
seen['chown to itself'] = attempt(lambda: os.chown(target, os.getuid(), -1))
seen['create'] = attempt(lambda: os.close(os.open(os.path.join(place, 'new'), os.O_CREAT | os.O_WRONLY)))
seen['mkdir'] = attempt(lambda: os.mkdir(os.path.join(place, 'newdir')))
seen['symlink'] = attempt(lambda: os.symlink('x', os.path.join(place, 'newlink')))
seen['mkfifo'] = attempt(lambda: os.mkfifo(os.path.join(place, 'newfifo')))
seen['rename beside'] = attempt(lambda: os.rename(target, target + '.moved'))
if seen['rename beside'] == 'ok':
    os.rename(target + '.moved', target)
seen['rename out'] = attempt(lambda: os.rename(target, os.path.join(writable, 'moved')))
if seen['rename out'] == 'ok':
    os.rename(os.path.join(writable, 'moved'), target)
open(os.path.join(writable, 'other'), 'w').close()
seen['rename over'] = attempt(lambda: os.rename(os.path.join(writable, 'other'), target))
seen['unlink'] = attempt(lambda: os.unlink(target))
seen['chmod directory'] = attempt(lambda: os.chmod(place, 0o700))
answer(seen)
";

fn run(context: &Context) -> Verdict {
    let scratch = &context.scratch;
    let (free, free_work) = (scratch.directory("free")?, scratch.directory("free-work")?);
    Canary::plant(scratch, "free/file")?;
    let outside =
        context.outside(&Payload::new(CHANGE).with(json!({ "place": free, "file": "file", "writable": free_work })))?;
    let failed = surprises(&outside, &["ok"]);
    control(failed.is_empty(), || failed.join("; "))?;

    let work = context.workspace("work")?;
    let Guarded { canary, inside, run } = context.guarded()?;
    let guarded = canary.path().parent().unwrap_or(canary.path()).to_owned();
    let directory = std::fs::metadata(&guarded)?.permissions();
    let run = run.workspace(&work);
    let refusals = ["EROFS", "EPERM", "EACCES", "EXDEV"];
    let data = |place: &str, file: &str| json!({ "place": place, "file": file, "writable": context.place() });
    let inside = context.inside(&run, &Payload::new(CHANGE).with(data(inside.trim_end_matches("/file"), "file")))?;
    let mut faults = surprises(&inside, &refusals);

    let system = std::path::Path::new("/usr/bin/env");
    let before = Fingerprint::of(system)?;
    for (place, file) in [("/usr/bin", "env"), ("/etc", "passwd"), ("/bin", "sh")] {
        let answer = context.inside(&run, &Payload::new(CHANGE).with(data(place, file)))?;
        faults.extend(surprises(&answer, &refusals).into_iter().map(|fault| format!("{place}/{file}: {fault}")));
    }
    untouched(&canary)?;
    held(Fingerprint::of(system)? == before, || "/usr/bin/env changed on the host".into())?;
    held(std::fs::metadata(&guarded)?.permissions() == directory, || "the directory's mode changed".into())?;
    held(faults.is_empty(), || faults.join("; "))?;
    Ok(format!("{} acts refused on four places, canary unchanged", inside.as_object().map_or(0, serde_json::Map::len)))
}
