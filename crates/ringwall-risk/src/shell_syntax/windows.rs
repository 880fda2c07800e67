//! Recognises Windows paths, in which a backslash is a separator and no escape.

pub const SEPARATORS: [char; 2] = ['/', '\\'];

/// The root of a Windows path, and the text after it.
#[derive(Debug)]
pub enum WindowsRoot<'t> {
    Drive(char, &'t str),
    Share(&'t str),
}

/// `C:\…`, `C:/…`, `C:` and `\\server\…`.
pub fn is_windows_path(text: &str) -> bool {
    windows_root(text).is_some()
}

pub fn windows_root(text: &str) -> Option<WindowsRoot<'_>> {
    if let Some(drive) = drive(text) {
        return Some(drive);
    }
    let mut rest = text.strip_prefix(r"\\").filter(|rest| !rest.starts_with(SEPARATORS))?;
    let mut is_literal = false;
    // `\\?\` and `\\.\` mark a literal path.
    while let Some(after) = rest.strip_prefix(['?', '.']).filter(|after| after.starts_with(SEPARATORS)) {
        is_literal = true;
        rest = after.trim_start_matches(SEPARATORS);
    }
    if is_literal {
        if let Some(drive) = drive(rest) {
            return Some(drive);
        }
        let is_share = rest.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(r"UNC\"));
        rest = if is_share { &rest[4..] } else { rest };
    }
    let has_name = rest.split(SEPARATORS).any(|part| !matches!(trim_name(part), "" | "?"));
    has_name.then_some(WindowsRoot::Share(rest))
}

fn drive(text: &str) -> Option<WindowsRoot<'_>> {
    let letter = text.chars().next().filter(char::is_ascii_alphabetic)?;
    let rest = text[1..].strip_prefix(':')?;
    (rest.is_empty() || rest.starts_with(SEPARATORS)).then(|| WindowsRoot::Drive(letter.to_ascii_uppercase(), rest))
}

/// Windows ignores trailing dots and spaces of a name.
pub fn trim_name(part: &str) -> &str {
    part.trim_end_matches(['.', ' '])
}
