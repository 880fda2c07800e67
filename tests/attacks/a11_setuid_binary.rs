//! A set-user-ID program in the workspace, owned by root on the host, gives nothing when it is run in the box:
//! neither inside, nor in the credentials that the host sees. What a box can write to is mounted nosuid and nodev.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tests::support::actor::Identity;
use tests::support::payload::Payload;
use tests::support::scratch::{Scratch, give};

use crate::probe::{Context, Probe, Verdict, bare_as, control, held, need_root};

pub(crate) const PROBE: Probe = Probe { id: "a11", title: "run a planted setuid program", run };

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

fn run(context: &Context) -> Verdict {
    need_root("only root can plant a program that is setuid root")?;
    let work = context.scratch.directory("work")?;
    // Built where only the tester writes; then placed in the workspace as root's own.
    let build = Scratch::new(Identity::Tester)?;
    let source = build.file("program.c", PROGRAM.as_bytes(), 0o644)?;
    let program = work.join("program");
    let gcc = bare_as(
        Identity::Tester,
        &["gcc".as_ref(), "-O1".as_ref(), "-o".as_ref(), program.as_os_str(), source.as_os_str()],
    )?;
    control(gcc.code() == Some(0), || gcc.describe())?;
    give(&program, Identity::Tester)?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o6755))?;

    let outside = bare_as(Identity::Unprivileged, &[&program])?;
    control(outside.text().trim() == "0 0", || format!("no gain outside either: {}", outside.describe()))?;

    let run = context.boxed().workspace(&work);
    let inside = context.inside(&run, &Payload::new(RUN).with(json!("/workspace/program")))?;
    held(inside["ids"] == json!(["1000", "1000"]), || format!("the program ran as {}", inside["ids"]))?;
    held(inside["uid"] == json!([1000, 1000]), || format!("the box runs as {}", inside["uid"]))?;
    let mut bare = Vec::new();
    for (place, options) in inside["mounts"].as_object().into_iter().flatten() {
        let has = |option: &str| options.as_str().unwrap_or("").split(',').any(|word| word == option);
        let writable = ["/workspace", "/tmp", "/dev/shm", "/home/sandbox"].contains(&place.as_str());
        held(!writable || (has("nosuid") && has("nodev")), || format!("{place} is mounted {options}"))?;
        if !has("nosuid") {
            bare.push(place.clone());
        }
    }
    let listed = ["/workspace", "/tmp"].iter().all(|place| inside["mounts"].get(place).is_some_and(Value::is_string));
    control(listed, || format!("the mount table does not list the workspace: {}", inside["mounts"]))?;
    Ok(format!("ran as 1000; mounts without nosuid: {bare:?}"))
}
