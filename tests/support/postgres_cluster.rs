//! A PostgreSQL cluster for one test: in a temporary directory, on a Unix socket, not as root.
//!
//! The server is a child with a parent-death signal and is stopped when the cluster is dropped. Only `initdb` skips
//! fsync; the server runs with full durability. The suite of `ringwall-record` includes this file by path, because that
//! crate must not depend on the crate `tests`.

#![expect(clippy::unwrap_used, reason = "a failed assumption is a failed test")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use tempfile::TempDir;

/// The user `nobody`: PostgreSQL refuses to run as root or as a uid without a name.
const UNPRIVILEGED: u32 = 65534;
const OWNER: &str = "ringwall";

#[derive(Debug)]
pub struct Cluster {
    programs: PathBuf,
    directory: TempDir,
    server: Mutex<Option<Child>>,
}

impl Cluster {
    pub fn start() -> Result<Self, String> {
        let programs = programs()?;
        let directory = tempfile::Builder::new().prefix("ringwall-pg-").tempdir().map_err(|error| error.to_string())?;
        if rustix::process::geteuid().is_root() {
            let owner = Some(rustix::process::Uid::from_raw(UNPRIVILEGED));
            rustix::fs::chown(directory.path(), owner, None).map_err(|error| error.to_string())?;
        }
        let cluster = Self { programs, directory, server: Mutex::new(None) };
        let made = cluster
            .command("initdb")
            .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--username", OWNER, "--pgdata"])
            .arg(cluster.data())
            .output()
            .map_err(|error| error.to_string())?;
        if !made.status.success() {
            return Err(format!("initdb failed: {}", String::from_utf8_lossy(&made.stderr)));
        }
        cluster.launch();
        Ok(cluster)
    }

    /// Starts the server and waits until it answers.
    pub fn launch(&self) {
        let mut command = self.command("postgres");
        for setting in ["listen_addresses=", "fsync=on", "shared_buffers=16MB", "max_connections=200"] {
            command.args(["-c", setting]);
        }
        command.arg("-D").arg(self.data()).arg("-k").arg(self.directory.path());
        let server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        *self.server.lock().unwrap() = Some(server);
        while !self.ask("pg_isready", &["--quiet"]) {
            let ended = self.server.lock().unwrap().as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the PostgreSQL server ended: {ended:?}");
        }
    }

    /// Ends every connection and the server.
    pub fn halt(&self) {
        if let Some(mut server) = self.server.lock().unwrap().take() {
            let pid = rustix::process::Pid::from_child(&server);
            // On SIGINT PostgreSQL stops without waiting for clients.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
            let _ = server.wait();
        }
    }

    /// Creates a database and returns its URL.
    pub fn create_database(&self, name: &str) -> String {
        assert!(self.ask("createdb", &["--username", OWNER, name]), "could not create the database {name}");
        let socket = self.directory.path().display().to_string().replace('/', "%2F");
        format!("postgres://{OWNER}@{socket}/{name}")
    }

    /// True if a PostgreSQL client program succeeds.
    fn ask(&self, program: &str, words: &[&str]) -> bool {
        let mut command = self.command(program);
        command.arg("--host").arg(self.directory.path()).args(words).stdin(Stdio::null());
        command.status().unwrap().success()
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "INT"]);
        if rustix::process::geteuid().is_root() {
            let user = UNPRIVILEGED.to_string();
            command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
        }
        command.arg("--").arg(program).current_dir(self.directory.path()).env_clear().env("PATH", "/usr/bin:/bin");
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.halt();
    }
}

/// The directory of the newest installed PostgreSQL; Debian does not put it into PATH.
fn programs() -> Result<PathBuf, String> {
    let missing = "PostgreSQL is not installed: these trials need the Debian package `postgresql`";
    let versions = std::fs::read_dir("/usr/lib/postgresql").map_err(|_| missing)?;
    let version = |path: &Path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(|path| version(path));
    let programs = newest.ok_or(missing)?.join("bin");
    if programs.join("postgres").exists() { Ok(programs) } else { Err(missing.to_owned()) }
}
