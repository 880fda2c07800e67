//! Which paths of the host a box may have, and in which directories a command may start.
//!
//! The rules compare text. A symlink can give a forbidden directory an allowed name, so the code
//! that opens the path must check the result. Returned paths have no `.`, no double and no trailing
//! slashes.

use std::path::{Component, Path, PathBuf};

use crate::error::quote;
use crate::permission::{Access, ProjectAccess};
use crate::request::{AgentMounts, ProjectMounts, Workspace};
use crate::session::PathControl;
use crate::verdict::{Denial, DenialCode};

/// Mount point of the workspace in every box, and the default working directory.
pub(crate) const WORKSPACE: &str = "/workspace";

/// Mount points of a project's directories, and the default working directory among them.
const PROJECT_DIRECTORIES: [&str; 3] = ["/workspace/inputs", PROJECT_WORK, "/workspace/artifacts"];
const PROJECT_WORK: &str = "/workspace/work";

/// Mount points of the directories of an agent's files.
const AGENT_DIRECTORIES: [&str; 2] = ["/workspace/files", "/workspace/skills"];

/// Kernel file systems and runtime sockets.
pub(crate) const FORBIDDEN_TREES: [&str; 4] = ["/proc", "/sys", "/dev", "/run"];

/// Forbidden as a whole only: a part such as `/etc/ssl` may be mounted read-only.
const FORBIDDEN_WHOLE: [&str; 3] = ["/", "/etc", "/boot"];

/// The host's programs. Read-only in every box; a workspace is writable, so it cannot be one of
/// them.
const SYSTEM_TREES: [&str; 17] = [
    "/bin",
    "/boot",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/sbin",
    "/usr/bin",
    "/usr/include",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/libx32",
    "/usr/sbin",
    "/usr/share",
    "/usr/local/bin",
];

