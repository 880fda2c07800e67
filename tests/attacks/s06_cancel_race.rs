//! Race s06: an exec is cancelled while it begins or ends. It must have one outcome, which all
//! callers get, and leave nothing.

use std::thread;

use serde_json::{Value, json};
use tests::support::server::Server;

use crate::probe::{Context, Fault, Probe, Verdict, boxes, comes, control, held};

pub(crate) const PROBE: Probe = Probe { id: "s06", title: "cancelling races with starting and ending", run };

fn begin(server: &Server, script: &str) -> Result<String, Fault> {
    let authorization = format!("Bearer {}", server.token);
    let headers = [("authorization", authorization.as_str()), ("prefer", "respond-async")];
    let body = json!({ "project_id": "race", "exec": { "kind": "shell", "command": "bash", "args": ["-lc", script] } });
    let answer = server.ask_with("POST", "/sandbox/execs", &headers, Some(&body)).expect(202);
    answer["exec_id"].as_str().map(str::to_owned).ok_or_else(|| Fault::Inconclusive(answer.to_string()))
}

fn run(context: &Context) -> Verdict {
    let server = context.server()?;
    let slow = begin(server, "sleep 200")?;
    let path = |id: &str| format!("/sandbox/execs/{id}");
    control(server.ask("DELETE", &path(&slow), None).status == 202, || "a running exec cannot be cancelled".into())?;
    control(server.ask("DELETE", &path(&slow), None).status == 409, || "an ended exec can be cancelled".into())?;

    let (mut cancelled, mut ended) = (0, 0);
    for round in 0..context.effort.choose(60, 2000) {
        // From zero to about the duration of such an exec.
        let id = begin(server, ["true", "echo x; kill -9 $$", "exec sleep 0.02"][round % 3])?;
        let waits = server.send(
            "GET",
            &format!("{}/events", path(&id)),
            &[("authorization", &format!("Bearer {}", server.token))],
            None,
        );
        for _ in 0..(round % 20) * 40 {
            thread::yield_now();
        }
        let answer = server.ask("DELETE", &path(&id), None);
        let told: Value = server.ask("GET", &path(&id), None).expect(200);
        let events = waits.into_body().read_to_string().unwrap_or_default();
        let status = told["status"].as_str().unwrap_or_default();
        held(
            events.matches("event: end").count() == 1 && events.contains(&format!("\"status\":\"{status}\"")),
            || format!("{status} on record; told otherwise: {events}"),
        )?;
        match (answer.status, status) {
            (202, "CANCELLED") => cancelled += 1,
            (409, "SUCCEEDED" | "FAILED") => ended += 1,
            odd => return Err(Fault::Broken(format!("round {round}: {odd:?}: {told}"))),
        }
    }
    held(comes(|| boxes(server).is_ok_and(|left| left.is_empty())), || "processes are left".into())?;
    let verified = server.ask("POST", "/api/audit/verify", None).expect(200);
    held(verified["intact"] == true, || format!("the record: {verified}"))?;
    Ok(format!("{cancelled} cancelled, {ended} ended by themselves, each with one ending"))
}
