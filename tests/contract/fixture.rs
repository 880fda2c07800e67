//! The fixture of a test: which backend and database its servers use.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;
use tests::support::docker_daemon::Daemon;
use tests::support::host::{descendants, field, is_alive, marked};
use tests::support::postgres_cluster::Cluster;
use tests::support::server::Server;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backend {
    Native,
    /// gVisor without Docker.
    Gvisor,
    Docker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

#[derive(Debug)]
pub(crate) struct Fixture {
    pub(crate) backend: Backend,
    pub(crate) database: Database,
    pub(crate) daemon: Option<Arc<Daemon>>,
    pub(crate) cluster: Option<Arc<Cluster>>,
}

impl Backend {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Backend::Native => "native",
            Backend::Gvisor => "gvisor",
            Backend::Docker => "docker",
        }
    }
}

impl Database {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Database::Sqlite => "sqlite",
            Database::Postgres => "postgres",
        }
    }
}

impl Fixture {
    /// Starts a server with a new data directory and a new database.
    pub(crate) fn start(&self) -> Server {
        let data = TempDir::with_prefix("rw-serve-").unwrap();
        if self.database == Database::Postgres {
            // In the configuration file, so that later servers and commands on this directory use
            // it too.
            let text = format!("[database]\nurl = '{}'\n", create_database(self.cluster.as_ref().unwrap()));
            std::fs::write(data.path().join("ringwall.toml"), text).unwrap();
        }
        self.start_in(data)
    }

    /// The processes of the server's box that have this mark in their command line. Under gVisor
    /// their command lines are not visible on the host, so these are all gVisor processes of the
    /// server.
    pub(crate) fn box_processes(&self, server: &Server, mark: &str) -> Vec<u32> {
        match self.backend {
            Backend::Native | Backend::Docker => marked(mark).unwrap(),
            Backend::Gvisor => {
                descendants(server.id()).unwrap().into_iter().filter(|process| runs_gvisor(*process)).collect()
            }
        }
    }

    /// Starts a server on an existing data directory.
    pub(crate) fn start_in(&self, data: TempDir) -> Server {
        match (self.backend, &self.daemon) {
            (Backend::Native, _) => Server::start_in(data, &[]),
            (Backend::Gvisor, _) => Server::start_in(data, &[]).on(Some("gvisor")),
            (Backend::Docker, None) => panic!("there is no daemon"),
            (Backend::Docker, Some(daemon)) => start_on(daemon, data, "docker"),
        }
    }
}

/// gVisor's processes are called `runsc`, or `exe` where it has started itself again.
pub(crate) fn runs_gvisor(process: u32) -> bool {
    is_alive(process) && field(process, "Name").is_some_and(|name| ["runsc", "exe"].contains(&name.as_str()))
}

/// Starts a server that uses this daemon and whose execs name this backend.
pub(crate) fn start_on(daemon: &Daemon, data: TempDir, backend: &'static str) -> Server {
    let client = daemon.client();
    Server::start_in(data, &["--docker-cli-path", client.to_str().unwrap()]).on(Some(backend))
}

/// Creates a database with a unique name.
pub(crate) fn create_database(cluster: &Cluster) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    cluster.create_database(&format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}