/// Directories that the box provides. A mount over one would hide it; a mount below it adds to it.
const RESERVED_WHOLE: [&str; 8] = ["/tmp", "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Checks a host directory for use as the workspace.
pub(crate) fn check_workspace(path: &Path) -> Result<PathBuf, Denial> {
    let path = plain("the workspace", path)?;
    check_forbidden("the workspace", &path)?;
    if path == Path::new("/usr") || SYSTEM_TREES.iter().any(|tree| path.starts_with(tree)) {
        return Err(forbidden("the workspace", &path));
    }
    Ok(path)
}

/// Checks a host directory that is mounted read-only at the same path.
pub(crate) fn check_read_only(path: &Path) -> Result<PathBuf, Denial> {
    let subject = "the read-only directory";
    let path = plain(subject, path)?;
    check_forbidden(subject, &path)?;
    let reserved = path.starts_with(WORKSPACE) || RESERVED_WHOLE.iter().any(|whole| path == Path::new(whole));
    if reserved {
        return Err(Denial::new(
            DenialCode::PathReserved,
            format!("{subject} {} would hide a directory that the box provides", show(&path)),
        )
        .with_hint("name a subdirectory, or copy the files into the workspace"));
    }
    Ok(path)
}

/// Checks the directories of a project. None may contain another, because inputs inside a writable
/// directory would be writable.
pub(crate) fn check_project(mounts: &ProjectMounts) -> Result<ProjectMounts, Denial> {
    let inputs = check_workspace(&mounts.inputs)?;
    let work = check_workspace(&mounts.work)?;
    let artifacts = check_workspace(&mounts.artifacts)?;
    for (one, other) in [(&inputs, &work), (&inputs, &artifacts), (&work, &artifacts)] {
        check_apart("the project's directories", one, other)?;
    }
    let access = ProjectAccess { inputs: mounts.access.inputs.min(Access::ReadOnly), ..mounts.access };
    Ok(ProjectMounts { inputs, work, artifacts, access, owner: mounts.owner })
}

/// Checks the directories of an agent's files.
pub(crate) fn check_agent(mounts: &AgentMounts) -> Result<AgentMounts, Denial> {
    let (files, skills) = (check_workspace(&mounts.files)?, check_workspace(&mounts.skills)?);
    check_apart("the agent's directories", &files, &skills)?;
    Ok(AgentMounts { files, skills, owner: mounts.owner })
}

fn check_apart(subject: &str, one: &Path, other: &Path) -> Result<(), Denial> {
    if !one.starts_with(other) && !other.starts_with(one) {
        return Ok(());
    }
    let message = format!("{subject} {} and {} overlap", show(one), show(other));
    Err(Denial::new(DenialCode::PathForbidden, message)
        .with_hint("name two directories of which neither lies inside the other"))
}

/// Checks the start directory of the command, a path in the box.
pub(crate) fn check_working_directory(requested: Option<&Path>, workspace: &Workspace) -> Result<PathBuf, Denial> {
    let (default, allowed, hint) = match workspace {
        Workspace::Private | Workspace::Directory(_) => {
            (WORKSPACE, &[WORKSPACE, "/tmp"][..], "the workspace appears at /workspace inside the box")
        }
        Workspace::Project(_) => {
            (PROJECT_WORK, &PROJECT_DIRECTORIES[..], "inputs, work and artifacts appear in /workspace inside the box")
        }
        Workspace::Agent(_) => {
            (WORKSPACE, &AGENT_DIRECTORIES[..], "files and skills appear in /workspace inside the box")
        }
        Workspace::Session(_) => (WORKSPACE, &[WORKSPACE, "/tmp"][..], "name an allowed directory"),
    };
    let Some(path) = requested else { return Ok(PathBuf::from(default)) };
    let path = plain("the working directory", path)?;
    // The start directory is one of the paths that a session's command names, and is judged with
    // them.
    if let Workspace::Session(mounts) = workspace
        && match &mounts.control {
            PathControl::On(access) => access.names(&path),
            PathControl::Off(_) => true,
        }
    {
        return Ok(path);
    }
    if path == Path::new(default) || allowed.iter().any(|directory| path.starts_with(directory)) {
        return Ok(path);
    }
    let (last, first) = allowed.split_last().unwrap_or((&default, &[]));
    Err(Denial::new(
        DenialCode::WorkingDirectory,
        format!("the working directory {} is neither in {} nor in {last}", show(&path), first.join(" nor in ")),
    )
    .with_hint(hint))
}

/// Normalises an absolute path; denies `..` and NUL.
pub(crate) fn plain(subject: &str, path: &Path) -> Result<PathBuf, Denial> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(Denial::new(DenialCode::NulByte, format!("{subject} {} contains a NUL byte", show(path))));
    }
    let malformed = |wrong| {
        Denial::new(DenialCode::PathMalformed, format!("{subject} {} {wrong}", show(path)))
            .with_hint("give the absolute path, starting with /")
    };
    if !path.has_root() {
        return Err(malformed("is not an absolute path"));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(malformed("goes up with '..'"));
    }
    Ok(path.components().collect())
}

fn check_forbidden(subject: &str, path: &Path) -> Result<(), Denial> {
    let refused = FORBIDDEN_TREES.iter().any(|tree| path.starts_with(tree))
        || FORBIDDEN_WHOLE.iter().any(|whole| path == Path::new(whole));
    if refused { Err(forbidden(subject, path)) } else { Ok(()) }
}

fn forbidden(subject: &str, path: &Path) -> Denial {
    Denial::new(
        DenialCode::PathForbidden,
        format!("{subject} {} would expose system directories of the host to the box", show(path)),
    )
    .with_hint("name the directory that holds the work, for example a project in your home")
}

