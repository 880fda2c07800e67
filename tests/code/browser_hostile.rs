//! Pages that mean harm, at a real server's browser and through its real proxy: names that lead elsewhere a moment later, dialogs
//! and windows without end, more than can be shown, and names that no record can hold.
//!
//! A name has to lead to a public address first, and no test reaches those. So this one is run once more by itself in namespaces
//! of its own, where such an address is answered here and the table of hosts is the test's.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tempfile::TempDir;
use tests::support::wait::{wait_for, wait_until};

use crate::pages::{Pages, bad, good};
use crate::site::Site;

/// Where the table of hosts is that is shown to the server.
const TABLE: &str = "RINGWALL_TEST_TABLE_OF_HOSTS";
const NAME: &str = "turns.example";
/// Seconds, for a page on a machine that is busy with something else.
const SLOW_S: u32 = 60;
/// Public by its form, and answered by this machine without being its own: it sends from another.
const PUBLIC: &str = "93.184.216.34";
const NAMESPACES: &str = "ip link set lo up && ip addr add 10.99.0.1/32 dev lo && \
                          ip route add local 93.184.216.0/24 dev lo src 10.99.0.1 && \
                          mount --bind \"$RINGWALL_TEST_TABLE_OF_HOSTS\" /etc/hosts && exec \"$@\"";

const TURNS: &str = "<title>Turns</title><button id=b onclick=\"fetch('/inside', { cache: 'no-store' })\
                     .then(async (answer) => { told.textContent = answer.status + ' ' + await answer.text() + '.' })\">x</button>\
                     <p id=told></p>";

/// The same port inside and outside, as of one that rebinds; who came from where is told by the address that they asked for.
struct TwoFaced {
    port: u16,
    inside: Arc<AtomicUsize>,
}

