//! Classifies paths in commands: the whole file system, system directories, devices, secrets.

/// System directories.
const SYSTEM: [&str; 15] = [
    "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/boot", "/sys", "/proc", "/var", "/opt", "/root", "/System",
    "/Library", "/dev",
];
/// Files that are run later, or that give access.
const STARTED: [&str; 10] = [
    "/.ssh/",
    "/.bashrc",
    "/.profile",
    "/.bash_profile",
    "/.zshrc",
    "/.git/hooks/",
    "/.config/autostart/",
    "/cron",
    "/.pth",
    "/sitecustomize.py",
];
const SECRETS: [&str; 14] = [
    "/etc/shadow",
    "/etc/passwd",
    "/etc/sudoers",
    "/.ssh",
    "id_rsa",
    "id_ed25519",
    "/.aws",
    "/.netrc",
    "/.git-credentials",
    "/.kube/config",
    "/.gnupg",
    "/self/environ",
    "/.docker/config.json",
    "/.npmrc",
];
const HARMLESS: [&str; 10] = [
    "/dev/null",
    "/dev/zero",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/stderr",
    "/dev/tty",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/fd",
];

/// The longest path.
const MAX_LEN: usize = 4096;

/// Resolves `.` and `..`, and removes a trailing pattern for all files of a directory.
fn settled(path: &str) -> String {
    let path = path.trim().trim_matches(['"', '\'']);
    let absolute = path.starts_with('/');
    let mut kept: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(kept.pop()),
            part => kept.push(part),
        }
    }
    while kept.last().is_some_and(|part| matches!(*part, "*" | ".*" | "{*,.*}" | ".[!.]*" | "**"))
        && (absolute || kept.len() > 1)
    {
        kept.pop();
    }
    format!("{}{}", if absolute { "/" } else { "" }, kept.join("/"))
}

/// True if a path is the whole file system or a home directory.
pub(crate) fn names_everything(path: &str) -> bool {
    if path.len() > MAX_LEN {
        return false;
    }
    let settled = settled(path);
    let parts: Vec<&str> = settled.split('/').collect();
    match parts.as_slice() {
        ["", ""] => true,
        ["~" | "$HOME" | "${HOME}"] | ["", "home" | "root" | "Users"] | ["", "home" | "Users", _] => true,
        [user] => user.starts_with('~') && user.len() > 1 && user[1..].chars().all(char::is_alphanumeric),
        _ => false,
    }
}

pub(super) fn is_system(path: &str) -> bool {
    let settled = settled(path);
    SYSTEM.iter().any(|place| settled.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        && !settled.starts_with("/var/tmp")
        && !is_harmless(&settled)
}

/// True if the path is in a system directory, or its content is run later.
pub(super) fn is_delicate(path: &str) -> bool {
    let rooted = format!("/{path}");
    is_system(path) || STARTED.iter().any(|place| rooted.contains(place))
}

pub(super) fn is_secret(path: &str) -> bool {
    let path = format!("/{path}");
    SECRETS.iter().any(|secret| path.contains(secret))
}

fn is_harmless(path: &str) -> bool {
    HARMLESS.iter().any(|one| path.strip_prefix(one).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
        || path.starts_with("/dev/shm/")
        || path.starts_with("/dev/pts/")
}

/// A device that stores data, or memory.
pub(super) fn is_device(path: &str) -> bool {
    let settled = settled(path);
    settled.starts_with("/dev/") && !is_harmless(&settled) && !is_socket(&settled)
}

pub(super) fn is_socket(path: &str) -> bool {
    path.starts_with("/dev/tcp/") || path.starts_with("/dev/udp/")
}

pub(super) fn goes_nowhere(path: &str) -> bool {
    is_harmless(path) || path == "-" || path.parse::<u32>().is_ok()
}

/// Shells with the options of `bash`.
pub(super) fn shell_alias(name: &str) -> &str {
    if matches!(name, "zsh" | "ksh" | "ash" | "fish" | "rbash") { "bash" } else { name }
}

/// The words as a line of shell.
pub(crate) fn quoted(words: &[String]) -> String {
    let quote = |word: &String| format!("'{}'", word.replace('\'', "'\\''"));
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_file_system_is_found_in_any_spelling() {
        for all in [
            "/", "//", "/*", "/.", "/tmp/..", "/./", "~", "~/", "~/*", "$HOME", "${HOME}/", "/home", "/home/*",
            "/root", "/home/me", "~me", "\"/\"",
        ] {
            assert!(names_everything(all), "{all}");
        }
        for part in
            ["/tmp", "~/x", "$HOME/x", "*", ".", "./*", "x/*", "/home/me/x", "", "..", "$DIR", "/workspace", "é"]
        {
            assert!(!names_everything(part), "{part}");
        }
    }

    #[test]
    fn storage_device_is_found() {
        for device in ["/dev/sda", "/dev/nvme0n1", "/dev/mem", "/dev/mapper/x"] {
            assert!(is_device(device) && !goes_nowhere(device), "{device}");
        }
        for harmless in ["/dev/null", "/dev/stderr", "/dev/fd/3", "/dev/tcp/a/1", "/dev/shm/x", "x", "/devices"] {
            assert!(!is_device(harmless), "{harmless}");
        }
    }
}
