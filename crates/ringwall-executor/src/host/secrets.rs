//! Paths of the host's secrets: home directories, known names of keys and histories in them, sockets, data of Ringwall.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Names in a home directory: keys and passwords of people.
const KEYS: &str = "
    .ssh .gnupg .aws .azure .docker .kube .minikube .oci .terraform.d .vault-token .netrc .pgpass .my.cnf
    .git-credentials .npmrc .pypirc .password-store .cargo/credentials .cargo/credentials.toml .gem/credentials
    .m2/settings.xml .config/gcloud .config/gh .config/git/credentials .config/op .config/rclone .config/doctl
    .config/containers/auth.json .config/google-chrome .config/chromium .mozilla .local/share/keyrings
    .local/share/containers
";

/// Names in a home directory: agents and model providers keep tokens and transcripts there.
const AGENTS: &str = "
    .claude .claude.json .codex .gemini .qwen .cursor .continue .copilot .codeium .windsurf .cline .roo .kiro
    .factory .aider.conf.yml .aider.chat.history.md .aider.input.history .anthropic .openai .huggingface
    .cache/huggingface/token .config/claude .config/github-copilot .config/goose .config/opencode .config/openai
    .config/amp .local/share/opencode
";

/// Names in a home directory: what people typed, which often includes passwords.
const HISTORIES: &str = "
    .bash_history .zsh_history .zhistory .histfile .history .sh_history .ash_history .ksh_history .mksh_history
    .zsh_sessions .local/share/fish/fish_history .python_history .node_repl_history .irb_history .php_history
    .psql_history .mysql_history .mariadb_history .sqlite_history .rediscli_history .lesshst .viminfo
";

/// Data of other Ringwall instances at the default path, below a home directory.
const RINGWALL_DATA: &str = ".local/share/ringwall";

/// Keys and sockets of the system.
const SYSTEM: &str = "
    /etc/ssh /etc/ssl/private /etc/pki/tls/private /etc/kubernetes /etc/letsencrypt /var/lib/docker
    /var/lib/containerd /var/lib/kubelet /var/lib/libvirt /var/lib/ringwall /var/spool/cron
";

/// Directories with files of many users: a socket directly in one of these is hidden alone, without the directory.
const BROAD: [&str; 9] = ["/", "/home", "/root", "/etc", "/var", "/var/lib", "/opt", "/srv", "/mnt"];

/// How many names [`find_marked`] reads before it stops.
const MAX_NAMES: usize = 100_000;

/// The uids of people's accounts, as distributions assign them.
pub(crate) const ORDINARY: std::ops::RangeInclusive<u32> = 1000..=60_000;

/// Keys, histories, agents' directories and Ringwall's data in all home directories, and the system's keys. The paths need
/// not exist.
pub(crate) fn known() -> BTreeSet<PathBuf> {
    let names = || [KEYS, AGENTS, HISTORIES, RINGWALL_DATA].into_iter().flat_map(str::split_ascii_whitespace);
    let personal = homes().into_iter().flat_map(|home| names().map(move |name| home.join(name)).collect::<Vec<_>>());
    personal.chain(SYSTEM.split_ascii_whitespace().map(PathBuf::from)).collect()
}

/// The first known secret that exists in, at or above this path.
pub fn keys_near(path: &Path) -> Option<PathBuf> {
    let is_near = |secret: &PathBuf| secret.starts_with(path) || path.starts_with(secret);
    known().into_iter().find(|secret| is_near(secret) && secret.symlink_metadata().is_ok())
}

/// The home directories of all accounts, everything in `/home`, `/root` and `$HOME`; never `/` itself.
pub(crate) fn homes() -> BTreeSet<PathBuf> {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = accounts.lines().filter_map(|line| line.split(':').nth(5)).map(PathBuf::from);
    let beside = std::fs::read_dir("/home").into_iter().flatten().flatten().map(|entry| entry.path());
    let all = named.chain(beside).chain(own_home()).chain([PathBuf::from("/root")]);
    all.filter(|home| home.is_absolute() && home != Path::new("/")).collect()
}

