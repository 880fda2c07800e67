//! A screenshot of a loaded page: `screenshot` over HTTP in a warm session, alternating with the
//! same Chromium driven by the bare protocol.
//!
//! Both have the flags of `ringwall_browser::arguments` and so the same window. Ours runs in a box
//! behind a proxy and answers when intent and outcome are recorded; the other runs on the host
//! without a proxy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use ringwall_browser::Egress;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::error::Error;
use crate::samples::{STREAK, Samples, UNCOUNTED};
use crate::server::{Connection, Server};

/// So much of a picture in base64 says that it is a PNG, and its width and height.
const HEAD: usize = 32;
const ROWS: usize = 60;

#[derive(Debug)]
pub(crate) struct Pictures {
    pub(crate) session: Samples,
    pub(crate) protocol: Samples,
    /// Of one picture, in base64.
    pub(crate) characters: usize,
}

pub(crate) fn measure(ringwall: &Path, rounds: usize) -> Result<Pictures, Error> {
    let host = serve_page()?;
    let page = format!("http://{host}/");
    let server = Server::start(ringwall, None)?;
    let mut connection = server.connect()?;
    connection.exchange(&server.request("PUT", "/settings", &json!({ "browser": { "allowed_hosts": [host] } })))?;
    let act = |action: &str, params: Value| {
        server.request("POST", "/api/browser/bench", &json!({ "action": action, "params": params }))
    };
    connection.run(&act("navigate", json!({ "url": page })))?;
    let screenshot = act("screenshot", json!({}));
    let mut chromium = Chromium::open(&page)?;
    // Both pictures must be of equal size, so that no empty picture is compared.
    let (_, ours) = picture(&mut connection, &screenshot)?;
    let (_, theirs) = chromium.picture()?;
    if ours.get(..HEAD) != theirs.get(..HEAD) || ours.len().abs_diff(theirs.len()) > theirs.len() / 2 {
        return Err(Error::ExecEnded(format!(
            "the two pictures differ ({} and {} characters)",
            ours.len(),
            theirs.len()
        )));
    }
    let mut pictures = Pictures { session: Samples::default(), protocol: Samples::default(), characters: theirs.len() };
    for _ in 0..rounds.div_ceil(STREAK - UNCOUNTED) {
        pictures.session.streak(|| Ok(picture(&mut connection, &screenshot)?.0))?;
        pictures.protocol.streak(|| Ok(chromium.picture()?.0))?;
    }
    Ok(pictures)
}

/// How long it took, and the picture in base64.
fn picture(connection: &mut Connection, request: &[u8]) -> Result<(Duration, String), Error> {
    let began = Instant::now();
    let mut answer = connection.exchange(request)?;
    let took = began.elapsed();
    match answer["screenshot"].take() {
        Value::String(picture) => Ok((took, picture)),
        _ => Err(Error::ExecEnded(answer.to_string())),
    }
}

/// A page with what pages have: words, a table, a form, a drawing, shadows and gradients.
fn page() -> String {
    let rows: String = (1..=ROWS)
        .map(|number| {
            let (price, width) = (number * 37 % 911, number * 53 % 100);
            format!(
                "<tr><td>{number}<td>Order of the {number}th customer<td>{price}.00 EUR\
                 <td><div class=bar style='width:{width}%'></div><td><a href=#{number}>open</a>"
            )
        })
        .collect();
    format!(
        "<!doctype html><title>Orders</title><style>body{{font:15px sans-serif;margin:0;background:#f4f6fa}}\
         header{{background:linear-gradient(90deg,#123,#47a);color:#fff;padding:20px 40px}}\
         main{{margin:24px auto;width:1000px;background:#fff;border-radius:12px;box-shadow:0 4px 24px #0003;padding:24px}}\
         td{{padding:6px 12px;border-bottom:1px solid #dde}}.bar{{height:10px;background:linear-gradient(90deg,#5b8,#c93)}}\
         input,button{{padding:8px;border-radius:6px;border:1px solid #99a}}</style>\
         <header><h1>Orders of this week</h1><p>What came in, and what of it is paid</header><main>\
         <form><input placeholder=Search> <button>Find</button></form>\
         <svg width=960 height=120><path d='M0 90 Q120 0 240 70 T480 60 T720 80 T960 20' fill=none stroke='#47a' stroke-width=4 />\
         <circle cx=240 cy=70 r=9 fill='#c93' /><circle cx=480 cy=60 r=9 fill='#5b8' /></svg>\
         <table>{rows}</table></main>"
    )
}

