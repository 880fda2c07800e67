//! Attack r01: an operator's token makes the server run, on the host and as its own user, a program that a box wrote.
//!
//! The box writes an executable into its workspace. The operator names the file's host path as
//! `sandbox.docker.cli_path`, first with `PUT /settings`, then as a value that an older version stored in the database. After a
//! restart the operator asks for health, which runs the docker client. The verdict comes from the program: it creates a
//! file beside itself when something on the host runs it. The control names the same path by environment.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;
use tests::support::server::{Server, Starter};

use crate::probe::{Context, Fault, Probe, Verdict, control, held};

pub(crate) const PROBE: Probe = Probe { id: "r01", title: "an operator runs a box's program on the host", run };

const KEY: &str = "sandbox.docker.cli_path";
/// Two copies, because the control's server may still run its copy when it is stopped.
const WRITE_PROGRAMS: &str =
    r#"printf '#!/bin/sh\ntouch "$0.ran"\n' >docker && cp docker control && chmod 755 docker control"#;
const STORE: &str = "import sqlite3, sys\nbase = sqlite3.connect(sys.argv[1])\n\
    base.execute('INSERT INTO settings (version, document, saved_at, saved_by) \
    SELECT coalesce(max(version), 0) + 1, ?, 0, ? FROM settings', (sys.argv[2], 'older version'))\nbase.commit()";

fn run(context: &Context) -> Verdict {
    context.not_served("it restarts a server of its own")?;
    let (server, program) = server_with_program(context)?;
    let copy = program.with_file_name("control");
    let server = restart(context, server, &[("RINGWALL_SANDBOX_DOCKER_CLI_PATH", &copy.to_string_lossy())]);
    ask_for_health(&server, &server.token);
    control(has_run(&copy), || "the server did not run the client that its environment names".into())?;

    let server = restart(context, server, &[]);
    let operator = server.make_token(&["--role", "operator"]);
    let document = json!({ "sandbox": { "docker": { "cli_path": program } } });
    let answer = server.ask_as(&operator, "PUT", "/settings", Some(&document));
    let server = restart(context, server, &[]);
    ask_for_health(&server, &operator);
    held(!has_run(&program), || format!("PUT /settings answered {} and the program ran", answer.status))?;
    held(answer.status == 409, || format!("PUT /settings answered {}", answer.status))?;

    server.signal(Signal::TERM);
    let data = server.leave();
    store(&data.path().join("db.sqlite"), &document.to_string())?;
    let server = Server::start_as(&starter(context), data, &[]);
    ask_for_health(&server, &operator);
    held(!has_run(&program), || "the server ran the program that the stored settings name".into())?;
    let settings = server.ask_as(&operator, "GET", "/settings", None).expect(200);
    held(settings["ignored"] == json!([KEY]), || format!("GET /settings does not list the key: {settings}"))?;
    held(server.log().contains(KEY), || "the log does not name the ignored key".into())?;
    server.signal(Signal::TERM);
    server.leave();
    Ok("409, and a stored path is ignored and reported".to_owned())
}

/// A server in whose workspace a box wrote the program, and the program's path on the host.
fn server_with_program(context: &Context) -> Result<(Server, PathBuf), Fault> {
    let server = Server::start_as(&starter(context), TempDir::with_prefix("rw-roles-")?, &[]);
    let exec = server.shell(WRITE_PROGRAMS);
    let program = server.data().join("workspaces/default/default/projects/p/work/docker");
    control(program.is_file(), || format!("the box wrote no program: {exec}"))?;
    Ok((server, program))
}

fn starter(context: &Context) -> Starter {
    Starter { identity: context.mode.identity(), binary: context.binary.clone() }
}

fn restart(context: &Context, server: Server, environment: &[(&str, &str)]) -> Server {
    server.signal(Signal::TERM);
    Server::start_as_under(&starter(context), server.leave(), &[], environment)
}

fn ask_for_health(server: &Server, token: &str) {
    server.ask_as(token, "GET", "/sandbox/health", None).expect(200);
}

fn has_run(program: &Path) -> bool {
    program.with_extension("ran").exists()
}

fn store(database: &Path, document: &str) -> Result<(), Fault> {
    let stored = Command::new("/usr/bin/python3").args(["-c", STORE]).arg(database).arg(document).output()?;
    control(stored.status.success(), || String::from_utf8_lossy(&stored.stderr).into_owned())
}
