//! Normalises text to an absolute path.
//!
//! Text that looks like a Windows path is parsed by Windows rules on every platform, and so is a
//! relative path whose base is a Windows path. Only Windows ignores trailing spaces and dots of a
//! name; on Linux they are part of it.

use ringwall_risk::shell_syntax::{SEPARATORS, WindowsRoot, is_windows_path, trim_name, windows_root};

use super::host_path::{HostPath, PathStyle};
use crate::error::{Error, quote};

/// The kernel's limit, without the trailing NUL.
const MAX_LEN: usize = 4095;

/// Replaces `~` by `home`, resolves a relative path against `base`, and resolves `.` and `..`. `..`
/// at the root stays at the root.
pub fn normalise(text: &str, base: &str, home: Option<&str>) -> Result<HostPath, Error> {
    if text.trim().is_empty() {
        return Err(Error::PathRequired);
    }
    let malformed = |wrong| Error::PathMalformed { given: quote(text), wrong };
    if text.contains('\0') {
        return Err(malformed("contains a NUL byte"));
    }
    let whole = match after_tilde(text) {
        None if names_a_home(text) => {
            return Err(malformed(
                "starts with another user's home directory; write that directory in full, or ./ before a file name with ~",
            ));
        }
        Some(rest) => {
            let home = home.ok_or_else(|| malformed("starts with ~, but the home directory is not known"))?;
            format!("{home}/{rest}")
        }
        None => text.to_owned(),
    };
    let path = match (is_windows_path(&whole), is_windows_path(base)) {
        (true, _) => windows(&whole),
        (false, true) if whole.starts_with(['/', '\\']) => windows(&format!("{}{whole}", drive_of(base))),
        (false, true) => windows(&format!("{base}\\{whole}")),
        (false, false) if whole.starts_with('/') => linux(&whole),
        (false, false) => linux(&format!("{base}/{whole}")),
    };
    if path.as_str().len() > MAX_LEN {
        return Err(malformed("is longer than a path can be"));
    }
    Ok(path)
}

/// A path to add to the list of allowed paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEntry {
    pub path: HostPath,
    /// True if the text was relative to the base.
    pub is_relative: bool,
}

/// [`normalise`] for a new entry. An entry is never a pattern, so `*` and `**` as a name are
/// refused instead of being stored as the name of a file. An empty segment is refused, because `//`
/// usually is a variable that was empty (`$HOME//x`).
pub fn normalise_entry(text: &str, base: &str, home: Option<&str>) -> Result<NewEntry, Error> {
    let path = normalise(text, base, home)?;
    let malformed = |wrong| Error::PathMalformed { given: quote(text), wrong };
    let (separators, rest) = if is_windows_path(text) || is_windows_path(base) {
        (&SEPARATORS[..], text.trim_start_matches(SEPARATORS))
    } else {
        (&SEPARATORS[..1], text.strip_prefix('/').unwrap_or(text))
    };
    let is_root = rest.is_empty();
    let rest = rest.strip_suffix(separators).unwrap_or(rest);
    if rest.split(separators).any(|part| matches!(part, "*" | "**")) {
        return Err(malformed("is a pattern; an entry is one path, so write the directory, which allows all below it"));
    }
    if !is_root && rest.split(separators).any(str::is_empty) {
        return Err(malformed("has an empty segment; write one separator between two names"));
    }
    let is_relative = !text.starts_with('/') && !is_windows_path(text) && after_tilde(text).is_none();
    Ok(NewEntry { path, is_relative })
}

/// The rest after `~` as a component of its own.
fn after_tilde(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('~')?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(['/', '\\']) }
}

/// `~root/a`: a shell would look up that user's home, so the text does not mean a directory of the
/// base.
fn names_a_home(text: &str) -> bool {
    let name = text.strip_prefix('~').unwrap_or_default();
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
}

fn linux(text: &str) -> HostPath {
    let mut parts = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    HostPath::new(format!("/{}", parts.join("/")), PathStyle::Linux)
}

/// The drive, or the server and the share, without a trailing separator.
fn drive_of(text: &str) -> String {
    let text = windows(text).as_str().to_owned();
    let is_share = text.starts_with('\\');
    let end = text.match_indices('\\').nth(if is_share { 3 } else { 0 }).map_or(text.len(), |(at, _)| at);
    text[..end].to_owned()
}

