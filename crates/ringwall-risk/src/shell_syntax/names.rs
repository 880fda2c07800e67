//! Names of commands: the builtins of the shell, and programs in system directories.

/// `eval`, `exec`, `command`, `builtin` and `trap` are included because the commands that they run
/// are checked too; `source` reads a script, as `bash` does.
const BUILTINS: [&str; 46] = [
    ".",
    ":",
    "[",
    "bg",
    "break",
    "builtin",
    "caller",
    "cd",
    "command",
    "continue",
    "declare",
    "dirs",
    "disown",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fg",
    "getopts",
    "jobs",
    "let",
    "local",
    "mapfile",
    "popd",
    "pushd",
    "read",
    "readarray",
    "readonly",
    "return",
    "set",
    "shift",
    "shopt",
    "source",
    "test",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unset",
    "unsetenv",
    "wait",
    "time",
];
/// Directories in which a box with an agent's files searches programs; all are read-only in it.
const PROGRAM_DIRECTORIES: [&str; 3] = ["/usr/local/bin/", "/usr/bin/", "/bin/"];

/// True if `name` is a builtin that changes only the shell itself, or whose own commands are
/// checked too (`eval`, `exec`).
pub fn is_builtin(name: &str) -> bool {
    BUILTINS.contains(&name)
}

/// Strips the directory of a system program. A path to another directory stays a path.
pub fn plain_name(name: &str) -> &str {
    let stripped = PROGRAM_DIRECTORIES.iter().find_map(|directory| name.strip_prefix(directory));
    stripped.filter(|name| !name.contains('/')).unwrap_or(name)
}
