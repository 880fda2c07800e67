//! An exec of a server, used like a command: a small client forwards input and output and exits with the exec's code, so
//! that the same probe runs through `ringwall run` and through a server.
//! Options that a server's exec does not have (a terminal, a directory of the caller's choice) are [`NotServed`] errors.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Map, Value, json};

use super::payload::PYTHON;
use super::server::Server;

/// The workspace of a server's exec.
pub const SERVED_WORKSPACE: &str = "/workspace/work";

/// The mount point of the callers' files, read-only.
pub const SERVED_INPUTS: &str = "/workspace/inputs";

/// A project of a server in which the execs run.
#[derive(Clone, Debug)]
pub struct Asked {
    address: String,
    token: String,
    project: String,
    /// Its directory on the host.
    directory: PathBuf,
}

/// An option that a server's exec does not have.
#[derive(Debug)]
pub struct NotServed(pub String);

impl fmt::Display for NotServed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for NotServed {}

/// Makes the names of projects and inputs unique.
static COUNT: AtomicU64 = AtomicU64::new(1);

impl Asked {
    /// Creates a project of this user and its directories, by running an exec in it.
    pub fn of(server: &Server, token: &str, user: &str) -> Self {
        let project = format!("probe-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let body = json!({ "project_id": project, "user_id": user, "exec": {
            "kind": "shell", "command": "bash", "args": ["-lc", "true"] } });
        server.ask_as(token, "POST", "/sandbox/execs", Some(&body)).expect(200);
        let directory = server.data().join("workspaces").join(user).join("default/projects").join(&project);
        Self { address: server.address.clone(), token: token.to_owned(), project, directory }
    }

    pub fn project(&self) -> &str {
        &self.project
    }

    /// The host directory of `/workspace/work`.
    pub fn work(&self) -> PathBuf {
        self.directory.join("work")
    }

    /// The host directory of `/workspace/inputs`.
    pub fn inputs(&self) -> PathBuf {
        self.directory.join("inputs")
    }

    /// The command line of a client that runs these words with flags of `ringwall run`.
    pub fn line(&self, flags: &[OsString], words: Vec<OsString>) -> io::Result<Vec<OsString>> {
        let mut limits = Map::new();
        let mut environment = Map::new();
        let mut shows = "output";
        let mut flags = flags.iter().map(|flag| flag.to_string_lossy());
        while let Some(flag) = flags.next() {
            if flag == "--json" {
                shows = "report";
                continue;
            }
            let value = flags.next().unwrap_or_default();
            let number = || value.parse::<u64>().map_err(io::Error::other);
            match &*flag {
                "--timeout" => limits.insert("timeout_ms".into(), (number()? * 1000).into()),
                "--memory-mb" => limits.insert("memory_mb".into(), number()?.into()),
                "--pids" => limits.insert("pids".into(), number()?.into()),
                "--cpus" => limits.insert("cpu_cores".into(), value.parse::<f64>().map_err(io::Error::other)?.into()),
                "--env" => {
                    let (name, value) = value.split_once('=').unwrap_or((&value, ""));
                    environment.insert(name.into(), value.into())
                }
                "--workspace" if Path::new(&*value) == self.work() => None,
                other => return Err(not_served(&format!("an exec of a server has nothing like {other}"))),
            };
        }
        let exec = json!({ "kind": "shell", "command": "bash", "args": ["-lc"], "env": environment });
        let request = json!({
            "address": self.address,
            "token": self.token,
            "inputs": self.inputs(),
            "input": format!("input-{}", COUNT.fetch_add(1, Ordering::Relaxed)),
            "shows": shows,
            "body": { "project_id": self.project, "exec": exec, "policy_overrides": Value::Object(limits) },
        });
        let mut line: Vec<OsString> = [PYTHON, "-I", "-c", CLIENT].map(OsString::from).into();
        line.push(request.to_string().into());
        line.extend(words);
        Ok(line)
    }
}

/// The error for a probe that a server's exec cannot run.
pub fn not_served(why: &str) -> io::Error {
    io::Error::other(NotServed(why.to_owned()))
}

/// A server's exec has no standard input, so the client forwards its own through a FIFO in the project's inputs.
const CLIENT: &str = r"
import base64, http.client, json, os, shlex, sys, threading
request, words = json.loads(sys.argv[1]), sys.argv[2:]
source = os.path.join(request['inputs'], request['input'])
os.mkfifo(source)
os.chmod(source, 0o644)
script = 'exec </workspace/inputs/%s; exec %s' % (request['input'], shlex.join(words))
request['body']['exec']['args'].append(script)
def leave(code):
    try:
        os.unlink(source)
    except FileNotFoundError:
        pass
    sys.stdout.flush()
    os._exit(code)
def feed():
    with open(source, 'wb', buffering=0) as pipe:
        try:
            while piece := os.read(0, 65536):
                pipe.write(piece)
        except BrokenPipeError:
            pass
def ask(method, path, body=None, prefer=None):
    connection = http.client.HTTPConnection(request['address'])
    headers = {'authorization': 'Bearer ' + request['token'], 'prefer': prefer or 'wait'}
    connection.request(method, path, body and json.dumps(body), headers)
    return connection.getresponse()
answer = ask('POST', '/sandbox/execs', request['body'], 'respond-async')
accepted = json.loads(answer.read())
if answer.status != 202:
    sys.stderr.write(json.dumps(accepted) + '\n')
    leave(2)
threading.Thread(target=feed, daemon=True).start()
path = '/sandbox/execs/' + accepted['exec_id']
kept, name = {'stdout': b'', 'stderr': b''}, ''
for line in ask('GET', path + '/events?encoding=base64'):
    field, _, value = line.rstrip(b'\n').partition(b': ')
    if field == b'event':
        name = value.decode()
    elif field == b'data' and name in kept:
        piece = base64.b64decode(json.loads(value)['base64'])
        if request['shows'] == 'report':
            kept[name] += piece
        else:
            stream = sys.stdout.buffer if name == 'stdout' else sys.stderr.buffer
            stream.write(piece)
            stream.flush()
    elif field == b'data' and name == 'end':
        end = json.loads(value)
        break
reason = (end['error_reason'] or {}).get('code')
code = end['exit_code']
if code is None:
    sys.stderr.write(json.dumps(end['error_reason']) + '\n')
    code = {'TIMEOUT': 124}.get(end['status'], 2)
if request['shows'] == 'report':
    report = {stream: piece.decode(errors='replace') for stream, piece in kept.items()}
    report.update({key + '_truncated': end[key + '_truncated'] for key in kept})
    report.update(
        exit_code=None if code > 128 else code, signal=code - 128 if code > 128 else None, timed_out=reason == 'TIMEOUT',
        oom_killed=reason == 'OOM', duration_ms=end['duration_ms'], protections=end['protections'],
        usage={'cpu_ms': end['usage']['cpu_ms'], 'peak_memory_bytes': end['usage']['max_rss_bytes']})
    sys.stdout.write(json.dumps(report))
leave(code)
";
