//! Parses key names as in `KeyboardEvent.key`, alone or with modifiers.

/// Fields of a DevTools key event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyPress {
    pub(crate) modifiers: u32,
    pub(crate) key: String,
    pub(crate) code: String,
    pub(crate) number: u32,
    /// Text that the key enters; `None` for other keys.
    pub(crate) text: Option<String>,
    /// Editing commands. Chromium derives shortcuts from these for synthetic input.
    pub(crate) commands: &'static [&'static str],
}

const ALT: u32 = 1;
const CONTROL: u32 = 2;
const META: u32 = 4;
const SHIFT: u32 = 8;

/// Name, code (position on the keyboard) and key number.
const NAMED: &[(&str, &str, u32)] = &[
    ("Backspace", "Backspace", 8),
    ("Tab", "Tab", 9),
    ("Enter", "Enter", 13),
    ("Escape", "Escape", 27),
    ("PageUp", "PageUp", 33),
    ("PageDown", "PageDown", 34),
    ("End", "End", 35),
    ("Home", "Home", 36),
    ("ArrowLeft", "ArrowLeft", 37),
    ("ArrowUp", "ArrowUp", 38),
    ("ArrowRight", "ArrowRight", 39),
    ("ArrowDown", "ArrowDown", 40),
    ("Insert", "Insert", 45),
    ("Delete", "Delete", 46),
    ("F1", "F1", 112),
    ("F2", "F2", 113),
    ("F3", "F3", 114),
    ("F4", "F4", 115),
    ("F5", "F5", 116),
    ("F6", "F6", 117),
    ("F7", "F7", 118),
    ("F8", "F8", 119),
    ("F9", "F9", 120),
    ("F10", "F10", 121),
    ("F11", "F11", 122),
    ("F12", "F12", 123),
];

/// `None` if the text is not a key.
pub(crate) fn read(text: &str) -> Option<KeyPress> {
    // The last key may itself be a plus sign.
    let (held, key) = match text.strip_suffix("++") {
        Some(held) => (Some(held), "+"),
        None if text == "+" => (None, "+"),
        None => text.rsplit_once('+').map_or((None, text), |(held, key)| (Some(held), key)),
    };
    let mut modifiers = 0;
    for name in held.into_iter().flat_map(|held| held.split('+')) {
        modifiers |= match name {
            "Alt" => ALT,
            "Control" | "Ctrl" => CONTROL,
            "Meta" => META,
            "Shift" => SHIFT,
            _ => return None,
        };
    }
    let key = if key == "Space" { " " } else { key };
    let is_typed = modifiers & (ALT | CONTROL | META) == 0;
    if let Some((name, code, number)) = NAMED.iter().find(|(name, _, _)| *name == key) {
        let text = (*name == "Enter" && is_typed).then(|| "\r".to_owned());
        let (key, code) = ((*name).to_owned(), (*code).to_owned());
        return Some(KeyPress { modifiers, key, code, number: *number, text, commands: &[] });
    }
    let mut characters = key.chars();
    let character = characters.next().filter(|character| !character.is_control())?;
    if characters.next().is_some() {
        return None;
    }
    let character = match modifiers & SHIFT {
        SHIFT if character.is_ascii_lowercase() => character.to_ascii_uppercase(),
        _ => character,
    };
    let upper = character.to_ascii_uppercase();
    let (code, number) = match upper {
        'A'..='Z' => (format!("Key{upper}"), u32::from(upper)),
        '0'..='9' => (format!("Digit{upper}"), u32::from(upper)),
        ' ' => ("Space".to_owned(), 32),
        _ => (String::new(), 0),
    };
    let commands: &[&str] = match (modifiers, upper) {
        (CONTROL | META, 'A') => &["selectAll"],
        (CONTROL | META, 'Z') => &["undo"],
        (CONTROL | META, 'Y') => &["redo"],
        _ => &[],
    };
    let text = is_typed.then(|| character.to_string());
    Some(KeyPress { modifiers, key: character.to_string(), code, number, text, commands })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_names_and_modifiers_are_parsed() {
        let enter = read("Enter").unwrap();
        assert_eq!((enter.number, enter.text.as_deref(), enter.modifiers), (13, Some("\r"), 0));
        let chord = read("Control+Shift+K").unwrap();
        assert_eq!((chord.modifiers, chord.code.as_str(), chord.text), (CONTROL | SHIFT, "KeyK", None));
        assert_eq!(read("Shift+a").unwrap().text.as_deref(), Some("A"));
        assert_eq!(read("+").unwrap().text.as_deref(), Some("+"));
        assert_eq!(read("Control++").unwrap().key, "+");
        assert_eq!(read("Space").unwrap().text.as_deref(), Some(" "));
        assert_eq!(read("年").unwrap().text.as_deref(), Some("年"));
        assert_eq!(read("Control+A").unwrap().commands, ["selectAll"]);
        for wrong in ["", "Entre", "ab", "Hyper+A", "Control+", "+A+", "\n", "Control+Alt"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
