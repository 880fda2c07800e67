//! Web pages on loopback for a session's browser, and calls of browser actions.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tests::support::host;
use tests::support::wait::wait_until;

use crate::fixture::Fixture;

const FORM: &str = "<title>Form</title><form action=/done><input id=q name=q><input id=p type=password name=p>\
                    <button id=go>Go</button></form><script>\
                    p.oninput = () => document.title = 'typed ' + p.value.length</script>";

/// Navigates to `/arrives` when [`Pages::change_document`] is called.
const LEAVES: &str = "<title>Leaves</title><input id=p type=password><script>\
                      fetch('/hold').then(() => location = '/arrives')</script>";
const ARRIVES: &str = "<title>Arrives</title><input id=p type=password><script>fetch('/arrived')</script>";

const UPLOAD: &str = "<title>Upload</title><input id=f type=file><p id=told></p><script>\
                      f.onchange = async () => told.textContent = f.files[0].name + ' has ' + await f.files[0].text()\
                      </script>";

/// Shows in its title that something was typed or selected.
const SECRETS: &str = "<title>Secrets</title><input id=x name=otp oninput=\"document.title = 'typed'\">\
                       <select id=m name=cardExpiry onchange=\"document.title = 'chosen'\"><option>01<option>02</select>";

/// On a click, downloads a file that is too large and one that is kept.
const DROPS: &str = "<title>Drops</title><a id=h href=/huge download></a><a id=f href=/file download></a>\
                     <button id=b onclick=\"document.title = 'clicked'; h.click(); setTimeout(() => f.click(), 200)\">x</button>";
/// Above the limit of a download.
const HUGE: usize = 80 << 20;

/// Endless dialogs, 30 windows, content above the limit, and a button that is covered by an element
/// with NUL in its id.
const ALERTS: &str = "<title>Alerts</title><button id=b onclick=\"for (;;) alert('again')\">x</button>";
const WINDOWS: &str = "<title>Windows</title><button id=b onclick=\"for (let i = 0; i < 30; i++) window.open('/form', 'w' + i)\">x</button>";
const LARGE: &str = "<title>Large</title><body><script>document.body.innerHTML = '<p><a href=#>link</a> and words</p>'.repeat(30000)</script>";
const COVERED: &str = "<title>Covered</title><button id=b>x</button><div id=c style='position:fixed;inset:0'></div>\
                       <script>c.id = 'a\\0b'</script>";

/// Opens the address in its query by link, script, window and frame, and shows `framed` when the
/// frame is loaded.
const LEADS: &str = "<title>Leads</title><a id=link>link</a><button id=script onclick='location = to'>script</button>\
                     <button id=window onclick='window.open(to)'>window</button><p id=told></p><iframe id=frame></iframe><script>\
                     const to = location.search.slice(1); link.href = to;\
                     frame.onload = () => told.textContent = 'framed'; frame.src = to</script>";

/// A server of these pages that counts its connections.
pub struct Pages {
    pub port: u16,
    count: Arc<AtomicUsize>,
    barriers: Arc<Barriers>,
}

/// Synchronises the test with the page `/leaves`, which changes its document.
struct Barriers {
    elsewhere: u16,
    leaves: Barrier,
    arrives: Barrier,
}

