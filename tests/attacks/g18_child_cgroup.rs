//! Attack g18: a box makes a cgroup to escape its limits. No hierarchy may be visible or mountable.
//! As root the box's cgroup is removed with it, or is empty if a server keeps it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tests::support::actor::{Identity, Mode};
use tests::support::host;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, comes, control, held, need_root, outside_as};

pub(crate) const PROBE: Probe = Probe { id: "g18", title: "make a child cgroup to dodge limits", run };

/// Makes a cgroup in every directory that contains `cgroup.procs`, and removes it if that succeeded.
const MAKE: &str = r"
seen = {}
for place in DATA['places']:
    for top, directories, files in os.walk(place):
        if 'cgroup.procs' in files:
            path = os.path.join(top, 'rw-probe-%d' % os.getpid())
            seen[top] = attempt(lambda: os.mkdir(path))
            if seen[top] == 'ok':
                os.rmdir(path)
            directories[:] = []
for kind in ('cgroup', 'cgroup2'):
    seen['mount ' + kind] = call('mount', b'none', b'/tmp', kind.encode(), 0, b'memory' if kind == 'cgroup' else None)
answer({'seen': seen, 'exists': os.path.exists('/sys/fs/cgroup')})
if DATA['stay']:
    sys.stdin.read()
";

fn run(context: &Context) -> Verdict {
    need_root("only root can make cgroups outside")?;
    // The control does not try the mounts, which would change the host.
    let program = MAKE.replace("for kind in ('cgroup', 'cgroup2')", "for kind in ()");
    let outside = outside_as(
        Identity::Tester,
        &Payload::new(&program).with(json!({ "places": ["/sys/fs/cgroup"], "stay": false })),
    )?;
    let makes = outside["seen"].as_object().into_iter().flatten().any(|(_, outcome)| outcome == "ok");
    control(makes, || format!("no cgroup can be made outside either: {outside}"))?;

    let payload =
        Payload::new(MAKE).with(json!({ "places": ["/sys", "/proc", "/tmp", context.place()], "stay": true }));
    let mut live = context.boxed().option("--memory-mb", "256").option("--pids", "64").start_payload(&payload)?;
    let inside: serde_json::Value = serde_json::from_str(&live.line()?).unwrap_or_default();
    let groups = cgroups_of_box(context.above(&live))?;
    live.finish()?;
    held(inside["exists"] == false, || "/sys/fs/cgroup exists in the box".into())?;
    for (act, outcome) in inside["seen"].as_object().into_iter().flatten() {
        held(outcome == "EPERM", || format!("{act} → {outcome}"))?;
    }
    // A server may keep empty version 1 groups for another box.
    let is_over = |path: &PathBuf| match fs::read_to_string(path.join("cgroup.procs")) {
        Ok(processes) => context.server().is_ok() && processes.is_empty(),
        Err(_) => !path.exists(),
    };
    comes(|| groups.iter().all(is_over));
    let left: Vec<&PathBuf> = groups.iter().filter(|path| !is_over(path)).collect();
    held(left.is_empty(), || format!("cgroups are left behind: {left:?}"))?;
    if context.mode == Mode::Root {
        control(!groups.is_empty(), || "as root the box was in no cgroup of its own".into())?;
    }
    Ok(format!("none to be made; {} cgroups of the box are gone", groups.len()))
}

/// The cgroup directories of the box that are not the test's, in all hierarchies.
fn cgroups_of_box(starter: u32) -> Result<Vec<PathBuf>, crate::probe::Fault> {
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let mut found = Vec::new();
    for number in host::descendants(starter)? {
        let Ok(lines) = fs::read_to_string(format!("/proc/{number}/cgroup")) else {
            continue;
        };
        for line in lines.lines().filter(|line| !own.lines().any(|mine| mine == *line)) {
            let mut parts = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
                continue;
            };
            let top = match controllers.split(',').next() {
                Some("") | None if Path::new("/sys/fs/cgroup/unified").exists() => "unified",
                Some("") | None => ".",
                Some(first) => first.trim_start_matches("name="),
            };
            let directory = Path::new("/sys/fs/cgroup").join(top).join(path.trim_start_matches('/'));
            if directory.exists() && !found.contains(&directory) {
                found.push(directory);
            }
        }
    }
    Ok(found)
}
