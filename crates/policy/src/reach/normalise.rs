//! Text becomes a full path in its plain form.
//!
//! Texts that look like a path of Windows are read by its rules on every platform, as are relative ones whose base is
//! such a path. Nothing is trimmed but what the platform itself ignores: a blank can be a part of a name.

use super::host_path::{HostPath, PathStyle};
use crate::error::{Error, quote};

/// The kernel's bound, without the NUL at the end.
const LONGEST: usize = 4095;

/// `~` becomes the home; what is relative is read from `base`; `.` and `..` are resolved, and `..` never leads above a root.
pub fn normalise(text: &str, base: &str, home: Option<&str>) -> Result<HostPath, Error> {
    if text.trim().is_empty() {
        return Err(Error::PathRequired);
    }
    let malformed = |wrong| Error::PathMalformed { given: quote(text), wrong };
    if text.contains('\0') {
        return Err(malformed("contains a NUL byte"));
    }
    let whole = match after_tilde(text) {
        Some(rest) => {
            let home = home.ok_or_else(|| malformed("begins with the home directory, which is not known here"))?;
            format!("{home}/{rest}")
        }
        None => text.to_owned(),
    };
    let path = match (is_windows(&whole), is_windows(base)) {
        (true, _) => windows(&whole),
        (false, true) if whole.starts_with(['/', '\\']) => windows(&format!("{}{whole}", drive_of(base))),
        (false, true) => windows(&format!("{base}\\{whole}")),
        (false, false) if whole.starts_with('/') => linux(&whole),
        (false, false) => linux(&format!("{base}/{whole}")),
    };
    if path.as_str().len() > LONGEST {
        return Err(malformed("is longer than a path can be"));
    }
    Ok(path)
}

/// What follows the home directory. The home of somebody else is a name that begins with `~`.
fn after_tilde(text: &str) -> Option<&str> {
    let rest = text.strip_prefix('~')?;
    if rest.is_empty() { Some(rest) } else { rest.strip_prefix(['/', '\\']) }
}

/// `C:\…`, `C:/…`, `C:` and `\\server\…`.
pub(crate) fn is_windows(text: &str) -> bool {
    match text.as_bytes() {
        [drive, b':'] => drive.is_ascii_alphabetic(),
        [drive, b':', b'\\' | b'/', ..] => drive.is_ascii_alphabetic(),
        [b'\\', b'\\', first, ..] => !matches!(first, b'\\' | b'/'),
        _ => false,
    }
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

/// The drive, or the server and the share, without a separator at the end.
fn drive_of(text: &str) -> String {
    let text = windows(text).as_str().to_owned();
    let is_share = text.starts_with('\\');
    let end = text.match_indices('\\').nth(if is_share { 3 } else { 0 }).map_or(text.len(), |(at, _)| at);
    text[..end].to_owned()
}

fn windows(text: &str) -> HostPath {
    let unified = text.replace('/', "\\");
    let mut text = unified.as_str();
    // `\\?\` and `\\.\` say that what follows is to be taken as it is.
    while let Some(rest) = [r"\\?\", r"\\.\"].iter().find_map(|prefix| text.strip_prefix(prefix)) {
        text = rest.trim_start_matches('\\');
    }
    let share = match text.get(..4) {
        Some(prefix) if prefix.eq_ignore_ascii_case(r"UNC\") && unified.starts_with('\\') => Some(&text[4..]),
        _ if is_windows(text) && text.starts_with('\\') => Some(text.trim_start_matches('\\')),
        _ if is_windows(text) => None,
        _ => Some(text.trim_start_matches('\\')),
    };
    let (mut root, rest, kept) = match share {
        Some(share) => (String::from(r"\"), share, 2),
        None => (text[..1].to_ascii_uppercase() + ":", &text[2..], 0),
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in rest.split('\\') {
        // The system ignores dots and blanks at the end of a name.
        let name = part.trim_end_matches(['.', ' ']);
        match part.trim_end_matches(' ') {
            ".." if parts.len() > kept => drop(parts.pop()),
            _ if name.is_empty() => {}
            _ => parts.push(name),
        }
    }
    for part in &parts {
        root.push('\\');
        root.push_str(part);
    }
    if parts.is_empty() {
        root.push('\\');
    }
    HostPath::new(root, PathStyle::Windows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str, base: &str, home: Option<&str>) -> String {
        normalise(text, base, home).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
    }

    #[test]
    fn paths_of_linux() {
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
            ("~root/a", "/workspace/~root/a"),
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
        assert_eq!(plain("a", "", None), "/a", "a base that is none is the root");
        assert_eq!(plain("a", "/w/../v/", None), "/v/a");
    }

    #[test]
    fn paths_of_windows() {
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
    fn what_is_no_path_is_told() {
        for blank in ["", " ", "\t\n"] {
            assert_eq!(normalise(blank, "/", None), Err(Error::PathRequired));
        }
        assert_eq!(Error::PathRequired.to_string(), "path is required");
        let said = |text: &str| normalise(text, "/w", None).expect_err("no path").to_string();
        assert!(said("/a\0b").contains("NUL"));
        assert!(said("~/a").contains("home directory"));
        assert!(said(&"/a".repeat(2048)).contains("longer"));
        assert!(normalise(&format!("/{}", "a".repeat(4094)), "/", None).is_ok());
    }
}
