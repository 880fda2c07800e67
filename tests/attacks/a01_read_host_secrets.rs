//! Attack a01: a box reads a world-readable host file and the host's password hashes, by path and
//! through the links of `/proc` into other roots. They must not exist in the box.

use std::path::Path;

use serde_json::json;
use tests::support::canary::Canary;
use tests::support::payload::Payload;
use tests::support::scratch::Scratch;

use crate::probe::{Context, Probe, Verdict, control, held, untouched};

pub(crate) const PROBE: Probe = Probe { id: "a01", title: "read host secrets", run };

pub(crate) const READ: &str = r"
seen = {}
for path in DATA['paths']:
    for way in ('', '/proc/self/root', '/proc/1/root', '/proc/1/cwd', '/proc/self/cwd/../..', '/..'):
        try:
            with open(way + path, 'rb') as file:
                seen[way + path] = file.read(4096).decode('latin-1')
        except OSError as error:
            seen[way + path] = name_of(error.errno)
answer(seen)
";

fn run(context: &Context) -> Verdict {
    let owner = context.mode.identity();
    let places = ["/tmp", "/var/tmp", "/dev/shm"];
    let scratches =
        places.iter().map(|place| Scratch::inside(Path::new(place), owner)).collect::<Result<Vec<_>, _>>()?;
    let canaries = scratches.iter().map(|scratch| Canary::plant(scratch, "secret")).collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<String> = canaries.iter().map(Canary::text).collect();
    let payload = Payload::new(READ).with(json!({ "paths": &paths }));
    let outside = context.outside(&payload)?;
    for canary in &canaries {
        control(outside[canary.text()] == canary.secret(), || format!("{} unreadable outside", canary.text()))?;
    }
    control(Path::new("/etc/shadow").exists(), || "the host has no /etc/shadow".into())?;

    paths.extend(
        ["/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/root/.ssh/id_rsa", "/root/.bashrc"].map(String::from),
    );
    let inside = context.inside(&context.boxed(), &Payload::new(READ).with(json!({ "paths": paths })))?;
    let mut refused = 0;
    for (path, outcome) in inside.as_object().into_iter().flatten() {
        let absent = ["ENOENT", "EACCES", "EPERM", "ENOTDIR"].iter().any(|errno| outcome == errno);
        held(absent, || format!("{path} gave {outcome}"))?;
        refused += 1;
    }
    canaries.iter().try_for_each(untouched)?;
    Ok(format!("{refused} paths absent or closed"))
}
