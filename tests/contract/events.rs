//! The event stream of an exec: all output once and in order, also after a reconnect.

use std::io::{BufRead, BufReader};

use serde_json::{Value, json};

use tests::support::server::Server;

use crate::fixture::Fixture;

/// The id, name and data of each event, until one satisfies `enough` or the stream ends.
fn follow(
    server: &Server,
    path: &str,
    after: Option<&str>,
    enough: impl Fn(&str) -> bool,
) -> Vec<(String, String, Value)> {
    let authorization = format!("Bearer {}", server.token);
    let mut headers = vec![("authorization", authorization.as_str())];
    headers.extend(after.map(|after| ("last-event-id", after)));
    let response = server.send("GET", path, &headers, None);
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let (mut events, mut event) = (Vec::new(), (String::new(), String::new(), Value::Null));
    for line in BufReader::new(response.into_body().into_reader()).lines() {
        let line = line.unwrap();
        match line.split_once(": ") {
            Some(("id", id)) => event.0 = id.to_owned(),
            Some(("event", name)) => event.1 = name.to_owned(),
            Some(("data", data)) => event.2 = serde_json::from_str(data).unwrap(),
            _ if line.is_empty() && !event.1.is_empty() => {
                let is_enough = enough(&event.1);
                events.push(std::mem::take(&mut event));
                if is_enough {
                    break;
                }
            }
            _ => {}
        }
    }
    events
}

fn text(events: &[(String, String, Value)], stream: &str) -> String {
    events.iter().filter(|event| event.1 == stream).map(|event| event.2["text"].as_str().unwrap()).collect()
}

pub(crate) fn event_stream_resumes_after_last_event_id(fixture: &Fixture) {
    let server = fixture.start();
    let id = server.begin("touch go; echo one; until [ -s go ]; do sleep 0.01; done; echo zwölf; echo err >&2; exit 4");
    let path = format!("/sandbox/execs/{id}/events");
    let before = follow(&server, &path, None, |name| name == "stdout");
    assert_eq!(text(&before, "stdout"), "one\n");
    assert!(before.iter().any(|event| event.1 == "status" && event.2["status"] == "RUNNING"), "{before:?}");
    assert_eq!(server.shell("echo x > go")["status"], "SUCCEEDED");
    let cursor = &before.last().unwrap().0;
    let after = follow(&server, &path, Some(cursor), |_| false);
    assert_eq!((text(&after, "stdout").as_str(), text(&after, "stderr").as_str()), ("zwölf\n", "err\n"));
    let (_, name, end) = after.last().unwrap();
    assert_eq!((name.as_str(), &end["status"], &end["exit_code"]), ("end", &json!("FAILED"), &json!(4)));
    let whole = follow(&server, &path, None, |_| false);
    assert_eq!(text(&whole, "stdout"), "one\nzwölf\n");
    for event in &whole {
        let rest = follow(&server, &path, Some(&event.0), |_| false);
        assert_eq!(rest.last().unwrap().1, "end", "from {}", event.0);
    }
    let encoded = follow(&server, &format!("{path}?encoding=base64"), None, |_| false);
    assert!(encoded.iter().any(|event| event.2["base64"].is_string()), "{encoded:?}");
}
