//! Merges the start-up configuration: flags override `RINGWALL_*` variables, which override
//! `ringwall.toml`.
//!
//! An unknown key is an error, because a misspelt limit would not be in force. Exec limits are settings
//! of the service and have no key in the file; an environment variable pins one until the server stops.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use ringwall_record::Database;
use ringwall_service::{Auth, Config, PinnedSettings, Source};
use serde::Deserialize;

use crate::message::Message;
use crate::server::environment::Environment;

const FILE: &str = "ringwall.toml";
const DATABASE: &str = "db.sqlite";
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 8003);
const DEFAULT_MAX_BODY_BYTES: usize = 8 << 20;

/// Flags of `serve`. clap reads the environment variable where a flag is missing.
#[derive(Debug, Default, Args)]
pub(crate) struct Overrides {
    /// Address and port to listen on [default: 127.0.0.1:8003]
    #[arg(long, value_name = "ADDR:PORT", env = "RINGWALL_LISTEN", hide_env = true)]
    pub(crate) listen: Option<SocketAddr>,
    /// Configuration file [default: ringwall.toml in the data directory, if it exists]
    #[arg(long, value_name = "FILE", env = "RINGWALL_CONFIG", hide_env = true)]
    pub(crate) config: Option<PathBuf>,
    /// Accept requests whose Host header has this name; loopback names are always accepted (repeatable)
    #[arg(
        long = "allow-host",
        value_name = "NAME",
        env = "RINGWALL_ALLOWED_HOSTS",
        hide_env = true,
        value_delimiter = ','
    )]
    pub(crate) allowed_hosts: Vec<String>,
    /// Maximum number of simultaneous connections [default: half of the open-file limit, 64 to 4096]
    #[arg(long, value_name = "N", env = "RINGWALL_MAX_CONNECTIONS", hide_env = true)]
    pub(crate) max_connections: Option<usize>,
    /// Maximum size of a request body, in bytes [default: 8388608]
    #[arg(long, value_name = "BYTES", env = "RINGWALL_MAX_BODY_BYTES", hide_env = true)]
    pub(crate) max_body_bytes: Option<usize>,
    #[command(flatten)]
    pub(crate) database: DatabaseOverride,
    #[command(flatten)]
    pub(crate) docker: DockerOverride,
    /// Treat every client as the owner, without a token; refused unless the address is loopback
    #[arg(long)]
    pub(crate) no_auth: bool,
}

/// The database; also a flag of the subcommands that open it without a server.
#[derive(Default, Clone, Args)]
pub(crate) struct DatabaseOverride {
    /// PostgreSQL database, postgres://… [default: db.sqlite in the data directory]. Do not write a password here: other
    /// users can see it until the program has started. Use RINGWALL_DATABASE_URL, PGPASSWORD or ringwall.toml
    #[arg(
        long = "database",
        value_name = "URL",
        env = "RINGWALL_DATABASE_URL",
        hide_env = true,
        hide_env_values = true
    )]
    pub(crate) database_url: Option<String>,
}

/// Omits the URL, which may contain a password.
impl fmt::Debug for DatabaseOverride {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DatabaseOverride").finish_non_exhaustive()
    }
}

/// The docker client; also flags of the subcommands that use docker without a server.
#[derive(Debug, Default, Clone, Args)]
pub(crate) struct DockerOverride {
    /// Docker client [default: the first `docker` in PATH]
    #[arg(long, value_name = "FILE", env = "RINGWALL_SANDBOX_DOCKER_CLI_PATH", hide_env = true)]
    pub(crate) docker_cli_path: Option<String>,
    /// Context that the docker client uses
    #[arg(long, value_name = "NAME", env = "RINGWALL_SANDBOX_DOCKER_CONTEXT", hide_env = true)]
    pub(crate) docker_context: Option<String>,
}