/// The home directories of people and of this server. Accounts of services often name a system directory (`/usr/games`).
pub(crate) fn homes_of_people() -> BTreeSet<PathBuf> {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let own = rustix::process::geteuid().as_raw();
    let named = accounts.lines().filter_map(|line| {
        let uid: u32 = line.split(':').nth(2)?.parse().ok()?;
        (ORDINARY.contains(&uid) || uid == own).then(|| line.split(':').nth(5).map(PathBuf::from))?
    });
    named.chain(own_home()).filter(|home| home.is_absolute() && home != Path::new("/")).collect()
}

fn own_home() -> Option<PathBuf> {
    std::env::var_os("HOME").map(PathBuf::from)
}

/// Paths at which a process listens, by the kernel's list. A socket's directory is hidden whole, so that a socket made there
/// later is hidden too, unless the directory is in `/home` or holds files of many users.
pub(crate) fn sockets() -> BTreeSet<PathBuf> {
    std::fs::read_to_string("/proc/net/unix").map(|table| sockets_in(&table)).unwrap_or_default()
}

fn sockets_in(table: &str) -> BTreeSet<PathBuf> {
    let paths = table.lines().skip(1).filter_map(|line| line.split_once(" /"));
    let paths = paths.map(|(_, rest)| PathBuf::from(format!("/{rest}")));
    let is_private =
        |directory: &Path| !directory.starts_with("/home") && !BROAD.iter().any(|broad| directory == Path::new(broad));
    let covered = paths.map(|path| match path.parent() {
        Some(directory) if is_private(directory) => directory.to_owned(),
        _ => path,
    });
    covered.collect()
}

/// Environment files (`.env`, `.env.*`), configuration files `ringwall.toml` and data directories of Ringwall below these
/// directories. Breadth first, so that after [`MAX_NAMES`] names it is deep directories that were not read. Links are not
/// followed.
pub(crate) fn find_marked(tops: impl IntoIterator<Item = PathBuf>, skip: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut queue: VecDeque<PathBuf> = tops.into_iter().collect();
    let mut seen: BTreeSet<PathBuf> = queue.iter().cloned().collect();
    let mut left = MAX_NAMES;
    while let Some(directory) = queue.pop_front() {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let Some(next) = left.checked_sub(1) else { return found };
            left = next;
            let (name, path) = (entry.file_name(), entry.path());
            let name = name.as_encoded_bytes();
            if name == b"owner.token" {
                // Beside the lock it marks the data directory of an instance.
                let is_data = directory.join("server.lock").exists();
                found.insert(if is_data { directory.clone() } else { path });
            } else if name == b".env" || name.starts_with(b".env.") || name == b"ringwall.toml" {
                found.insert(path);
            } else if entry.file_type().is_ok_and(|kind| kind.is_dir())
                && !skip.contains(&path)
                && seen.insert(path.clone())
            {
                queue.push_back(path);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_hides_its_directory_unless_it_is_broad() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 17 /run/a/b.sock\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 18\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 19 @abstract/x\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 20 /home/u/.x.sock\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 20 /srv/y.sock\n\
                     0000000000000000: 00000002 00000000 00010000 0001 01 20 /home/u/with space/z.sock\n";
        let expected = ["/home/u/.x.sock", "/home/u/with space/z.sock", "/run/a", "/srv/y.sock"];
        assert_eq!(sockets_in(table).into_iter().collect::<Vec<_>>(), expected.map(PathBuf::from));
    }

    #[test]
    fn marked_files_and_data_directories_are_found() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        for directory in ["app/deep", "instance", "stray", "skipped"] {
            std::fs::create_dir_all(at(directory)).unwrap();
        }
        let files = ["app/.env", "app/deep/.env.local", "app/.environment", "app/ringwall.toml", "skipped/.env"];
        for file in files.iter().chain(&["instance/owner.token", "instance/server.lock", "stray/owner.token"]) {
            std::fs::write(at(file), "").unwrap();
        }
        let found = find_marked([top.path().to_owned()], &BTreeSet::from([at("skipped")]));
        let expected =
            ["app/.env", "app/deep/.env.local", "app/ringwall.toml", "instance", "stray/owner.token"].map(at);
        assert_eq!(found, BTreeSet::from(expected));
    }

    #[test]
    fn homes_never_include_the_root_directory() {
        assert!(!homes().contains(Path::new("/")) && homes().contains(Path::new("/root")));
    }
}
