//! Hostile pages with a real browser and proxy: DNS rebinding, endless dialogs and windows, content
//! above the limit, and NUL in names of elements.
//!
//! DNS rebinding needs a name that first resolves to a public address. The test therefore runs
//! itself again in a network and mount namespace, where this machine answers such an address and
//! the test controls `/etc/hosts`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::wait::{wait_for, wait_until};

use crate::fixture::Fixture;
use crate::pages::{Pages, expect_failure, expect_success};

/// The path of the file that is mounted at `/etc/hosts`.
const TABLE: &str = "RINGWALL_TEST_TABLE_OF_HOSTS";
const NAME: &str = "turns.example";
/// Timeout of a page in seconds, on a busy machine.
const SLOW_S: u32 = 60;
/// A public address, routed to loopback here. It is not an address of the machine, whose packets
/// have the source 10.99.0.1.
const PUBLIC: &str = "93.184.216.34";
const NAMESPACES: &str = "ip link set lo up && ip addr add 10.99.0.1/32 dev lo && \
                          ip route add local 93.184.216.0/24 dev lo src 10.99.0.1 && \
                          mount --bind \"$RINGWALL_TEST_TABLE_OF_HOSTS\" /etc/hosts && exec \"$@\"";

const TURNS: &str = "<title>Turns</title><button id=b onclick=\"fetch('/inside', { cache: 'no-store' })\
                     .then(async (answer) => { told.textContent = answer.status + ' ' + await answer.text() + '.' })\">x</button>\
                     <p id=told></p>";

/// A server on one port of all addresses. The destination address tells whether a connection came
/// to loopback (`inside`).
struct RebindingServer {
    port: u16,
    inside: Arc<AtomicUsize>,
}

impl RebindingServer {
    fn serve() -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").unwrap();
        let (port, inside) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let counted = inside.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let is_inside = stream.local_addr().unwrap().ip().is_loopback();
                counted.fetch_add(usize::from(is_inside), Ordering::SeqCst);
                std::thread::spawn(move || answer(stream, is_inside));
            }
        });
        Self { port, inside }
    }

    fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }
}

fn answer(mut stream: TcpStream, is_inside: bool) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let content = match (head.starts_with(b"GET /inside"), is_inside) {
        (false, _) => TURNS,
        (true, false) => "outside",
        (true, true) => "secret",
    };
    let kind = "Content-Type: text/html\r\nConnection: close";
    let _ = write!(stream, "HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {}\r\n\r\n{content}", content.len());
}

#[test]
fn hostile_page_reaches_nothing_inside_and_blocks_no_action() {
    if let Some(table) = std::env::var_os(TABLE) {
        return attack(Path::new(&table));
    }
    let directory = TempDir::with_prefix("rw-hosts-").unwrap();
    let table = directory.path().join("hosts");
    std::fs::write(&table, "").unwrap();
    let this = "browser_hostile::hostile_page_reaches_nothing_inside_and_blocks_no_action";
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--", "sh", "-c", NAMESPACES, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args([this, "--exact", "--nocapture"])
        .env(TABLE, &table)
        .output()
        .unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}\n{complained}");
}