/// The configuration file. Without `Debug`, because it may contain a password and a key.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    server: Server,
    database: DatabaseTable,
    docker: Docker,
    aio: Aio,
    sandbox: SandboxTable,
    skills: SkillsTable,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Server {
    listen: Option<SocketAddr>,
    allowed_hosts: Vec<String>,
    max_connections: Option<usize>,
    max_body_bytes: Option<usize>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct DatabaseTable {
    url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Docker {
    cli_path: Option<String>,
    context: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SandboxTable {
    workspace_root_win: Option<String>,
    workspace_root_wsl: Option<String>,
    runtime_mode: Option<String>,
    when_disabled: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct SkillsTable {
    root: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Aio {
    url: Option<String>,
    key: Option<String>,
    user: Option<String>,
    agent: Option<String>,
}

/// The merged configuration.
#[derive(Debug)]
pub(crate) struct ServerConfig {
    pub(crate) service: Config,
    pub(crate) listen: SocketAddr,
    pub(crate) allowed_hosts: Vec<String>,
    /// `None` stands for the default, half of the open-file limit.
    pub(crate) max_connections: Option<usize>,
    pub(crate) max_body_bytes: usize,
}

/// The value of `--data` as an absolute path, or the default for this user.
pub(crate) fn data_directory(flag: Option<PathBuf>) -> Result<PathBuf, Message> {
    if let Some(directory) = flag {
        return std::path::absolute(&directory)
            .map_err(|error| Message::new(format!("{}: {error}", directory.display())));
    }
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/ringwall"));
    }
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|base| base.is_absolute()).or_else(home);
    base.map(|base| base.join("ringwall")).ok_or_else(|| {
        Message::new("no default data directory: neither HOME nor XDG_DATA_HOME is set")
            .with_hint("choose a directory with --data DIR or RINGWALL_DATA")
    })
}

/// Merges file, environment and flags.
pub(crate) fn resolve(data: &Path, flags: Overrides, environment: &Environment) -> Result<ServerConfig, Message> {
    let file = read(data, flags.config.as_deref())?;
    let mut pinned = PinnedSettings::default();
    set_from_file(&mut pinned, &file)?;
    environment.pin(&mut pinned)?;
    set_from_flags(&mut pinned, flags.docker)?;
    let hosts = flags.allowed_hosts.into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>();
    let config = ServerConfig {
        listen: flags.listen.or(file.server.listen).unwrap_or(DEFAULT_LISTEN),
        allowed_hosts: if hosts.is_empty() { file.server.allowed_hosts } else { hosts },
        max_connections: flags.max_connections.or(file.server.max_connections),
        max_body_bytes: flags.max_body_bytes.or(file.server.max_body_bytes).unwrap_or(DEFAULT_MAX_BODY_BYTES),
        service: Config {
            data: data.to_owned(),
            database: choose_database(data, flags.database.database_url.or(file.database.url)),
            auth: if flags.no_auth { Auth::Disabled } else { Auth::Tokens },
            pinned,
            file: flags.config,
        },
    };
    if config.max_connections == Some(0) {
        return Err(Message::new("max_connections must be at least 1, not 0"));
    }
    if config.service.auth == Auth::Disabled && !config.listen.ip().is_loopback() {
        return Err(Message::new(format!(
            "--no-auth is refused on {}: every client that can reach this address would be the owner",
            config.listen
        ))
        .with_hint("listen on a loopback address such as 127.0.0.1:8003, or remove --no-auth"));
    }
    Ok(config)
}

/// The database that a server with the same data directory uses.
pub(crate) fn database(data: &Path, flags: &DatabaseOverride) -> Result<Database, Message> {
    let url = match &flags.database_url {
        Some(url) => Some(url.clone()),
        None => read(data, None)?.database.url,
    };
    Ok(choose_database(data, url))
}

/// The docker settings of a server with the same data directory and environment.
pub(crate) fn docker(data: &Path, flags: DockerOverride) -> Result<PinnedSettings, Message> {
    let mut pinned = from_file(data)?;
    set_from_flags(&mut pinned, flags)?;
    Ok(pinned)
}

/// The AIO service of a server with the same data directory and environment.
pub(crate) fn aio(data: &Path, environment: &Environment) -> Result<PinnedSettings, Message> {
    let mut pinned = from_file(data)?;
    environment.pin(&mut pinned)?;
    Ok(pinned)
}

fn from_file(data: &Path) -> Result<PinnedSettings, Message> {
    let (mut pinned, file) = (PinnedSettings::default(), read(data, None)?);
    set_from_file(&mut pinned, &file)?;
    Ok(pinned)
}

fn set_from_file(pinned: &mut PinnedSettings, file: &File) -> Result<(), Message> {
    let File { docker, aio, sandbox, skills, server: _, database: _ } = file;
    let values = [
        ("aio.url", &aio.url),
        ("aio.key", &aio.key),
        ("aio.user", &aio.user),
        ("aio.agent", &aio.agent),
        ("sandbox.docker.cli_path", &docker.cli_path),
        ("sandbox.docker.context", &docker.context),
        ("sandbox.workspace_root_win", &sandbox.workspace_root_win),
        ("sandbox.workspace_root_wsl", &sandbox.workspace_root_wsl),
        ("sandbox.runtime_mode", &sandbox.runtime_mode),
        ("sandbox.when_disabled", &sandbox.when_disabled),
        ("skills.root", &skills.root),
    ];
    for (key, value) in values {
        if let Some(text) = value {
            pinned.set(key, text, Source::File)?;
        }
    }
    Ok(())
}

fn set_from_flags(pinned: &mut PinnedSettings, docker: DockerOverride) -> Result<(), Message> {
    let values =
        [("sandbox.docker.cli_path", docker.docker_cli_path), ("sandbox.docker.context", docker.docker_context)];
    for (key, value) in values {
        // If the flag is missing, clap has filled in the variable. The environment then stays the source.
        if let Some(text) = value.filter(|text| !pinned.is(key, text)) {
            pinned.set(key, &text, Source::Flag)?;
        }
    }
    Ok(())
}

fn choose_database(data: &Path, url: Option<String>) -> Database {
    url.map_or_else(|| Database::Sqlite(data.join(DATABASE)), Database::Postgres)
}

/// Reads the configuration file. A file named by `--config` must exist; the default one need not.
fn read(data: &Path, flag: Option<&Path>) -> Result<File, Message> {
    let path = flag.map_or_else(|| data.join(FILE), Path::to_owned);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && flag.is_none() => return Ok(File::default()),
        Err(error) => return Err(Message::new(format!("could not read {}: {error}", path.display()))),
    };
    // Only `message()`: the `Display` of the error quotes the line, which may contain a password.
    toml::from_str(&text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        Message::new(format!("{}, line {line}: {}", path.display(), error.message()))
            .with_hint("docs/api.md lists the keys of ringwall.toml")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file(text: &str, flags: Overrides) -> Result<ServerConfig, Message> {
        let data = tempfile::tempdir().unwrap();
        std::fs::write(data.path().join(FILE), text).unwrap();
        resolve(data.path(), flags, &Environment::default())
    }

    #[test]
    fn flags_override_file_and_file_overrides_defaults() {
        let text = "[server]\nlisten = '127.0.0.1:1'\nmax_connections = 7\nallowed_hosts = ['a']\n[database]\nurl = 'postgres://x'\n";
        let plain = with_file(text, Overrides::default()).unwrap();
        assert_eq!(
            (plain.listen.port(), plain.max_connections, plain.max_body_bytes),
            (1, Some(7), DEFAULT_MAX_BODY_BYTES)
        );
        assert!(matches!(plain.service.database, Database::Postgres(_)));
        let flags = Overrides {
            listen: Some("127.0.0.1:2".parse().unwrap()),
            allowed_hosts: vec!["b".into()],
            ..Default::default()
        };
        let flagged = with_file(text, flags).unwrap();
        let docker = with_file("[docker]\ncontext = 'there'\n", Overrides::default()).unwrap();
        assert_eq!(docker.service.pinned.keys().collect::<Vec<_>>(), ["sandbox.docker.context"]);
        let roots = "[sandbox]\nworkspace_root_wsl = '/w'\n[skills]\nroot = '/s'\n";
        let roots = with_file(roots, Overrides::default()).unwrap();
        assert!(
            roots.service.pinned.is("sandbox.workspace_root_wsl", "/w") && roots.service.pinned.is("skills.root", "/s")
        );
        let aio = with_file("[aio]\nurl = 'http://127.0.0.1:1'\nkey = 'hunter2'\n", Overrides::default()).unwrap();
        assert_eq!(aio.service.pinned.keys().collect::<Vec<_>>(), ["aio.key", "aio.url"]);
        assert!(!format!("{aio:?}").contains("hunter2"));
        assert_eq!((flagged.listen.port(), flagged.allowed_hosts), (2, vec!["b".to_owned()]));
    }

    #[test]
    fn unknown_keys_and_sections_are_refused() {
        for text in [
            "[server]\nlistne = '127.0.0.1:1'\n",
            "[sever]\n",
            "[docker]\nclient = 'x'\n",
            "[aio]\ntoken = 'x'\n",
            "[aio]\nurl = 'file:///etc'\n",
            "[server]\nno_auth = true\n",
            "[sandbox]\nmax_concurrent_execs = 2\n",
            "[sandbox]\nruntime_mode = 'mac'\n",
            "[sandbox]\nwhen_disabled = 'everything'\n",
            "[skills]\nentries_max = 2\n",
        ] {
            assert!(with_file(text, Overrides::default()).is_err(), "{text}");
        }
    }

    #[test]
    fn no_auth_is_refused_unless_the_address_is_loopback() {
        let open =
            |listen: &str| Overrides { listen: Some(listen.parse().unwrap()), no_auth: true, ..Default::default() };
        for bad in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
            assert!(with_file("", open(bad)).is_err(), "{bad}");
        }
        assert!(with_file("", open("127.0.0.1:1")).is_ok());
        assert!(with_file("", open("[::1]:1")).is_ok());
    }

    #[test]
    fn syntax_error_beside_a_password_does_not_print_it() {
        let error = with_file("[database]\nurl = 'postgres://u:hunter2@h/d' x\n", Overrides::default()).unwrap_err();
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
    }
}
