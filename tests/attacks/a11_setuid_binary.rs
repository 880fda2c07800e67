//! Attack a11: a set-user-ID program of root in the workspace is run in the box, and a box leaves
//! one behind.
//!
//! The first must gain nothing. The second would run on the host with the power of the workspace's
//! owner. Writable directories of a box are mounted nosuid and nodev.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::{Value, json};
use tests::support::actor::Identity;
use tests::support::payload::Payload;
use tests::support::scratch::{Scratch, give};

use crate::probe::{Context, Fault, Probe, Verdict, bare_as, control, held, need_root};

pub(crate) const PROBE: Probe = Probe { id: "a11", title: "run a planted setuid program, leave one behind", run };

const PROGRAM: &str = r#"
#include <stdio.h>
#include <unistd.h>
int main(void) { printf("%d %d\n", (int)geteuid(), (int)getegid()); return 0; }
"#;

const RUN: &str = r"
import subprocess
said = subprocess.run([DATA], capture_output=True, text=True)
flags = {}
with open('/proc/self/mountinfo') as lines:
    for line in lines:
        words = line.split()
        flags[words[4]] = words[5]
answer({'ids': said.stdout.split(), 'mounts': flags, 'uid': [os.getuid(), os.getgid()]})
";

/// Every call that can set the set-ID bits of a regular file, existing or new.
const LEAVE: &str = r"
os.umask(0)
os.chdir(DATA)
CREATE = os.O_CREAT | os.O_WRONLY
open('plain', 'w').close()
handle = os.open('plain', os.O_WRONLY)
seen = {}
for bits in (0o4755, 0o2755, 0o6777):
    seen['chmod %o' % bits] = attempt(lambda: os.chmod('plain', bits))
    seen['fchmod %o' % bits] = attempt(lambda: os.fchmod(handle, bits))
    seen['fchmodat %o' % bits] = attempt(lambda: os.chmod('plain', bits, dir_fd=os.open('.', os.O_RDONLY)))
    result, number = raw(452, -100, b'plain', bits, 0)
    seen['fchmodat2 %o' % bits] = 'ok' if result == 0 else name_of(number)
    seen['open %o' % bits] = attempt(lambda: os.close(os.open('by-open-%o' % bits, CREATE, bits)))
    seen['mknod %o' % bits] = attempt(lambda: os.mknod('by-mknod-%o' % bits, 0o100000 | bits))
    how = ctypes.create_string_buffer(struct.pack('3Q', CREATE, bits, 0))
    result, number = raw(437, -100, b'by-openat2-%o' % bits, how, 24)
    seen['openat2 %o' % bits] = 'ok' if result >= 0 else name_of(number)
    def unnamed():
        number = os.open('.', os.O_TMPFILE | os.O_WRONLY, bits)
        if libc.linkat(-100, b'/proc/self/fd/%d' % number, -100, b'by-tmpfile-%o' % bits, 0x400) != 0:
            raise OSError(ctypes.get_errno(), 'linkat')
    seen['O_TMPFILE %o' % bits] = attempt(unnamed)
    if os.uname().machine == 'x86_64':
        result, number = raw(85, b'by-creat-%o' % bits, bits)
        seen['creat %o' % bits] = 'ok' if result >= 0 else name_of(number)
answer(seen)
";

fn run(context: &Context) -> Verdict {
    need_root("only root can plant a program that is setuid root")?;
    let left = leave(context)?;
    let work = context.workspace("work")?;
    // Built in a directory of the tester, then copied to the workspace with root as owner.
    let build = Scratch::new(Identity::Tester)?;
    let source = build.file("program.c", PROGRAM.as_bytes(), 0o644)?;
    let program = work.join("program");
    let words = ["gcc".as_ref(), "-O1".as_ref(), "-o".as_ref(), program.as_os_str(), source.as_os_str()];
    let gcc = bare_as(Identity::Tester, &words)?;
    control(gcc.code() == Some(0), || gcc.describe())?;
    give(&program, Identity::Tester)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755))?;
    let outside = bare_as(Identity::Unprivileged, &[&program])?;
    control(outside.text().trim() == "0 0", || format!("no gain outside either: {}", outside.describe()))?;

    let run = context.boxed().workspace(&work);
    let inside = context.inside(&run, &Payload::new(RUN).with(json!(format!("{}/program", context.place()))))?;
    held(inside["ids"] == json!(["1000", "1000"]), || format!("the program ran as {}", inside["ids"]))?;
    held(inside["uid"] == json!([1000, 1000]), || format!("the box runs as {}", inside["uid"]))?;
    let mut bare = Vec::new();
    for (place, options) in inside["mounts"].as_object().into_iter().flatten() {
        let has = |option: &str| options.as_str().unwrap_or("").split(',').any(|word| word == option);
        let writable = [context.place(), "/tmp", "/dev/shm", "/home/sandbox"].contains(&place.as_str());
        held(!writable || (has("nosuid") && has("nodev")), || format!("{place} is mounted {options}"))?;
        if !has("nosuid") {
            bare.push(place.clone());
        }
    }
    let listed =
        [context.place(), "/tmp"].iter().all(|place| inside["mounts"].get(place).is_some_and(Value::is_string));
    control(listed, || format!("the mount table does not list the workspace: {}", inside["mounts"]))?;
    Ok(format!("ran as 1000; {left} ways of leaving one refused; mounts without nosuid: {bare:?}"))
}

/// Tries to leave a set-ID file in a workspace. The verdict is the mode on the host.
fn leave(context: &Context) -> Result<usize, Fault> {
    let free = context.scratch.directory("free")?;
    let outside = context.outside(&Payload::new(LEAVE).with(json!(free)))?;
    control(set_id_files(&free)?.len() >= 10, || format!("few are left outside: {outside}"))?;
    let kept = context.workspace("kept")?;
    let inside =
        context.inside(&context.boxed().workspace(&kept), &Payload::new(LEAVE).with(json!(context.place())))?;
    let found = set_id_files(&kept)?;
    held(found.is_empty(), || format!("the box left {found:?} on the host: {inside}"))?;
    Ok(inside.as_object().map_or(0, serde_json::Map::len))
}

fn set_id_files(directory: &Path) -> Result<Vec<String>, Fault> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if entry.metadata()?.mode() & 0o6000 != 0 {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(found)
}
