//! Attack s02: a box looks for the server's files (owner token, record, data of this and other
//! execs) by path and through `/proc`.

use serde_json::json;
use tests::support::payload::Payload;

use crate::a01_read_host_secrets::READ;
use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "s02", title: "the owner's token, the record, other artifacts", run };

/// Walks up from every mount and looks for files of the server.
const CLIMB: &str = r"
seen = []
tops = sorted({line.split()[4] for line in open('/proc/self/mountinfo')})
for top in tops + ['/proc/%s/%s' % (who, what) for who in ('1', 'self') for what in ('root', 'cwd')]:
    for up in ('', '/..', '/../..', '/../../..', '/../../../..'):
        for name in ('owner.token', 'db.sqlite', 'server.lock', 'mcp.sock', 'workspaces', '.staging', 'artifacts/../.staging'):
            if os.path.lexists(top + up + '/' + name):
                seen.append(top + up + '/' + name)
answer(seen)
";

fn run(context: &Context) -> Verdict {
    let server = context.server()?;
    let other = context.tenant("keeper")?;
    let left = other.run.run(&["/bin/sh", "-c", "echo secret; echo secret >/workspace/artifacts/kept"])?;
    control(left.text() == "secret\n", || left.describe())?;
    let mut paths = Vec::new();
    for name in ["owner.token", "db.sqlite", "db.sqlite-wal", "server.lock", "mcp.sock", "log"] {
        paths.push(server.data().join(name));
    }
    let projects = other.asked.work().join("../artifacts");
    for entry in std::fs::read_dir(&projects)? {
        let directory = entry?.path();
        paths.extend(["stdout.txt", "meta.json", "kept"].map(|name| directory.join(name)));
    }
    let read = Payload::new(READ).with(json!({ "paths": paths }));
    let outside = context.outside(&read)?;
    let token = server.data().join("owner.token").to_string_lossy().into_owned();
    control(outside[&token].as_str().is_some_and(|text| text.trim() == server.token), || "no token outside".into())?;

    let inside = context.inside(&context.boxed(), &read)?;
    let mut refused = 0;
    for (path, outcome) in inside.as_object().into_iter().flatten() {
        let absent = ["ENOENT", "EACCES", "EPERM", "ENOTDIR"].iter().any(|errno| outcome == errno);
        held(absent, || format!("{path} gave {outcome}"))?;
        refused += 1;
    }
    let reached = context.inside(&context.boxed(), &Payload::new(CLIMB))?;
    held(reached == json!([]), || format!("reached {reached}"))?;
    Ok(format!("{refused} paths absent or closed; nothing of the server's above any mount"))
}