pub(crate) fn show(path: &Path) -> String {
    quote(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;
    use DenialCode::{NulByte, PathForbidden, PathMalformed, PathReserved, WorkingDirectory};

    type Rule = fn(&Path) -> Result<PathBuf, Denial>;

    fn check(rule: Rule, path: &str) -> Result<PathBuf, DenialCode> {
        rule(Path::new(path)).map_err(|denial| denial.code)
    }

    #[test]
    fn relative_path_is_denied() {
        for rule in [check_workspace as Rule, check_read_only as Rule] {
            for (path, code) in [
                ("", PathMalformed),
                (".", PathMalformed),
                ("work", PathMalformed),
                ("./work", PathMalformed),
                ("../work", PathMalformed),
                ("/home/../etc", PathMalformed),
                ("/home/..", PathMalformed),
                ("/home/a\0b", NulByte),
            ] {
                assert_eq!(check(rule, path), Err(code), "{path:?}");
            }
            for (path, plain) in [
                ("/home/me/work", "/home/me/work"),
                ("//home//me/./work/", "/home/me/work"),
                ("/home/a..b", "/home/a..b"),
                ("/srv/...", "/srv/..."),
            ] {
                assert_eq!(check(rule, path), Ok(plain.into()), "{path:?}");
            }
        }
    }

    #[test]
    fn system_directory_as_workspace_is_denied() {
        for path in ["/usr", "/usr/bin", "/usr/lib/python3", "/bin", "/lib64", "/boot/efi", "/usr/local/bin"] {
            assert_eq!(check(check_workspace, path), Err(PathForbidden), "{path}");
        }
        for path in ["/usr/src/project", "/usr/local/src", "/usrlocal", "/home/me/usr", "/opt/bin"] {
            assert_eq!(check(check_workspace, path), Ok(path.into()), "{path}");
        }
        assert_eq!(check(check_read_only, "/usr/lib/python3"), Ok("/usr/lib/python3".into()), "boxes have it anyway");
    }

    #[test]
    fn kernel_and_root_directories_are_denied() {
        for rule in [check_workspace as Rule, check_read_only as Rule] {
            for path in [
                "/",
                "//",
                "/.",
                "/proc",
                "/proc/",
                "/proc/1/root",
                "/sys",
                "/sys/fs/cgroup",
                "/dev",
                "/dev/shm",
                "/run",
                "/run/docker.sock",
                "/etc",
                "//etc/.",
                "/boot",
            ] {
                assert_eq!(check(rule, path), Err(PathForbidden), "{path:?}");
            }
            for path in ["/etc/ssl", "/process", "/running", "/developer", "/opt"] {
                assert_eq!(check(rule, path), Ok(path.into()), "{path:?}");
            }
        }
    }

    #[test]
    fn read_only_mount_over_box_directory_is_denied() {
        for path in [
            "/workspace",
            "/workspace/data",
            "/tmp",
            "/tmp/",
            "/usr",
            "/bin",
            "/sbin",
            "/lib",
            "/lib32",
            "/lib64",
            "/libx32",
        ] {
            assert_eq!(check(check_read_only, path), Err(PathReserved), "{path:?}");
        }
        for path in ["/usr/share/dict", "/tmp/data", "/lib/firmware", "/library", "/workspaces"] {
            assert_eq!(check(check_read_only, path), Ok(path.into()), "{path:?}");
        }
    }

    #[test]
    fn start_directory_outside_workspace_and_tmp_is_denied() {
        let rule: Rule = |path| check_working_directory(Some(path), &Workspace::Private);
        for path in ["/workspace", "/workspace/a/b", "/tmp", "/tmp/x"] {
            assert_eq!(check(rule, path), Ok(path.into()));
        }
        for (path, code) in [
            ("/", WorkingDirectory),
            ("/usr", WorkingDirectory),
            ("/workspaces", WorkingDirectory),
            ("/tmpfile", WorkingDirectory),
            ("work", PathMalformed),
            ("/workspace/..", PathMalformed),
            ("/workspace/../etc", PathMalformed),
            ("/workspace/\0", NulByte),
        ] {
            assert_eq!(check(rule, path), Err(code), "{path:?}");
        }
    }

    #[test]
    fn message_escapes_quoted_path() {
        let denial = check_workspace(Path::new("\u{1b}[2J")).expect_err("a relative path");
        assert_eq!(denial.message, "the workspace \"\\u{1b}[2J\" is not an absolute path");
    }
}
