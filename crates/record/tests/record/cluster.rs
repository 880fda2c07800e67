//! A PostgreSQL cluster of our own: in a temporary directory, on a Unix socket, as a user who is not root.
//!
//! The server is a child that dies with this program, and is stopped when the cluster is dropped. Everything is as
//! durable as in earnest; only making the cluster itself is not.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use sqlx::Connection as _;
use tempfile::TempDir;

/// `nobody`: PostgreSQL refuses to be root, and wants a user that has a name.
const UNPRIVILEGED: u32 = 65534;

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
            .args(["--auth=trust", "--username=ringwall", "--encoding=UTF8", "--locale=C", "--no-sync", "--pgdata"])
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
        let server = self
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            .args([
                "-c",
                "listen_addresses=",
                "-c",
                "fsync=on",
                "-c",
                "shared_buffers=16MB",
                "-c",
                "max_connections=200",
            ])
            .arg("-k")
            .arg(self.directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        *self.server.lock().unwrap() = Some(server);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let url = self.url("postgres");
        let answers = || runtime.block_on(async { sqlx::PgConnection::connect(&url).await.is_ok() });
        while !answers() {
            let ended = self.server.lock().unwrap().as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "the PostgreSQL server ended: {ended:?}");
            std::thread::yield_now();
        }
    }

    /// Ends every connection and the server.
    pub fn halt(&self) {
        if let Some(mut server) = self.server.lock().unwrap().take() {
            let pid = rustix::process::Pid::from_child(&server);
            // SIGINT is PostgreSQL's word for: do not wait for clients.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
            let _ = server.wait();
        }
    }

    pub fn url(&self, database: &str) -> String {
        let socket = self.directory.path().display().to_string().replace('/', "%2F");
        format!("postgres://ringwall@{socket}/{database}")
    }

    pub async fn create_database(&self, name: &str) -> String {
        let mut connection = sqlx::PgConnection::connect(&self.url("postgres")).await.unwrap();
        let text = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
        self.url(name)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    #[expect(clippy::disallowed_methods, reason = "the server that is tested against is a program")]
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

/// Where the newest installed PostgreSQL has its programs; Debian does not put them into PATH.
fn programs() -> Result<PathBuf, String> {
    let missing = "PostgreSQL is not installed: these trials need the Debian package `postgresql`";
    let versions = std::fs::read_dir("/usr/lib/postgresql").map_err(|_| missing)?;
    let version = |path: &Path| path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(|path| version(path));
    let programs = newest.ok_or(missing)?.join("bin");
    if programs.join("postgres").exists() { Ok(programs) } else { Err(missing.to_owned()) }
}