impl Pages {
    /// `/redirect` leads to the port `elsewhere`.
    pub fn serve(elsewhere: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let counted = count.clone();
        let barriers = Arc::new(Barriers { elsewhere, leaves: Barrier::new(2), arrives: Barrier::new(2) });
        let shared = barriers.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let barriers = shared.clone();
                std::thread::spawn(move || answer(stream, &barriers));
            }
        });
        Self { port, count, barriers }
    }

    pub fn at(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Lets the page `/leaves` navigate, and returns when the document `/arrives` has loaded.
    pub fn change_document(&self) {
        self.barriers.leaves.wait();
        self.barriers.arrives.wait();
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn answer(mut stream: TcpStream, barriers: &Barriers) {
    let elsewhere = barriers.elsewhere;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let html = |page: &str| ("200 OK", "Content-Type: text/html\r\n".to_owned(), page.to_owned());
    let saved = |name: &str| {
        let disposition = format!("Content-Disposition: attachment; filename=\"{name}\"\r\n");
        format!("Content-Type: application/octet-stream\r\n{disposition}")
    };
    let (status, more, content) = match path.split('?').next().unwrap_or_default() {
        "/form" => html(FORM),
        "/done" => html(&format!("<title>Done</title>got {path}")),
        "/upload" => html(UPLOAD),
        "/leaves" => html(LEAVES),
        "/arrives" => html(ARRIVES),
        "/secrets" => html(SECRETS),
        "/drops" => html(DROPS),
        "/alerts" => html(ALERTS),
        "/windows" => html(WINDOWS),
        "/large" => html(LARGE),
        "/covered" => html(COVERED),
        "/leads" => html(LEADS),
        "/to" => {
            let to = path.split_once('?').map_or("", |(_, to)| to);
            ("302 Found", format!("Location: {to}\r\n"), String::new())
        }
        "/hold" => {
            barriers.leaves.wait();
            ("200 OK", String::new(), String::new())
        }
        "/arrived" => {
            barriers.arrives.wait();
            ("200 OK", String::new(), String::new())
        }
        "/redirect" => ("302 Found", format!("Location: http://127.0.0.1:{elsewhere}/\r\n"), String::new()),
        "/metadata" => ("302 Found", "Location: http://169.254.169.254/latest\r\n".to_owned(), String::new()),
        "/file" => ("200 OK", saved("report.txt"), "downloaded".to_owned()),
        "/huge" => ("200 OK", saved("huge.bin"), "x".repeat(HUGE)),
        _ => ("404 Not Found", String::new(), String::new()),
    };
    let length = content.len();
    let _ = write!(stream, "HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{content}");
}

impl Fixture {
    pub fn browse(&self, action: &str, params: Value) -> Value {
        self.browse_in(action, params, json!(null))
    }

    pub fn browse_in(&self, action: &str, params: Value, context: Value) -> Value {
        let mut body = json!({ "action": action, "params": params });
        if !context.is_null() {
            body["context"] = context;
        }
        self.server.ask("POST", "/api/browser/s", Some(&body)).expect(200)
    }

    /// Like [`Fixture::browse`], on another thread.
    pub fn begin_browsing(&self, action: &str, params: Value) -> JoinHandle<Value> {
        let (server, body) = (self.server.clone(), json!({ "action": action, "params": params }));
        std::thread::spawn(move || server.ask("POST", "/api/browser/s", Some(&body)).expect(200))
    }

    /// Runs a command in the session box and returns its output.
    pub fn run_in_session_box(&self, line: &str) -> String {
        let response = self.server.ask("POST", "/api/sessions/s/exec", Some(&json!({ "command": line }))).expect(200);
        assert_eq!(response["success"], true, "{response}");
        response["stdout"].as_str().unwrap().to_owned()
    }

    /// The directories that browsers have left in the session box.
    pub fn browser_directories(&self) -> String {
        self.run_in_session_box("ls -d /tmp/browser-* 2>/dev/null; true")
    }

    /// Waits until the session has no browser.
    pub fn wait_for_no_browser(&self) {
        let path = "/api/browser/s";
        wait_until("the end of the browser", || self.server.ask("GET", path, None).expect(200)["kind"].is_null());
    }

    /// The newest action.
    pub fn last_action(&self) -> Value {
        self.server.ask("GET", "/api/browser/s", None).expect(200)["actions"][0].clone()
    }

    /// Waits until the server has reaped all its ended processes.
    pub fn wait_for_no_zombies(&self) {
        wait_until("the last zombie to be reaped", || host::zombies(self.server.id()).unwrap().is_empty());
    }

    /// The main processes of Chromium beneath this server.
    pub fn chromium_processes(&self) -> Vec<u32> {
        let below = host::descendants(self.server.id()).unwrap();
        let is_first = |number: &u32| {
            let words = std::fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            words.first().is_some_and(|word| word.ends_with(b"/chromium"))
                && !words.iter().any(|word| word.starts_with(b"--type="))
        };
        below.into_iter().filter(is_first).collect()
    }
}

pub fn expect_success(answer: Value) -> Value {
    assert_eq!((&answer["success"], &answer["error"]), (&json!(true), &Value::Null), "{answer}");
    answer["data"].clone()
}

pub fn expect_failure(answer: Value) -> String {
    assert_eq!((&answer["success"], &answer["data"]), (&json!(false), &Value::Null), "{answer}");
    answer["error"].as_str().unwrap().to_owned()
}