/// Serves the page on loopback for as long as this process lives; gives the host and its port.
fn serve_page() -> Result<String, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(Error::Speaking)?;
    let host = listener.local_addr().map_err(Error::Speaking)?.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Chromium opens connections ahead on which it may never say anything.
            std::thread::spawn(move || answer(stream));
        }
    });
    Ok(host)
}

fn answer(stream: TcpStream) -> std::io::Result<()> {
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 && line != "\r\n" {
        line.clear();
    }
    let page = page();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
    write!(&stream, "{head}Content-Length: {}\r\n\r\n{page}", page.len())
}

/// A Chromium on the host, and the smallest client that it can have: one call after the other, over a socket.
#[derive(Debug)]
struct Chromium {
    process: Child,
    control: BufReader<UnixStream>,
    session: Option<String>,
    calls: u64,
    _profile: TempDir,
}

impl Chromium {
    fn open(page: &str) -> Result<Self, Error> {
        let profile = TempDir::with_prefix("ringwall-bench-chromium-").map_err(Error::Scratch)?;
        let executable = ringwall_browser::find_executable().ok_or(Error::NoChromium)?;
        let words = ringwall_browser::arguments(executable, &profile.path().to_string_lossy(), Egress::None);
        let failed = |source| Error::Start { program: executable.to_owned(), source };
        let (ours, theirs) = UnixStream::pair().map_err(failed)?;
        // A box would give it as descriptor 3.
        let mut command = Command::new("/bin/sh");
        command.args(["-c", r#"exec "$@" 3<&0"#, "sh"]).args(words).stdin(OwnedFd::from(theirs));
        let process = command.spawn().map_err(failed)?;
        let control = BufReader::with_capacity(64 << 10, ours);
        let mut chromium = Self { process, control, session: None, calls: 0, _profile: profile };
        chromium.show(page)?;
        Ok(chromium)
    }

    fn show(&mut self, page: &str) -> Result<(), Error> {
        // The page that Chromium starts with, as in our browser: a page opened later has another
        // window height.
        let first = loop {
            let mut found = self.call("Target.getTargets", &json!({}))?;
            let is_page = |target: &&mut Value| target["type"] == "page";
            let listed = found["targetInfos"].as_array_mut().and_then(|all| all.iter_mut().find(is_page));
            if let Some(page) = listed {
                break page["targetId"].take();
            }
        };
        let attach = json!({ "targetId": first, "flatten": true });
        let attached = self.call("Target.attachToTarget", &attach)?;
        self.session = attached["sessionId"].as_str().map(str::to_owned);
        self.call("Page.enable", &json!({}))?;
        self.call("Page.bringToFront", &json!({}))?;
        self.call("Page.navigate", &json!({ "url": page }))?;
        while self.hear()?["method"] != "Page.loadEventFired" {}
        Ok(())
    }

    fn picture(&mut self) -> Result<(Duration, String), Error> {
        let began = Instant::now();
        let mut answer = self.call("Page.captureScreenshot", &json!({ "format": "png" }))?;
        let took = began.elapsed();
        match answer["data"].take() {
            Value::String(picture) => Ok((took, picture)),
            _ => Err(Error::ExecEnded(answer.to_string())),
        }
    }

    fn call(&mut self, method: &str, params: &Value) -> Result<Value, Error> {
        self.calls += 1;
        let mut message = json!({ "id": self.calls, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.control.get_mut().write_all(format!("{message}\0").as_bytes()).map_err(Error::Speaking)?;
        loop {
            let mut heard = self.hear()?;
            if heard["id"] == self.calls {
                return match heard["result"].take() {
                    Value::Null => Err(Error::ExecEnded(heard.to_string())),
                    result => Ok(result),
                };
            }
        }
    }

    fn hear(&mut self) -> Result<Value, Error> {
        let mut message = Vec::new();
        self.control.read_until(0, &mut message).map_err(Error::Speaking)?;
        match message.pop() {
            Some(0) => serde_json::from_slice(&message).map_err(|error| Error::Speaking(error.into())),
            _ => Err(Error::Speaking(std::io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

impl Drop for Chromium {
    /// It ends itself when asked; its last words are of no interest, only that there are no more.
    fn drop(&mut self) {
        self.session = None;
        let _ = self.control.get_mut().write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let _ = self.control.read_to_end(&mut Vec::new());
        let _ = self.process.wait();
    }
}
