//! Attack d03: `su`, `sudo` and a program with file capabilities, which give an ordinary user power
//! on the host, must give none in a box.

use std::os::unix::fs::MetadataExt;

use serde_json::json;
use tests::support::actor::Identity;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, bare_as, control, held, need_root};

pub(crate) const PROBE: Probe = Probe { id: "d03", title: "su, sudo, a program with file capabilities", run };

/// CAP_NET_RAW, CAP_SYS_ADMIN and CAP_DAC_OVERRIDE, permitted and effective, in version 2 of the kernel's format.
const MARK: &str = r"
os.setxattr(DATA, 'security.capability', struct.pack('<5I', 0x02000001, (1 << 13) | (1 << 21) | (1 << 1), 0, 0, 0))
answer('marked')
";

const TRY: &str = r"
import subprocess
def said(*words):
    try:
        done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
        return done.stdout + done.stderr
    except OSError as error:
        return name_of(error.errno)
answer({'capable': said(DATA + '/capable', 'CapEff', '/proc/self/status'),
        'su': said('/bin/su', '-c', 'id -u'), 'su root': said('/bin/su', 'root', '-c', 'id -u'),
        'sudo': said('sudo', '-n', 'id', '-u'),
        'newgrp': said('newgrp', 'root'), 'mount': said('mount', '-t', 'tmpfs', 'none', '/tmp'),
        'own': said('id', '-u'), 'passwd': said('/usr/bin/passwd', '-d', 'root')})
";

fn run(context: &Context) -> Verdict {
    need_root("only root can give a file capabilities")?;
    let work = context.workspace("work")?;
    let capable = work.join("capable");
    std::fs::copy("/usr/bin/grep", &capable)?;
    let marked = crate::probe::outside_as(Identity::Tester, &Payload::new(MARK).with(json!(capable)))?;
    control(marked == "marked", || "the file could not be given capabilities".into())?;
    let outside =
        bare_as(Identity::Unprivileged, &[capable.as_os_str(), "CapEff".as_ref(), "/proc/self/status".as_ref()])?;
    control(outside.text().contains("0000000000202002"), || format!("no gain outside either: {}", outside.describe()))?;
    control(std::fs::metadata("/usr/bin/su")?.mode() & 0o4000 != 0, || "su is not setuid on the host".into())?;

    let inside = context.inside(&context.boxed().workspace(&work), &Payload::new(TRY).with(json!(context.place())))?;
    held(inside["own"] == "1000\n", || format!("the box runs as {}", inside["own"]))?;
    let shown = inside["capable"].as_str().unwrap_or("");
    // The kernel may refuse to run it, or run it without its capabilities.
    held(!shown.contains("CapEff") || shown.contains("0000000000000000"), || format!("the program has {shown}"))?;
    for tool in ["su", "su root", "sudo", "newgrp"] {
        let text = inside[tool].as_str().unwrap_or("");
        held(!text.lines().any(|line| line.trim() == "0"), || format!("{tool} said {text}"))?;
    }
    Ok(format!("file capabilities: {:?}; su: {:?}", shown.trim(), inside["su"].as_str().unwrap_or("").trim()))
}
