//! Warm boxes of a server: used for matching execs, and removed when the server ends or is killed.

use rustix::process::Signal;
use serde_json::{Value, json};
use tests::support::host::{descendants, is_alive};
use tests::support::server::Server;
use tests::support::traces::cgroups_of;
use tests::support::wait::wait_until;

const PROJECT_WARM_BOXES: u64 = 2;
/// Warm boxes for code in sessions, which the server keeps from the start. They do not match execs of a
/// project.
const SESSION_WARM_BOXES: u64 = 2;

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

/// A server with all warm boxes ready, and the PIDs of its descendants. Without root it checks that no warm
/// box is made and returns `None`.
fn start_with_warm_boxes() -> Option<(Server, Vec<u32>)> {
    let server = Server::start();
    assert_eq!(server.run(&python("print(1)"))["status"], "SUCCEEDED");
    if !rustix::process::geteuid().is_root() {
        assert_eq!(server.run(&python("print(2)"))["status"], "SUCCEEDED");
        let all = ["idle ", "being_made ", "asked_total{found=\"hit\"} "];
        assert_eq!(all.map(|name| gauge(&server, &format!("ringwall_spares_{name}"))), [0; 3]);
        return None;
    }
    wait_until("all warm boxes", || {
        gauge(&server, "ringwall_spares_idle ") >= SESSION_WARM_BOXES + PROJECT_WARM_BOXES
            && gauge(&server, "ringwall_spares_being_made ") == 0
    });
    let below = descendants(server.id()).unwrap();
    // The spawner, and for each warm box an init and an interpreter.
    assert!(below.len() as u64 > 2 * PROJECT_WARM_BOXES, "{below:?}");
    Some((server, below))
}

#[test]
fn warm_box_answers_like_a_cold_one() {
    let Some((server, _)) = start_with_warm_boxes() else { return };
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
fn killed_server_leaves_no_warm_box() {
    let Some((mut server, below)) = start_with_warm_boxes() else { return };
    server.signal(Signal::KILL);
    server.ended();
    wait_until("the end of every process", || !below.iter().any(|process| is_alive(*process)));
    wait_until("the end of every cgroup", || cgroups_of(&[server.id()]).is_empty());
}

#[test]
fn stopped_server_leaves_no_warm_box() {
    let Some((mut server, below)) = start_with_warm_boxes() else { return };
    server.signal(Signal::TERM);
    assert!(server.ended().success());
    assert!(!below.iter().any(|process| is_alive(*process)));
    assert_eq!(cgroups_of(&[server.id()]), Vec::<std::path::PathBuf>::new());
}

/// Leaves marks in memory, files, processes, keyrings and the interpreter.
const LEAVE_MARKS: &str = r#"
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

/// Prints which of these marks it finds.
const FIND_MARKS: &str = r#"
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
fn leftovers_of_one_tenant_are_not_visible_to_another() {
    let Some((server, _)) = start_with_warm_boxes() else { return };
    let hits = || gauge(&server, "ringwall_spares_asked_total{found=\"hit\"} ");
    let tenants = ["one", "two"].map(|user| server.make_token(&["--role", "user", "--user", user]));
    // More rounds than warm boxes, so that each of them existed when the first tenant left its marks.
    for round in 0..4 {
        for (tenant, code, expected) in [(0, LEAVE_MARKS, "left\n"), (1, FIND_MARKS, "[]\n")] {
            wait_until("a warm box", || gauge(&server, "ringwall_spares_idle ") > SESSION_WARM_BOXES);
            let before = hits();
            let answer = server.ask_as(&tenants[tenant], "POST", "/sandbox/execs", Some(&python(code))).expect(200);
            assert_eq!(hits(), before + 1, "no warm box was used");
            assert_eq!(server.stdout(&answer), expected, "round {round}: {answer}");
        }
    }
    // Control: in the same box the marks are found.
    let both = format!("{LEAVE_MARKS}\n{FIND_MARKS}");
    let answer = server.ask_as(&tenants[0], "POST", "/sandbox/execs", Some(&python(&both))).expect(200);
    let found = server.stdout(&answer);
    for what in ["/dev/shm", "LEFT", "builtins", "umask", "cwd", "process"] {
        assert!(found.contains(what), "{what}: {found}");
    }
}
