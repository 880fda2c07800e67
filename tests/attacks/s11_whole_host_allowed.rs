//! Attack s11: a session may access the whole host, or path control is off. It looks for the
//! server's data by path, by links, and by a search.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::probe::{Context, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "s11", title: "the server's data from a box that has the whole host", run };

fn run(context: &Context) -> Verdict {
    let server = context.server()?;
    let data = server.data();
    let token = std::fs::read_to_string(data.join("owner.token"))?;
    control(token.trim() == server.token, || "no token outside".into())?;
    let link = context.scratch.join("link");
    symlink(data, &link)?;
    let beside = context.scratch.file("beside", b"not the server's", 0o644)?;
    let name = data.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let (data, link) = (data.display(), link.display());
    // The parser cannot see this path, so only the box protects it.
    let seek = format!(
        "for d in $(echo {data}) $(echo {link}) /proc/self/root$(echo {data}) /proc/1/root$(echo {data}); do \
         ls -A $d; cat $d/owner.token $d/db.sqlite; done 2>/dev/null; \
         find /tmp /var /srv /root -maxdepth 3 -path '*{name}/*' 2>/dev/null; \
         cat $(echo {}); true",
        beside.display()
    );
    let run = || {
        let body = json!({ "session_id": "whole", "command": seek });
        server.ask("POST", "/api/sandbox/execute", Some(&body)).expect(200)
    };
    let uncontrolled = run();
    // The server's data is below /tmp, which is the box's own unless it is named.
    let everything = ["/", "/tmp"];
    for path in everything {
        server.ask("POST", "/api/sandbox/paths", Some(&json!({ "path": path }))).expect(200);
    }
    server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": true }))).expect(200);
    let allowed = run();
    server.ask("PUT", "/api/sandbox", Some(&json!({ "enabled": false }))).expect(200);
    for path in everything {
        server.ask("DELETE", &format!("/api/sandbox/paths?path={path}"), None).expect(200);
    }
    let text = |told: &Value| told["stdout"].as_str().unwrap_or_default().to_owned();
    // With path control off the box has its own /tmp.
    held(text(&uncontrolled).is_empty(), || format!("without control: {uncontrolled}"))?;
    control(text(&allowed).ends_with("not the server's"), || format!("the box saw nothing of the host: {allowed}"))?;
    held(text(&allowed) == "not the server's", || format!("with everything allowed: {allowed}"))?;
    Ok("nothing of it by its path, by a link, by /proc or by a search".to_owned())
}
