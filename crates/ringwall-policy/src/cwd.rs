//! The `cwd` of an exec in a project.
//!
//! Callers write it relative to the project (`work`, `inputs/data`); in the box it is below
//! `/workspace`. `artifacts` is not accepted: files that a program leaves in its start directory
//! would be collected as results.

use std::path::{Component, Path, PathBuf};

use crate::error::{Error, quote};
use crate::paths::WORKSPACE;

const DEFAULT: &str = "work";
const ROOTS: [&str; 2] = ["work", "inputs"];

/// The kernel's limits for a file name and for a path without its NUL. A longer one would fail in
/// the box with only an errno.
const MAX_NAME_LEN: usize = 255;
const MAX_PATH_LEN: usize = 4095;

/// Returns the normalised path in the box.
pub fn check_cwd(cwd: Option<&str>) -> Result<PathBuf, Error> {
    let given = cwd.unwrap_or(DEFAULT);
    let malformed = |wrong| Error::CwdMalformed { given: quote(given), wrong };
    if given.contains('\0') {
        return Err(malformed("contains a NUL byte"));
    }
    let path = Path::new(given);
    if path.has_root() {
        return Err(malformed("is not relative to the project"));
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(malformed("goes up with '..'"));
    }
    // `components` keeps a `.` only at the start.
    let plain: PathBuf = path.components().filter(|part| *part != Component::CurDir).collect();
    if !ROOTS.iter().any(|root| plain.starts_with(root)) {
        return Err(malformed("is neither under work/ nor under inputs/"));
    }
    let inside = Path::new(WORKSPACE).join(&plain);
    if plain.components().any(|part| part.as_os_str().len() > MAX_NAME_LEN) || inside.as_os_str().len() > MAX_PATH_LEN {
        return Err(malformed("is longer than a path can be"));
    }
    Ok(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cwd_in_work_or_inputs_is_accepted() {
        let table = [
            (None, "/workspace/work"),
            (Some("work"), "/workspace/work"),
            (Some("work/"), "/workspace/work"),
            (Some("./work/./a//b/"), "/workspace/work/a/b"),
            (Some("inputs"), "/workspace/inputs"),
            (Some("inputs/a..b"), "/workspace/inputs/a..b"),
            (Some("work/artifacts"), "/workspace/work/artifacts"),
        ];
        for (given, inside) in table {
            assert_eq!(check_cwd(given), Ok(inside.into()), "{given:?}");
        }
    }

    #[test]
    fn other_cwd_is_rejected_with_reason() {
        let long_name = format!("work/{}", "x".repeat(256));
        let long_path = format!("work{}", "/x".repeat(2048));
        let table = [
            ("", "is neither under"),
            (".", "is neither under"),
            ("artifacts", "is neither under"),
            ("workshop", "is neither under"),
            ("Work", "is neither under"),
            ("etc", "is neither under"),
            ("/", "is not relative"),
            ("/etc", "is not relative"),
            ("/workspace/work", "is not relative"),
            ("..", "goes up"),
            ("work/..", "goes up"),
            ("work/../artifacts", "goes up"),
            ("work/a/../b", "goes up"),
            ("../work", "goes up"),
            ("work\0", "contains a NUL byte"),
            (&long_name, "is longer than a path can be"),
            (&long_path, "is longer than a path can be"),
        ];
        for (given, wrong) in table {
            let error = check_cwd(Some(given)).expect_err(wrong).to_string();
            assert!(error.starts_with("cwd \"") && error.contains(wrong), "{error}");
        }
        assert_eq!(
            check_cwd(Some("/etc")).expect_err("an absolute path").to_string(),
            "cwd \"/etc\" is not relative to the project; name a directory under work/ or inputs/, for example work/build"
        );
    }
}
