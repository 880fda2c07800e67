//! A command in a session's Docker box, beside `docker exec` in a running container.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::contestant::time;
use crate::error::Error;
use crate::samples::{STREAK, Samples, UNCOUNTED};
use crate::server::Server;

#[derive(Debug)]
pub(crate) struct Sessions {
    /// Over HTTP, with intent and outcome recorded.
    pub(crate) session: Samples,
    pub(crate) docker_exec: Samples,
}

pub(crate) fn measure(ringwall: &Path, client: &Path, image: &str, rounds: usize) -> Result<Sessions, Error> {
    let server = Server::start(ringwall, Some(client))?;
    let mut connection = server.connect()?;
    let settings = json!({ "strict": { "backends": ["docker"] } });
    connection.exchange(&server.request("PUT", "/settings", &settings))?;
    let request = server.request("POST", "/api/sessions/bench/exec", &json!({ "command": "true" }));
    // Its input stays open, so that it keeps running.
    let stays = ["run", "--detach", "--interactive", "--network", "none", "--name", "stays", image];
    time(Command::new(client).args(stays).args(["/bin/bash", "-c", "read"]))?;
    let (mut session, mut docker_exec) = (Samples::default(), Samples::default());
    connection.run(&request)?;
    for _ in 0..rounds.div_ceil(STREAK - UNCOUNTED) {
        docker_exec.streak(|| time(Command::new(client).args(["exec", "stays", "/bin/true"])))?;
        session.streak(|| connection.run(&request))?;
    }
    time(Command::new(client).args(["rm", "--force", "stays"]))?;
    Ok(Sessions { session, docker_exec })
}
