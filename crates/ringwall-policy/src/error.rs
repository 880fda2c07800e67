//! Malformed input: a limit that is not a number, a key that does not exist.
//!
//! A well-formed request that is not allowed is a [`crate::Denial`], not an [`Error`]. Text from
//! users is escaped and truncated by [`quote`] before it becomes part of a message.

use crate::field::Field;
use crate::layer::Requirement;
use crate::permission::ProjectDir;

/// Malformed input. Each message names the key or quotes the value, and says what is accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{field} must be {}, not {given}", field.expectation())]
    LimitMalformed { field: Field, given: String },

    #[error("{field} must be at most {}, not {given}", field.quantity(field.max_value()))]
    LimitTooLarge { field: Field, given: String },

    #[error("unknown key {given}; the keys are {}, net, require", Field::ALL.map(Field::key).join(", "))]
    KeyUnknown { given: String },

    #[error("{key} is given twice")]
    KeyTwice { key: &'static str },

    #[error("unknown requirement {given}; choose from {}", Requirement::ALL.map(Requirement::key).join(", "))]
    RequirementUnknown { given: String },

    #[error("{given} {wrong}")]
    HostMalformed { given: String, wrong: &'static str },

    #[error("{given} {wrong}")]
    PageRefused { given: String, wrong: String },

    #[error(
        "{given} {wrong}; write a host like pypi.org, pypi.org:8443, *.example.com or 198.51.100.7, without a \
         scheme or a path"
    )]
    NetEntryMalformed { given: String, wrong: &'static str },

    #[error("the list has more than {max} hosts")]
    NetListTooLong { max: usize },

    #[error(
        "{given} is not an image name: use 1 to 64 of the characters a-z, 0-9, '.', '_' and '-', \
         starting with a letter or a digit"
    )]
    ImageNameMalformed { given: String },

    #[error("{given} is not a docker image; write it as name:tag, host:5000/name or name@sha256:digest")]
    DockerImageMalformed { given: String },

    #[error("{uid}:{gid} cannot own a project: a box runs as its owner, and never as root")]
    OwnerRefused { uid: u32, gid: u32 },

    #[error(
        "{given} is not a directory of permissions.fs; use one of {}",
        ProjectDir::ALL.map(ProjectDir::glob).join(", ")
    )]
    ProjectDirUnknown { given: String },

    #[error("cwd {given} {wrong}; name a directory under work/ or inputs/, for example work/build")]
    CwdMalformed { given: String, wrong: &'static str },

    #[error("path is required")]
    PathRequired,

    #[error("path {given} {wrong}; write the full path")]
    PathMalformed { given: String, wrong: &'static str },

    #[error("Command cannot be empty.")]
    CommandEmpty,

    #[error("Command is {length} bytes long, but at most {max} can be given to a shell; put it into a script")]
    CommandTooLong { length: usize, max: usize },

    #[error("Command cannot be read as a line of bash: line {line}, column {column}, near {near}")]
    CommandMalformed { line: usize, column: usize, near: String },

    #[error("Command contains a NUL byte, which would cut it short")]
    CommandNul,

    #[error("Command is too complex to be checked; put it into a script")]
    CommandTooComplex,

    #[error("{given} is not a command name: use 1 to 255 letters, digits and '.', '_', '+', '-', '/'")]
    CommandNameMalformed { given: String },

    #[error("{key} must be a whole number from {min} to {max}, not {given}")]
    CountOutOfRange { key: &'static str, min: u32, max: u32, given: String },

    #[error("a backend must be native, docker or gvisor")]
    IsolationUnknown,
}

/// Escapes and truncates text from outside for a message: control characters could steer the
/// reader's terminal, and a long key would hide the sentence.
pub(crate) fn quote(text: &str) -> String {
    const SHOWN: usize = 80;
    let mut quoted = String::from('"');
    quoted.extend(text.chars().take(SHOWN).flat_map(char::escape_debug));
    if text.chars().nth(SHOWN).is_some() {
        quoted.push('…');
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_is_escaped_and_truncated() {
        assert_eq!(quote("plain"), "\"plain\"");
        assert_eq!(quote("\u{1b}[2J\n"), "\"\\u{1b}[2J\\n\"");
        assert_eq!(quote(&"é".repeat(80)), format!("\"{}\"", "é".repeat(80)));
        assert_eq!(quote(&"é".repeat(81)), format!("\"{}…\"", "é".repeat(80)));
    }

    #[test]
    fn message_names_key_and_accepted_values() {
        let table = [
            (
                Error::LimitMalformed { field: Field::Pids, given: "0".into() },
                "pids must be a whole number of processes, at least 1, not 0",
            ),
            (
                Error::LimitTooLarge { field: Field::TimeoutMs, given: "99999999999".into() },
                "timeout_ms must be at most 31536000000 ms, not 99999999999",
            ),
            (
                Error::KeyUnknown { given: quote("timout_ms") },
                "unknown key \"timout_ms\"; the keys are timeout_ms, memory_mb, cpu_cores, pids, max_stdout_bytes, \
                 max_stderr_bytes, max_artifacts_bytes_total, scratch_mb, net, require",
            ),
            (
                Error::RequirementUnknown { given: quote("seccomp") },
                "unknown requirement \"seccomp\"; choose from landlock, memory, pids, cpu, io, open_files, \
                 epoll_watches, inotify_instances, pending_signals, pipe_pages, passed_descriptors, user_processes",
            ),
        ];
        for (error, expected) in table {
            assert_eq!(error.to_string(), expected);
        }
    }
}
