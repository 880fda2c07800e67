//! Pages on this machine's loopback for a session's browser, and ways to ask that for something.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tests::support::host;

use crate::site::Site;

const FORM: &str = "<title>Form</title><form action=/done><input id=q name=q><input id=p type=password name=p>\
                    <button id=go>Go</button></form><script>\
                    p.oninput = () => document.title = 'typed ' + p.value.length</script>";

/// Leaves for `/arrives` when it is let go.
const LEAVES: &str = "<title>Leaves</title><input id=p type=password><script>\
                      fetch('/hold').then(() => location = '/arrives')</script>";
const ARRIVES: &str = "<title>Arrives</title><input id=p type=password><script>fetch('/arrived')</script>";

const UPLOAD: &str = "<title>Upload</title><input id=f type=file><p id=told></p><script>\
                      f.onchange = async () => told.textContent = f.files[0].name + ' has ' + await f.files[0].text()\
                      </script>";

/// Pages, and how often one was asked for.
pub struct Pages {
    pub port: u16,
    count: Arc<AtomicUsize>,
    moves: Arc<Moves>,
}

/// Where a page that leaves by itself is waited for: each of these lets two pass, the page and the test.
struct Moves {
    elsewhere: u16,
    leaves: Barrier,
    arrives: Barrier,
}

impl Pages {
    /// `elsewhere` is where `/redirect` leads.
    pub fn serve(elsewhere: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let counted = count.clone();
        let moves = Arc::new(Moves { elsewhere, leaves: Barrier::new(2), arrives: Barrier::new(2) });
        let shared = moves.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counted.fetch_add(1, Ordering::SeqCst);
                let moves = shared.clone();
                std::thread::spawn(move || answer(stream, &moves));
            }
        });
        Self { port, count, moves }
    }

    pub fn at(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Lets the page `/leaves` go, and comes back when another document is shown in its place.
    pub fn lead_on(&self) {
        self.moves.leaves.wait();
        self.moves.arrives.wait();
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

fn answer(mut stream: TcpStream, moves: &Moves) {
    let elsewhere = moves.elsewhere;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let (status, more, content) = match path.split('?').next().unwrap_or_default() {
        "/form" => ("200 OK", "Content-Type: text/html\r\n".to_owned(), FORM.to_owned()),
        "/done" => ("200 OK", "Content-Type: text/html\r\n".to_owned(), format!("<title>Done</title>got {path}")),
        "/upload" => ("200 OK", "Content-Type: text/html\r\n".to_owned(), UPLOAD.to_owned()),
        "/leaves" => ("200 OK", "Content-Type: text/html\r\n".to_owned(), LEAVES.to_owned()),
        "/arrives" => ("200 OK", "Content-Type: text/html\r\n".to_owned(), ARRIVES.to_owned()),
        "/hold" => {
            moves.leaves.wait();
            ("200 OK", String::new(), String::new())
        }
        "/arrived" => {
            moves.arrives.wait();
            ("200 OK", String::new(), String::new())
        }
        "/redirect" => ("302 Found", format!("Location: http://127.0.0.1:{elsewhere}/\r\n"), String::new()),
        "/metadata" => ("302 Found", "Location: http://169.254.169.254/latest\r\n".to_owned(), String::new()),
        "/file" => {
            let disposition = "Content-Disposition: attachment; filename=\"report.txt\"\r\n";
            ("200 OK", format!("Content-Type: application/octet-stream\r\n{disposition}"), "downloaded".to_owned())
        }
        _ => ("404 Not Found", String::new(), String::new()),
    };
    let length = content.len();
    let _ = write!(stream, "HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n{content}");
}

impl Site {
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

    /// The same as `browse`, waited for on another thread.
    pub fn begin_browsing(&self, action: &str, params: Value) -> JoinHandle<Value> {
        let (server, body) = (self.server.clone(), json!({ "action": action, "params": params }));
        std::thread::spawn(move || server.ask("POST", "/api/browser/s", Some(&body)).expect(200))
    }

    /// Chromium's first processes beneath this server.
    pub fn browsers(&self) -> Vec<u32> {
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

pub fn good(answer: Value) -> Value {
    assert_eq!((&answer["success"], &answer["error"]), (&json!(true), &Value::Null), "{answer}");
    answer["data"].clone()
}

pub fn bad(answer: Value) -> String {
    assert_eq!((&answer["success"], &answer["data"]), (&json!(false), &Value::Null), "{answer}");
    answer["error"].as_str().unwrap().to_owned()
}