fn attack(table: &Path) {
    let resolve_to = |address: &str| std::fs::write(table, format!("127.0.0.1 localhost\n{address} {NAME}\n")).unwrap();
    resolve_to(PUBLIC);
    let rebinding = RebindingServer::serve();
    let pages = Pages::serve(0);
    let fixture = Fixture::start();
    let allow_hosts = |hosts: &[String]| fixture.change_settings(&json!({ "browser": { "allowed_hosts": hosts } }));
    allow_hosts(&[pages.host()]);
    let page = json!({ "url": format!("http://{NAME}:{}/", rebinding.port) });
    let fetch_and_expect = |wanted: &str| {
        expect_success(fixture.browse("click", json!({ "selector": "#b" })));
        expect_success(fixture.browse("wait_for", json!({ "text": wanted, "timeout": SLOW_S })));
    };

    // After the page has loaded, its name resolves to an inside address: the proxy refuses the
    // page's request.
    assert_eq!(
        expect_success(fixture.browse("navigate", page.clone()))["title"],
        "Turns",
        "control: the public address answers"
    );
    fetch_and_expect("200 outside.");
    for inside in ["127.0.0.1", "10.99.0.1", "169.254.169.254", "::1"] {
        resolve_to(inside);
        fetch_and_expect(&format!("403 ringwall: {NAME} leads to {inside}"));
        // A connection is noted after its answer was sent, and so may be recorded with a later action.
        wait_until("the record of the refusal", || {
            expect_success(fixture.browse("wait_for", json!({ "text": "403" })));
            let actions = fixture.server.ask("GET", "/api/browser/s", None).expect(200)["actions"].to_string();
            actions.contains(&format!("leads to {inside}"))
        });
        resolve_to(PUBLIC);
        fetch_and_expect("200 outside.");
    }
    assert_eq!(rebinding.inside(), 0);
    resolve_to("127.0.0.1");
    let refused = expect_failure(fixture.browse("navigate", page.clone()));
    assert!(refused.contains("was refused") && refused.contains("the machine itself"), "{refused}");
    assert_eq!(rebinding.inside(), 0);
    // The control: with the host allowed, the inside server answers.
    expect_success(fixture.browse("close", json!({})));
    allow_hosts(&[pages.host(), format!("{NAME}:{}", rebinding.port)]);
    expect_success(fixture.browse("navigate", page));
    fetch_and_expect("200 secret.");
    assert!(rebinding.inside() > 0);

    an_exec_is_not_led_inside(&fixture, &rebinding, resolve_to);

    // Endless dialogs, many windows and large content: each action ends, and the next one works.
    let open = |path: &str| expect_success(fixture.browse("navigate", json!({ "url": pages.at(path) })));
    open("/alerts");
    let dialogs = |answer: &Value| answer["dialogs"].as_array().map_or(0, Vec::len);
    let clicked = click(&fixture);
    let next = open("/windows");
    match &clicked {
        Some(answer) => assert!((10..=20).contains(&dialogs(answer)), "{answer}"),
        None => assert!((1..=20).contains(&dialogs(&next)), "{next}"),
    }
    let popups = |answer: &Value| answer["popups"].as_u64().unwrap_or_default();
    let clicked = click(&fixture).unwrap_or_default();
    let next = open("/large");
    assert!(popups(&clicked) + popups(&next) > 0, "{clicked} {next}");
    for format in ["outline", "html", "text"] {
        let answer = expect_success(fixture.browse("get_content", json!({ "format": format })));
        assert_eq!(answer["truncated"], true, "{format}");
        assert!(answer["content"].as_str().unwrap().len() <= 1_100_000, "{format}");
    }
    // The error contains the element's id with NUL, and is recorded.
    open("/covered");
    assert!(expect_failure(fixture.browse("click", json!({ "selector": "#b" }))).contains("covered by"));
    let action = fixture.last_action();
    assert_eq!(action["status"], "failed", "{action}");
    assert_eq!(open("/form")["title"], "Form");
    expect_success(fixture.browse("close", json!({})));
    assert!(fixture.chromium_processes().is_empty());
    fixture.wait_for_no_zombies();
}

/// Clicks a button whose script does not end. On a slow machine the action times out before the
/// script is stopped; then the next action reports what happened meanwhile.
fn click(fixture: &Fixture) -> Option<Value> {
    let answer = fixture.browse("click", json!({ "selector": "#b" }));
    if answer["success"] == true {
        return Some(expect_success(answer));
    }
    let error = expect_failure(answer);
    assert!(error.contains("a script of it keeps it busy"), "{error}");
    None
}

/// DNS rebinding against code: an allowed name resolves to an inside address between two requests
/// of one command.
fn an_exec_is_not_led_inside(fixture: &Fixture, rebinding: &RebindingServer, resolve_to: impl Fn(&str)) {
    let host = format!("{NAME}:{}", rebinding.port);
    let get = format!("curl -sS --max-time 60 -w ' %{{http_code}}' http://{host}/inside");
    let script = format!("{get} > part; mv part first; until [ -e go ]; do sleep 0.02; done; {get}");
    let body = json!({ "session_id": "x", "language": "shell", "code": script });
    let before = rebinding.inside();
    for (allow_hosts, outcome) in [(json!([]), "refused"), (json!([host]), "allowed")] {
        fixture.change_settings(&json!({
            "sessions": { "confirmation": "auto-approve" }, "net": { "mode": "allowlist", "allow": [host] },
            "egress": { "allowed_hosts": allow_hosts },
        }));
        resolve_to(PUBLIC);
        let running = fixture.spawn_run(body.clone());
        let first = wait_for("the first answer", || {
            let found = fixture.server.ask("GET", "/api/sessions/x/files/first", None);
            (found.status == 200).then(|| String::from_utf8(found.bytes).unwrap())
        });
        assert_eq!(first, "outside 200", "control: the public address answers");
        resolve_to("127.0.0.1");
        assert_eq!(fixture.put_bytes("/api/sessions/x/files/go", b"").status / 100, 2);
        let ran = running.join().unwrap();
        let said = ran["stdout"].as_str().unwrap();
        let path = format!("/sandbox/execs/{}/network", ran["exec_id"].as_str().unwrap());
        let network = fixture.server.ask("GET", &path, None).expect(200);
        let seen: Vec<&Value> = network["connections"].as_array().unwrap().iter().map(|one| &one["outcome"]).collect();
        assert_eq!(seen, [&json!("allowed"), &json!(outcome)], "{network}");
        match outcome {
            "refused" => {
                assert!(said.contains("leads to 127.0.0.1") && said.ends_with(" 403"), "{ran}");
                assert_eq!(rebinding.inside(), before);
            }
            // The control: with the host allowed, the inside server answers.
            _ => assert_eq!((said, rebinding.inside()), ("secret 200", before + 1)),
        }
        fixture.server.ask("DELETE", "/api/sessions/x", None).expect(200);
    }
}
