//! The webhook: told of each, signed, and never waited for.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::site::{Site, TEXT, allow, deny};

const SECRET: &str = "hunter2 and more";

/// One delivery: its headers, lower case, and its body. Answered with this status.
fn receive(listener: &TcpListener, status: u16) -> (Vec<(String, String)>, String) {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream);
    let mut headers = Vec::new();
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("POST /hook "), "{line}");
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim().split_once(": ") else { break };
        headers.push((name.to_ascii_lowercase(), value.to_owned()));
    }
    let length = value(&headers, "content-length").parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let mut stream: TcpStream = reader.into_inner();
    write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").unwrap();
    (headers, String::from_utf8(body).unwrap())
}

fn value<'a>(headers: &'a [(String, String)], name: &str) -> &'a str {
    &headers.iter().find(|(known, _)| known == name).unwrap().1
}

fn assert_signed(headers: &[(String, String)], body: &str) {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("{}.{body}", value(headers, "x-ringwall-timestamp")).as_bytes());
    let digits: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(value(headers, "x-ringwall-signature"), format!("sha256={digits}"));
}

#[test]
fn each_is_told_once_opened_and_once_resolved() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let site =
        Site::start_under(&[("RINGWALL_APPROVALS_WEBHOOK_URL", &url), ("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET)]);
    let (run, asked) = site.asked("s");
    // One that is busy is asked again.
    receive(&listener, 503);
    let (headers, body) = receive(&listener, 200);
    assert_signed(&headers, &body);
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), asked);
    site.answer(&site.server.token, &asked["requestId"], &allow()).expect(200);
    assert_eq!(run.join().unwrap()["stdout"], TEXT, "nobody waits for the webhook");
    let (headers, body) = receive(&listener, 204);
    assert_signed(&headers, &body);
    let resolved: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((&resolved["type"], &resolved["status"]), (&json!("permission_resolved"), &json!("approved")));
    let settings = site.server.ask("GET", "/settings", None).expect(200);
    assert_eq!(settings["approvals"]["webhook_url"], json!(url));
    let stored = std::fs::read(site.server.data().join("db.sqlite")).unwrap();
    let holds = |text: &[u8]| text.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
    assert!(!settings.to_string().contains(SECRET) && !site.server.log().contains(SECRET) && !holds(&stored));
}

#[test]
fn without_a_receiver_everything_goes_on() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    drop(listener);
    let site =
        Site::start_under(&[("RINGWALL_APPROVALS_WEBHOOK_URL", &url), ("RINGWALL_APPROVALS_WEBHOOK_SECRET", SECRET)]);
    let (run, asked) = site.asked("s");
    site.answer(&site.server.token, &asked["requestId"], &deny("no")).expect(200);
    assert_eq!(run.join().unwrap()["error_reason"]["code"], "DENIED_BY_PERSON");
    let by_settings = json!({ "approvals": { "webhook_secret": "x" } });
    assert_eq!(site.server.ask("PUT", "/settings", Some(&by_settings)).status, 409, "it was fixed at the start");
}
