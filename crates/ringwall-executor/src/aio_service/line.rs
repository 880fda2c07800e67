//! Builds shell lines for the service, with every foreign word quoted.

use std::ffi::OsStr;
use std::path::Path;

use crate::aio_error::AioError;

/// Enters the directory and executes the command. stdin is a file that is deleted when it is open,
/// or `/dev/null`.
pub(super) fn of_command(directory: &str, argv: &[impl AsRef<OsStr>], input: Option<&str>) -> Result<String, AioError> {
    let words = argv
        .iter()
        .map(|word| word.as_ref().to_str().map(quote).ok_or(AioError::NotForService("a command that is not UTF-8")));
    let words = words.collect::<Result<Vec<_>, _>>()?;
    let input = match input {
        Some(file) => format!("exec <{file} && rm -f -- {file}", file = quote(file)),
        None => "exec </dev/null".to_owned(),
    };
    Ok(format!("{input} && cd -- {} && exec {}", quote(directory), words.join(" ")))
}

/// Creates directories with their parents.
pub(super) fn of_directories<'a>(directories: impl IntoIterator<Item = &'a str>) -> String {
    directories.into_iter().fold("mkdir -p --".to_owned(), |line, directory| line + " " + &quote(directory))
}

/// A script that deletes itself first; the shell keeps it open.
pub(super) fn of_script(script: &str, line: &str) -> String {
    format!("rm -f -- {}\n{line}\n", quote(script))
}

pub(super) fn running_script(script: &str) -> String {
    format!("exec bash {}", quote(script))
}

/// The working directory on the service: `/workspace` of a box is the session's directory.
pub(super) fn working_directory(cwd: &Path, directory: &str) -> Result<String, AioError> {
    let beneath = cwd.strip_prefix("/workspace");
    let beneath = beneath.map_err(|_| AioError::NotForService("a working directory outside /workspace"))?;
    match beneath.to_str() {
        None => Err(AioError::NotForService("a working directory that is not UTF-8")),
        Some("") => Ok(directory.to_owned()),
        Some(beneath) => Ok(format!("{directory}/{beneath}")),
    }
}

/// Quotes any text as one word for every POSIX shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_command_are_quoted() {
        let line = of_command("/home/gem/ringwall/s", &["echo", "it's", "$(id)", "a\nb", ""], None).unwrap();
        let command = "cd -- '/home/gem/ringwall/s' && exec 'echo' 'it'\\''s' '$(id)' 'a\nb' ''";
        assert_eq!(line, format!("exec </dev/null && {command}"));
        let line = of_command("/d", &["cat"], Some("/d/it's")).unwrap();
        assert_eq!(line, r"exec <'/d/it'\''s' && rm -f -- '/d/it'\''s' && cd -- '/d' && exec 'cat'");
        assert_eq!(of_directories(["/a b", "/c"]), "mkdir -p -- '/a b' '/c'");
    }

    #[test]
    fn workspace_maps_to_session_directory() {
        let there = |cwd: &str| working_directory(Path::new(cwd), "/home/gem/ringwall/s");
        assert_eq!(there("/workspace").unwrap(), "/home/gem/ringwall/s");
        assert_eq!(there("/workspace/data/x").unwrap(), "/home/gem/ringwall/s/data/x");
        assert!(there("/etc").is_err());
    }
}