fn windows(text: &str) -> HostPath {
    let (mut whole, rest, kept) = match windows_root(text) {
        Some(WindowsRoot::Drive(letter, rest)) => (format!("{letter}:"), rest, 0),
        // `..` does not remove the server and the share.
        Some(WindowsRoot::Share(rest)) => (r"\".to_owned(), rest, 2),
        None => return linux(text),
    };
    let mut names: Vec<&str> = Vec::new();
    for part in rest.split(SEPARATORS) {
        match (part.trim_end_matches(' '), trim_name(part)) {
            ("..", _) if names.len() > kept => drop(names.pop()),
            (_, "") => {}
            // A server named `?` would turn the path into a literal one.
            (_, "?") if names.is_empty() => {}
            (_, name) => names.push(name),
        }
    }
    for name in &names {
        whole.push('\\');
        whole.push_str(name);
    }
    if names.is_empty() {
        whole.push('\\');
    }
    HostPath::new(whole, PathStyle::Windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str, base: &str, home: Option<&str>) -> String {
        normalise(text, base, home).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
    }

    #[test]
    fn linux_path_is_normalised() {
        let table = [
            ("/home/u", "/home/u"),
            ("//home///u/", "/home/u"),
            ("/home/./u/../v", "/home/v"),
            ("/../../..", "/"),
            ("/", "/"),
            ("a/b", "/workspace/a/b"),
            ("./a", "/workspace/a"),
            (".", "/workspace"),
            ("../../etc/passwd", "/etc/passwd"),
            ("~", "/home/me"),
            ("~/a", "/home/me/a"),
            ("~/../x", "/home/x"),
            ("./~root/a", "/workspace/~root/a"),
            ("~$a", "/workspace/~$a"),
            ("a~/b", "/workspace/a~/b"),
            ("/home/u/...", "/home/u/..."),
            ("/home/a b/ ", "/home/a b/ "),
            (r"/home/a\b", r"/home/a\b"),
            ("/home/中文", "/home/中文"),
            ("//server/share", "/server/share"),
        ];
        for (text, expected) in table {
            assert_eq!(plain(text, "/workspace", Some("/home/me")), expected, "{text}");
        }
        assert_eq!(plain("a", "", None), "/a", "an empty base is the root");
        assert_eq!(plain("a", "/w/../v/", None), "/v/a");
    }

    #[test]
    fn windows_path_is_normalised() {
        let table = [
            (r"c:\Users\Documents", r"C:\Users\Documents"),
            ("C:/Users/Documents/", r"C:\Users\Documents"),
            (r"C:\Users\.\a\..\b", r"C:\Users\b"),
            (r"C:\..\..", r"C:\"),
            ("d:", r"D:\"),
            (r"D:\", r"D:\"),
            (r"\\server\share\a\..\b", r"\\server\share\b"),
            (r"\\server\share\..\..\b", r"\\server\share\b"),
            (r"\\?\C:\Windows", r"C:\Windows"),
            (r"\\.\c:\Windows", r"C:\Windows"),
            (r"\\?\UNC\server\share\x", r"\\server\share\x"),
            (r"C:\Windows. \System32...", r"C:\Windows\System32"),
            (r"C:\a b\c", r"C:\a b\c"),
            (r"\\?.\server\share", r"\\server\share"),
        ];
        for (text, expected) in table {
            for base in ["/workspace", r"E:\base"] {
                assert_eq!(plain(text, base, None), expected, "{text}");
            }
        }
        let table = [
            (r"Users\Documents", r"C:\work\Users\Documents"),
            (r".\Documents", r"C:\work\Documents"),
            (r"..\..\x", r"C:\x"),
            (r"\x", r"C:\x"),
            ("/x/y", r"C:\x\y"),
            (r"~\Documents", r"C:\Users\me\Documents"),
            ("~", r"C:\Users\me"),
        ];
        for (text, expected) in table {
            assert_eq!(plain(text, r"c:\work", Some(r"c:\Users\me")), expected, "{text}");
        }
        assert_eq!(plain(r"\x", r"\\server\share\a", None), r"\\server\share\x");
    }

    #[test]
    fn pattern_or_empty_segment_is_rejected_as_entry() {
        let said = |text: &str| normalise_entry(text, "/w", Some("/home/me")).expect_err("no entry").to_string();
        for pattern in ["*", "**", "./*", "/*", "/srv/*", "/srv/*/x", "/srv/**/", "~/*", r"C:\Users\*", "C:/*"] {
            assert!(said(pattern).contains("is a pattern"), "{pattern}: {}", said(pattern));
        }
        for empty in ["//", "//srv", "/srv//x", "srv//", "/srv//", "~//x", r"C:\\x", r"C:\a\\b", r"C:\a/\b"] {
            assert!(said(empty).contains("empty segment"), "{empty}: {}", said(empty));
        }
        assert_eq!(normalise_entry(" ", "/w", None), Err(Error::PathRequired));
    }

    #[test]
    fn new_entry_reports_relative_text() {
        let table = [
            ("/srv/x/", "/srv/x", false),
            ("/", "/", false),
            ("/srv/./x/..", "/srv", false),
            ("~", "/home/me", false),
            ("~/x", "/home/me/x", false),
            (r"c:\Users\", r"C:\Users", false),
            (r"C:\", r"C:\", false),
            (r"\\server\share", r"\\server\share", false),
            ("x", "/w/x", true),
            ("./x/", "/w/x", true),
            ("..", "/", true),
            // `*` inside a name is part of the name.
            ("/srv/a*", "/srv/a*", false),
        ];
        for (text, path, is_relative) in table {
            let entry = normalise_entry(text, "/w", Some("/home/me")).expect(text);
            assert_eq!((entry.path.as_str(), entry.is_relative), (path, is_relative), "{text}");
        }
    }

    #[test]
    fn invalid_path_is_rejected_with_reason() {
        for blank in ["", " ", "\t\n"] {
            assert_eq!(normalise(blank, "/", None), Err(Error::PathRequired));
        }
        assert_eq!(Error::PathRequired.to_string(), "path is required");
        let said = |text: &str| normalise(text, "/w", None).expect_err("no path").to_string();
        assert!(said("/a\0b").contains("NUL"));
        assert!(said("~/a").contains("home directory"));
        for home in ["~root", "~root/a", "~_x", "~me\\a"] {
            assert!(said(home).contains("another user's home"), "{home}");
            assert!(normalise(home, "/w", Some("/home/me")).is_err(), "{home}");
        }
        assert!(said(&"/a".repeat(2048)).contains("longer"));
        assert!(normalise(&format!("/{}", "a".repeat(4094)), "/", None).is_ok());
    }
}
