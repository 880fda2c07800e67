//! The password of a PostgreSQL URL appears in no process list, log, message or response.
//!
//! The cluster accepts every password, so the test uses a unique one. Each search has a control that finds
//! text next to the password.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;
use tests::support::host::descendants;
use tests::support::postgres_cluster::Cluster;

use crate::server::{Server, command};

const PASSWORD: &str = "correcthorsebattery";

fn cluster() -> Cluster {
    Cluster::start().unwrap()
}

/// The URL of a new database, with the password.
fn url(cluster: &Cluster) -> String {
    cluster.create_database("password").replacen("ringwall@", &format!("ringwall:{PASSWORD}@"), 1)
}

fn data() -> TempDir {
    TempDir::with_prefix("rw-serve-").unwrap()
}

/// `cmdline` or `environ` of a process. Empty if the process has ended.
fn read_proc(process: u32, name: &str) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{process}/{name}")).unwrap_or_default()).into_owned()
}

/// Checks the server's child processes: the spawner, and a running box.
fn assert_children_lack_password(server: &Server) {
    let id = server.begin("echo begun; sleep 600");
    server.wait_for_output(&id);
    let children = descendants(server.id()).unwrap();
    assert!(children.len() >= 2, "control: {children:?}");
    for child in children {
        let shown = [read_proc(child, "cmdline"), read_proc(child, "environ")].concat();
        assert!(!shown.contains(PASSWORD), "process {child}: {shown}");
    }
    server.ask("DELETE", &format!("/sandbox/execs/{id}"), None).expect(202);
}

fn assert_responses_and_log_lack_password(server: &Server) {
    for path in [
        "/settings",
        "/healthz",
        "/sandbox/health?probe=1",
        "/metrics",
        "/api/overview",
        "/api/audit",
        "/api/tokens",
        "/api/pool",
        "/openapi.json",
    ] {
        let answer = server.ask("GET", path, None);
        assert_eq!(answer.status, 200, "{path}");
        assert!(!String::from_utf8_lossy(&answer.bytes).contains(PASSWORD), "{path}");
    }
    let log = server.log();
    assert!(log.contains("DEBUG") && log.contains("/api/audit"), "control: the log lacks its requests");
    assert!(!log.contains(PASSWORD), "the log has the password");
}

#[test]
fn password_in_flag_is_masked_in_process_list() {
    let cluster = cluster();
    let url = url(&cluster);
    let server = Server::start_under(data(), &["--database", &url], &[("RINGWALL_LOG", "trace")]);
    let shown = read_proc(server.id(), "cmdline");
    assert!(shown.contains("--database\0***") && shown.contains("--listen\x00127.0.0.1"), "control: {shown}");
    assert!(!shown.contains(PASSWORD) && !shown.contains("postgres://"), "{shown}");
    assert_children_lack_password(&server);
    assert_responses_and_log_lack_password(&server);
}

#[test]
fn password_in_environment_is_not_inherited() {
    let cluster = cluster();
    let url = url(&cluster);
    let environment = [("RINGWALL_DATABASE_URL", url.as_str()), ("PGPASSWORD", PASSWORD), ("RINGWALL_LOG", "trace")];
    let server = Server::start_under(data(), &[], &environment);
    assert!(read_proc(server.id(), "environ").contains(PASSWORD), "control: the server has it");
    assert_children_lack_password(&server);
    assert_responses_and_log_lack_password(&server);
    let doctor = server.command().envs(environment).args(["doctor", "--json"]).output().unwrap();
    assert!(doctor.stdout.starts_with(b"{"), "control: doctor printed no report");
    let said = [doctor.stdout, doctor.stderr].concat();
    assert!(!String::from_utf8_lossy(&said).contains(PASSWORD));
}

/// As a flag with `=` and in the configuration file.
#[test]
fn password_works_in_other_forms() {
    let cluster = cluster();
    let url = url(&cluster);
    let server = Server::start_with(&[&format!("--database={url}")]);
    let shown = read_proc(server.id(), "cmdline");
    assert!(shown.contains("--database=***") && !shown.contains(PASSWORD), "{shown}");
    drop(server);
    let data = data();
    fs::write(data.path().join("ringwall.toml"), format!("[database]\nurl = '{url}'\n")).unwrap();
    let server = Server::start_in(data, &[]);
    assert_eq!(server.ask("GET", "/api/audit", None).status, 200);
}

/// The line has one field too few, so the password is in the place of the user.
#[test]
fn malformed_password_file_is_not_logged() {
    let cluster = cluster();
    let data = data();
    let file = data.path().join("pgpass");
    fs::write(&file, format!("*:*:*:{PASSWORD}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let url = cluster.create_database("passfile");
    let environment =
        [("RINGWALL_DATABASE_URL", url.as_str()), ("PGPASSFILE", file.to_str().unwrap()), ("RINGWALL_LOG", "trace")];
    let server = Server::start_under(data, &[], &environment);
    assert_eq!(server.ask("GET", "/api/me", None).status, 200);
    let log = server.log();
    assert!(log.contains("/api/me"), "control: {log}");
    assert!(!log.contains(PASSWORD), "{log}");
}

/// The URLs fail in different steps: parsing the URL, connecting, and logging in.
#[test]
fn failed_connection_does_not_print_password() {
    let cluster = cluster();
    let unknown_role = url(&cluster).replacen("ringwall:", "stranger:", 1);
    let urls = [
        format!("postgres://u:{PASSWORD}@127.0.0.1:1/d"),
        format!("postgres://u@127.0.0.1:1/d?password={PASSWORD}"),
        format!("postgres://u:{PASSWORD}@no-such-host.invalid/d"),
        unknown_role,
        format!("postgres://u:{PASSWORD}@127.0.0.1:port/d"),
        format!("postgres://u:{PASSWORD}#x@127.0.0.1/d"),
        format!("postgres://u:{PASSWORD}/x@127.0.0.1/d"),
        format!("postgres://u:x?{PASSWORD}@127.0.0.1:1/d"),
        format!("postgres://u@127.0.0.1:1/d?pasword={PASSWORD}"),
        format!("postgres://u:{PASSWORD}@[::1/d"),
        format!("u:{PASSWORD}@127.0.0.1/d"),
    ];
    for url in &urls {
        for verb in [
            &["serve", "--listen", "127.0.0.1:0"][..],
            &["token", "create", "--role", "operator"],
            &["audit", "verify"],
        ] {
            let data = data();
            let environment = [("RINGWALL_LOG", "trace"), ("RUST_BACKTRACE", "1")];
            let output = command(data.path()).args(verb).args(["--database", url]).envs(environment).output().unwrap();
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            assert!(!output.status.success() && said.contains("ringwall: "), "control: {verb:?} {url}: {said}");
            assert!(!said.contains(PASSWORD), "{verb:?} {url}: {said}");
        }
    }
}
