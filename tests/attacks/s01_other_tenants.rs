//! Attack s01: execs of two users run side by side and look for each other's files, processes,
//! sockets, shared memory, mounts and groups, and ask the server. Control: a second exec of the
//! first user sees them.

use serde_json::json;
use tests::support::payload::Payload;
use tests::support::scratch::token;

use crate::a13_shared_memory_residue::{FIND, LEAVE};
use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "s01", title: "one user's exec looks for another's", run };

/// Looks for a mark in names and in the kernel's tables. The mark is passed in two halves, so that this text does not
/// match.
const SEEK: &str = r"
mark, found = ''.join(DATA), []
for top in ('/workspace', '/tmp', '/var', '/dev', '/home', '/etc'):
    for place, directories, files in os.walk(top):
        found += [os.path.join(place, name) for name in directories + files if mark in name]
tables = ['self/mountinfo', 'self/cgroup', 'locks', 'keys', 'key-users', 'net/unix', 'sysvipc/shm', 'sysvipc/msg']
tables += [name + '/' + part for name in os.listdir('/proc') if name.isdigit() for part in ('cmdline', 'environ', 'cgroup')]
for table in tables:
    try:
        with open('/proc/' + table, 'rb') as file:
            if mark.encode() in file.read():
                found.append('/proc/' + table)
    except OSError:
        pass
answer(found)
";

fn run(context: &Context) -> Verdict {
    let server = context.server()?;
    let mark = format!("m{}", &token()?[..20]);
    let (one, other) = (context.tenant(&mark)?, context.tenant("bystander")?);
    std::fs::write(one.asked.work().join(&mark), "a file of the first user's")?;
    let key = i64::from_str_radix(&token()?[..7], 16).unwrap_or(0x051f_ca11);
    let data = json!({ "mark": mark, "key": key });
    let mut live = one.run.start_payload(&Payload::new(LEAVE).with(data.clone()))?;
    live.line()?;

    let seek = Payload::new(SEEK).with(json!([mark[..10], mark[10..]]));
    let own = context.inside(&one.run, &seek)?.to_string();
    control(own.contains("/workspace/work/m") && own.contains("mountinfo"), || format!("its own user found {own}"))?;
    let foreign = context.inside(&other.run, &seek)?;
    let beside = context.inside(&other.run, &Payload::new(FIND).with(data))?;
    let execs = server.ask_as(&one.token, "GET", "/sandbox/execs", None).expect(200);
    let id = execs[0]["exec_id"].as_str().unwrap_or_default().to_owned();
    for (method, part) in [
        ("GET", ""),
        ("GET", "/stdout"),
        ("GET", "/events"),
        ("GET", "/artifacts"),
        ("GET", "/artifacts/stdout.txt"),
        ("GET", "/observation"),
        ("DELETE", ""),
    ] {
        let path = format!("/sandbox/execs/{id}{part}");
        let status = server.ask_as(&other.token, method, &path, None).status;
        held(status == 404, || format!("{method} {path} by the other user: {status}"))?;
    }
    control(server.ask_as(&one.token, "GET", &format!("/sandbox/execs/{id}"), None).status == 200, || id.clone())?;
    let listed = server.ask_as(&other.token, "GET", "/sandbox/execs", None).expect(200).to_string();
    held(!listed.contains(&mark), || format!("the other user is told of {listed}"))?;
    let body = json!({ "project_id": "p", "user_id": mark, "exec": { "kind": "shell", "command": "bash", "args": ["-lc", "true"] } });
    let status = server.ask_as(&other.token, "POST", "/sandbox/execs", Some(&body)).status;
    held(status == 403, || format!("an exec in the first user's workspace: {status}"))?;
    live.finish()?;
    held(foreign == json!([]), || format!("found of the other user: {foreign}"))?;
    for (kind, outcome) in beside.as_object().into_iter().flatten() {
        held(outcome != "ok", || format!("{kind} of the other user is seen"))?;
    }
    Ok(format!("its own user found {own}, the other nothing"))
}
