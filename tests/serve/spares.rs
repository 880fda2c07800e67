//! Boxes made ahead by a server: used where they serve, and gone with it whatever way it ends.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::host::{descendants, is_alive};
use tests::support::server::Server;
use tests::support::traces::cgroups_of;

const WITHIN: Duration = Duration::from_secs(60);
const READY: u64 = 2;
/// Those that wait from the start, for runs of code in sessions, and serve no exec of a project.
const KEPT: u64 = 2;

fn shell(script: &str) -> Value {
    json!({ "agent_id": "a", "project_id": "p", "exec": { "kind": "shell", "command": "bash", "args": ["-lc", script] } })
}

fn python(code: &str) -> Value {
    json!({ "agent_id": "a", "project_id": "p", "exec": { "kind": "python", "command": "python", "args": ["-c", code] } })
}

fn gauge(server: &Server, name: &str) -> u64 {
    let text = server.ask("GET", "/metrics", None).bytes;
    let text = String::from_utf8_lossy(&text).into_owned();
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap()
}

fn comes(what: &str, look: impl Fn() -> bool) {
    let began = Instant::now();
    while !look() {
        assert!(began.elapsed() < WITHIN, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server whose stock is full, and every process below it. None without root, where no box is made ahead: that is then what
/// is tried.
fn full() -> Option<(Server, Vec<u32>)> {
    let server = Server::start();
    assert_eq!(server.run(&python("print(1)"))["status"], "SUCCEEDED");
    if !rustix::process::geteuid().is_root() {
        assert_eq!(server.run(&python("print(2)"))["status"], "SUCCEEDED");
        let all = ["idle ", "being_made ", "asked_total{found=\"hit\"} "];
        assert_eq!(all.map(|name| gauge(&server, &format!("ringwall_spares_{name}"))), [0; 3]);
        return None;
    }
    comes("a full stock", || {
        gauge(&server, "ringwall_spares_idle ") >= KEPT + READY && gauge(&server, "ringwall_spares_being_made ") == 0
    });
    let below = descendants(server.id()).unwrap();
    // The parent of all, and for each an init and an interpreter.
    assert!(below.len() as u64 > 2 * READY, "{below:?}");
    Some((server, below))
}

#[test]
fn a_box_made_ahead_answers_as_any_other() {
    let Some((server, _)) = full() else { return };
    let before = gauge(&server, "ringwall_spares_asked_total{found=\"hit\"} ");
    let warm = server.run(&python("import os; open('made', 'w').write('x'); print(os.getcwd()); raise SystemExit(3)"));
    assert_eq!(gauge(&server, "ringwall_spares_asked_total{found=\"hit\"} "), before + 1);
    assert_eq!((&warm["status"], &warm["exit_code"]), (&json!("FAILED"), &json!(3)), "{warm}");
    assert_eq!(server.stdout(&warm), "/workspace/work\n");
    let seen = server.run(&shell("cat made; stat -c %U made"));
    assert_eq!(server.stdout(&seen), "xsandbox\n");
    let protections = |exec: &Value| server.exec(exec["exec_id"].as_str().unwrap())["protections"].clone();
    assert_eq!(protections(&warm), protections(&seen));
}

#[test]
fn a_killed_server_leaves_no_box_made_ahead() {
    let Some((mut server, below)) = full() else { return };
    server.signal(Signal::KILL);
    server.ended();
    comes("the end of every process", || !below.iter().any(|process| is_alive(*process)));
    comes("the end of every cgroup", || cgroups_of(&[server.id()]).is_empty());
}

#[test]
fn a_stopped_server_leaves_no_box_made_ahead() {
    let Some((mut server, below)) = full() else { return };
    server.signal(Signal::TERM);
    assert!(server.ended().success());
    assert!(!below.iter().any(|process| is_alive(*process)));
    assert_eq!(cgroups_of(&[server.id()]), Vec::<std::path::PathBuf>::new());
}

/// Whatever a tenant can leave behind in memory, in files, in processes and in the interpreter itself.
const LEAVE: &str = r#"
import builtins, ctypes, os, sys, time
for place in ["/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "."]:
    open(os.path.join(place, "left"), "w").write("MARK")
os.environ["LEFT"] = "MARK"
builtins.left = sys.left = "MARK"
sys.path.insert(0, "/tmp/left-path")
os.umask(0)
ctypes.CDLL(None).syscall(248, b"user", b"left", b"MARK", 4, -3)  # add_key
begun, begin = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"left-behind")
        os.write(begin, b"x")
        time.sleep(600)
    os._exit(0)
os.read(begun, 1)
os.chdir("/tmp")
print("left")
"#;

/// Says what of that is to be found.
const LOOK: &str = r#"
import builtins, ctypes, os, sys
found = []
places = ["/tmp", "/var/tmp", "/dev/shm", os.path.expanduser("~"), "."]
found += [place for place in places if os.path.lexists(os.path.join(place, "left"))]
found += [place for place in places if place != "." and os.listdir(place)]
found += [name for name in os.environ if name == "LEFT"]
found += ["builtins"] * hasattr(builtins, "left") + ["sys"] * hasattr(sys, "left") + [p for p in sys.path if "left" in p]
found += ["umask"] * (os.umask(0o22) != 0o22)
found += ["cwd"] * (os.getcwd() != "/workspace/work")
for pid in filter(str.isdigit, os.listdir("/proc")):
    if "left" in open(f"/proc/{pid}/comm").read():
        found.append("process")
if ctypes.CDLL(None).syscall(250, 10, b"user", b"left", 0) > 0:  # keyctl, search
    found.append("key")
print(found)
"#;

#[test]
fn what_one_tenant_leaves_no_other_finds() {
    let Some((server, _)) = full() else { return };
    let hits = || gauge(&server, "ringwall_spares_asked_total{found=\"hit\"} ");
    let tenants = ["one", "two"].map(|user| server.make_token(&["--role", "user", "--user", user]));
    // More often than there are boxes made ahead, so that each of those was there when somebody left something.
    for round in 0..4 {
        for (tenant, code, said) in [(0, LEAVE, "left\n"), (1, LOOK, "[]\n")] {
            comes("a box that waits", || gauge(&server, "ringwall_spares_idle ") > KEPT);
            let before = hits();
            let answer = server.ask_as(&tenants[tenant], "POST", "/sandbox/execs", Some(&python(code))).expect(200);
            assert_eq!(hits(), before + 1, "it was made ahead");
            assert_eq!(server.stdout(&answer), said, "round {round}: {answer}");
        }
    }
    // The control: in a box that both had, it would be found.
    let both = format!("{LEAVE}\n{LOOK}");
    let answer = server.ask_as(&tenants[0], "POST", "/sandbox/execs", Some(&python(&both))).expect(200);
    let found = server.stdout(&answer);
    for what in ["/dev/shm", "LEFT", "builtins", "umask", "cwd", "process"] {
        assert!(found.contains(what), "{what}: {found}");
    }
}