impl TwoFaced {
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
        return mean_harm(Path::new(&table));
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

fn mean_harm(table: &Path) {
    let leads_to = |address: &str| std::fs::write(table, format!("127.0.0.1 localhost\n{address} {NAME}\n")).unwrap();
    leads_to(PUBLIC);
    let turns = TwoFaced::serve();
    let pages = Pages::serve(0);
    let site = Site::start();
    let lifted = |hosts: &[String]| site.set(&json!({ "browser": { "allowed_hosts": hosts } }));
    lifted(&[pages.host()]);
    let page = json!({ "url": format!("http://{NAME}:{}/", turns.port) });
    let fetched = |wanted: &str| {
        good(site.browse("click", json!({ "selector": "#b" })));
        good(site.browse("wait_for", json!({ "text": wanted, "timeout": SLOW_S })));
    };

    // Between its load and its fetch the page's name is led inside: what answers there is not asked.
    assert_eq!(good(site.browse("navigate", page.clone()))["title"], "Turns", "the control: it is public, and there");
    fetched("200 outside.");
    for inside in ["127.0.0.1", "10.99.0.1", "169.254.169.254", "::1"] {
        leads_to(inside);
        fetched(&format!("403 ringwall: {NAME} leads to {inside}"));
        // A connection is noted after its answer was sent, and so may be recorded with a later action.
        wait_until("the record of the refusal", || {
            good(site.browse("wait_for", json!({ "text": "403" })));
            let actions = site.server.ask("GET", "/api/browser/s", None).expect(200)["actions"].to_string();
            actions.contains(&format!("leads to {inside}"))
        });
        leads_to(PUBLIC);
        fetched("200 outside.");
    }
    assert_eq!(turns.inside(), 0);
    leads_to("127.0.0.1");
    let refused = bad(site.browse("navigate", page.clone()));
    assert!(refused.contains("was refused") && refused.contains("the machine itself"), "{refused}");
    assert_eq!(turns.inside(), 0);
    // The control: somebody answers inside, and would have.
    good(site.browse("close", json!({})));
    lifted(&[pages.host(), format!("{NAME}:{}", turns.port)]);
    good(site.browse("navigate", page));
    fetched("200 secret.");
    assert!(turns.inside() > 0);

    an_exec_is_not_led_inside(&site, &turns, leads_to);

    // Dialogs and windows without end, and more than can be shown: each action ends, and the next one works.
    let open = |path: &str| good(site.browse("navigate", json!({ "url": pages.at(path) })));
    open("/alerts");
    let dialogs = |answer: &Value| answer["dialogs"].as_array().map_or(0, Vec::len);
    let clicked = click(&site);
    let next = open("/windows");
    match &clicked {
        Some(answer) => assert!((10..=20).contains(&dialogs(answer)), "{answer}"),
        None => assert!((1..=20).contains(&dialogs(&next)), "{next}"),
    }
    let popups = |answer: &Value| answer["popups"].as_u64().unwrap_or_default();
    let clicked = click(&site).unwrap_or_default();
    let next = open("/large");
    assert!(popups(&clicked) + popups(&next) > 0, "{clicked} {next}");
    for format in ["outline", "html", "text"] {
        let answer = good(site.browse("get_content", json!({ "format": format })));
        assert_eq!(answer["truncated"], true, "{format}");
        assert!(answer["content"].as_str().unwrap().len() <= 1_100_000, "{format}");
    }
    // What a page calls its elements is in the error, and that is on record.
    open("/covered");
    assert!(bad(site.browse("click", json!({ "selector": "#b" }))).contains("covered by"));
    let action = site.last_action();
    assert_eq!(action["status"], "failed", "{action}");
    assert_eq!(open("/form")["title"], "Form");
    good(site.browse("close", json!({})));
    assert!(site.browsers().is_empty());
    site.has_no_zombies();
}

/// Clicks on a button whose script does not end by itself. On a slow machine the browser gives up on the script before it has
/// ended it, and what happened meanwhile is in the answer of the next action.
fn click(site: &Site) -> Option<Value> {
    let answer = site.browse("click", json!({ "selector": "#b" }));
    if answer["success"] == true {
        return Some(good(answer));
    }
    let error = bad(answer);
    assert!(error.contains("a script of it keeps it busy"), "{error}");
    None
}

/// The same for code: between two requests of one command the name that it may reach is led inside.
fn an_exec_is_not_led_inside(site: &Site, turns: &TwoFaced, leads_to: impl Fn(&str)) {
    let host = format!("{NAME}:{}", turns.port);
    let get = format!("curl -sS --max-time 60 -w ' %{{http_code}}' http://{host}/inside");
    let script = format!("{get} > part; mv part first; until [ -e go ]; do sleep 0.02; done; {get}");
    let body = json!({ "session_id": "x", "language": "shell", "code": script });
    let before = turns.inside();
    for (lifted, outcome) in [(json!([]), "refused"), (json!([host]), "allowed")] {
        site.set(&json!({
            "sessions": { "confirmation": "auto-approve" }, "net": { "mode": "allowlist", "allow": [host] },
            "egress": { "allowed_hosts": lifted },
        }));
        leads_to(PUBLIC);
        let running = site.begin(body.clone());
        let first = wait_for("the first answer", || {
            let found = site.server.ask("GET", "/api/sessions/x/files/first", None);
            (found.status == 200).then(|| String::from_utf8(found.bytes).unwrap())
        });
        assert_eq!(first, "outside 200", "the control: it is public, and there");
        leads_to("127.0.0.1");
        assert_eq!(site.put("/api/sessions/x/files/go", b"").status / 100, 2);
        let ran = running.join().unwrap();
        let said = ran["stdout"].as_str().unwrap();
        let path = format!("/sandbox/execs/{}/network", ran["exec_id"].as_str().unwrap());
        let network = site.server.ask("GET", &path, None).expect(200);
        let seen: Vec<&Value> = network["connections"].as_array().unwrap().iter().map(|one| &one["outcome"]).collect();
        assert_eq!(seen, [&json!("allowed"), &json!(outcome)], "{network}");
        match outcome {
            "refused" => {
                assert!(said.contains("leads to 127.0.0.1") && said.ends_with(" 403"), "{ran}");
                assert_eq!(turns.inside(), before);
            }
            // The control: somebody answers inside, and would have.
            _ => assert_eq!((said, turns.inside()), ("secret 200", before + 1)),
        }
        site.server.ask("DELETE", "/api/sessions/x", None).expect(200);
    }
}
