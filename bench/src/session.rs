//! A command in the box of a session that docker makes, which stays and has our agent in it, beside `docker exec` in a container
//! that stays; and the first command of a session, for which a container was made ahead, beside `docker run`.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::contestant::time;
use crate::error::Error;
use crate::samples::{STREAK, Samples, UNCOUNTED};
use crate::server::{Connection, Server};

/// New sessions: between two of them a container is made.
const FIRST: usize = 12;
const MADE_WITHIN: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Sessions {
    /// Over HTTP, with intent and outcome recorded.
    pub(crate) session: Samples,
    pub(crate) docker_exec: Samples,
    /// The first in a session of its own, while a container waits.
    pub(crate) first: Samples,
    pub(crate) docker_run: Samples,
}

pub(crate) fn measure(ringwall: &Path, client: &Path, image: &str, rounds: usize) -> Result<Sessions, Error> {
    let server = Server::start(ringwall, Some(client))?;
    let mut connection = server.connect()?;
    let settings = json!({ "strict": { "backends": ["docker"] } });
    connection.exchange(&server.request("PUT", "/settings", &settings))?;
    let request = server.request("POST", "/api/sessions/bench/exec", &json!({ "command": "true" }));
    // Its input stays open, and nothing comes.
    let stays = ["run", "--detach", "--interactive", "--network", "none", "--name", "stays", image];
    time(Command::new(client).args(stays).args(["/bin/bash", "-c", "read"]))?;
    let (mut session, mut docker_exec) = (Samples::default(), Samples::default());
    connection.run(&request)?;
    for _ in 0..rounds.div_ceil(STREAK - UNCOUNTED) {
        docker_exec.streak(|| time(Command::new(client).args(["exec", "stays", "/bin/true"])))?;
        session.streak(|| connection.run(&request))?;
    }
    time(Command::new(client).args(["rm", "--force", "stays"]))?;
    let (mut first, mut docker_run) = (Samples::default(), Samples::default());
    for number in 0..FIRST {
        let run = ["run", "--rm", "--network", "none", image, "/bin/true"];
        docker_run.push(time(Command::new(client).args(run))?);
        wait_for_warm_box(&server, &mut connection, client)?;
        let place = format!("/api/sessions/first-{number}");
        let request = server.request("POST", &format!("{place}/exec"), &json!({ "command": "true" }));
        first.push(connection.run(&request)?);
        connection.fetch(&server.request_without_body("DELETE", &place))?;
    }
    Ok(Sessions { session, docker_exec, first, docker_run })
}

/// Until a container waits, and nothing is being made.
fn wait_for_warm_box(server: &Server, connection: &mut Connection, client: &Path) -> Result<(), Error> {
    let begun = Instant::now();
    loop {
        let pool = connection.exchange(&server.request_without_body("GET", "/api/pool"))?;
        let listed = Command::new(client).args(["ps", "--quiet", "--filter=name=ringwall-ahead-"]).output();
        let waits = !listed.map_err(Error::Speaking)?.stdout.is_empty();
        if waits && pool["warming"] == 0 {
            return Ok(());
        }
        if begun.elapsed() > MADE_WITHIN {
            return Err(Error::ExecEnded(format!("no container was made ahead: {pool}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
