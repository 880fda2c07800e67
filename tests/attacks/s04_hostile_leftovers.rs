//! Attack s04: a box leaves links, FIFOs, sockets, names that are not UTF-8, trees deeper than a
//! path, unreadable directories and our own file names in its artifacts and workspace. The server
//! must collect them without following links, and the project's next exec must run.

use serde_json::{Value, json};
use tests::support::canary::Canary;
use tests::support::payload::Payload;

use crate::probe::{Context, Probe, Verdict, control, held, untouched};

pub(crate) const PROBE: Probe = Probe { id: "s04", title: "hostile artifacts and workspaces between execs", run };

const PLANT: &str = r"
import socket
target = DATA['target']
def plant():
    for name in ('stdout.txt', 'stderr.txt', 'meta.json', 'manifest.json', 'link', 'e_0123456789abcdef'):
        os.symlink(target, name)
    os.symlink('../' * 20 + target[1:], 'relative')
    os.symlink('/', 'root')
    os.symlink('.', 'loop')
    os.symlink(os.path.dirname(target), 'directory')
    os.mkfifo('fifo')
    socket.socket(socket.AF_UNIX).bind('socket')
    for name in (b'new\nline', b'\xff\xfe', b'\x1b[2J', b'back\\slash', b'..x', b' ', b'-rf', 'é'.encode(), b'C:'):
        with open(name, 'wb') as file:
            file.write(b'harmless')
    os.link('-rf', 'alias')
    os.mkdir('closed')
    open('closed/file', 'w').close()
    os.chmod('closed', 0)
    with open('hole', 'wb') as file:
        file.truncate(1 << 40)
    open('unreadable', 'w').close()
    os.chmod('unreadable', 0)
    top = os.getcwd()
    for level in range(1500):
        os.mkdir('d')
        os.chdir('d')
    os.chdir(top)
    os.mkdir('many')
    for number in range(10500):
        open('many/%d' % number, 'w').close()
os.chdir('/workspace/work')
attempt(lambda: os.rename('/workspace/artifacts', '/workspace/work/a'))
attempt(lambda: os.symlink(target, '/workspace/inputs/planted'))
attempt(lambda: os.rmdir('/workspace/artifacts'))
plant()
os.chdir('/workspace/artifacts')
plant()
os.chmod('/workspace/artifacts', 0)
os.chmod('/workspace/work', 0)
answer('planted')
";

fn run(context: &Context) -> Verdict {
    let server = context.server()?;
    let canary = Canary::plant(&context.scratch, "secret")?;
    let tenant = context.tenant("planter")?;
    let plant = Payload::new(PLANT).with(json!({ "target": canary.path() }));
    let planted = tenant.run.run_payload(&plant)?;
    control(planted.text().contains("planted"), || planted.describe())?;
    let naive = std::fs::read_to_string(tenant.asked.work().join("link")).unwrap_or_default();
    control(naive == canary.secret(), || "a planted link does not lead to the canary".into())?;

    let ask = |path: &str| server.ask_as(&tenant.token, "GET", path, None);
    let execs = ask("/sandbox/execs").expect(200);
    let newest = &execs[0];
    let reason = ask(&format!("/sandbox/execs/{}", newest["exec_id"].as_str().unwrap_or_default())).expect(200);
    held(reason["error_reason"]["code"] == "ARTIFACTS_LIMIT", || format!("not told as too much: {reason}"))?;
    let base = format!("/sandbox/execs/{}/artifacts", newest["exec_id"].as_str().unwrap_or_default());
    let listed = ask(&base).expect(200);
    let files: Vec<&Value> = listed["files"].as_array().into_iter().flatten().collect();
    held(files.len() <= 10_004, || format!("{} files are listed", files.len()))?;
    for file in files.iter().filter(|file| file["path"].as_str().is_some_and(|path| !path.starts_with("many/"))) {
        let path = file["path"].as_str().unwrap_or_default();
        let encoded: String = path.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let read = ask(&format!("{base}/{encoded}"));
        held(read.status == 200, || format!("{path:?} is listed and cannot be read: {}", read.status))?;
        let leaked = String::from_utf8_lossy(&read.bytes).contains(canary.secret());
        held(!leaked, || format!("{path:?} has the canary's content"))?;
    }
    for name in ["link", "relative", "root", "loop", "directory/secret", "fifo", "socket"] {
        let status = ask(&format!("{base}/{name}")).status;
        held(matches!(status, 400 | 404), || format!("{name} can be read: {status}"))?;
    }
    let meta: Value = serde_json::from_slice(&ask(&format!("{base}/meta.json")).bytes).unwrap_or_default();
    held(meta["exec_id"] == newest["exec_id"], || "meta.json is not the server's own".into())?;

    let mut body = json!({ "project_id": tenant.asked.project(), "inputs": [{ "path": "d/d/f", "content": "in" }] });
    body["exec"] = json!({ "kind": "shell", "command": "bash",
        "args": ["-lc", "cat /workspace/inputs/d/d/f; ls /workspace/inputs; test -p fifo && echo kept"] });
    let next = server.ask_as(&tenant.token, "POST", "/sandbox/execs", Some(&body)).expect(200);
    let said = ask(&format!("/sandbox/execs/{}/stdout", next["exec_id"].as_str().unwrap_or_default())).expect(200);
    held(said["content"] == "ind\nkept\n", || format!("the next exec: {next} {said}"))?;
    let staging = tenant.asked.work().join("../../../.staging");
    // An empty directory is kept there for the next exec.
    let is_warm =
        |entry: &std::io::Result<std::fs::DirEntry>| matches!(entry, Ok(entry) if entry.file_name() == "spare");
    let left = std::fs::read_dir(staging)?.filter(|entry| !is_warm(entry)).count();
    held(left == 0, || format!("{left} things are left where they were collected"))?;
    untouched(&canary)?;
    Ok(format!("{} files kept, {} left out, the canary untouched", files.len(), meta["skipped_total"]))
}
