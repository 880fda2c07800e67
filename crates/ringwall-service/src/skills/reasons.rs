//! The reasons why a manifest is invalid, safe to print.
//!
//! A reason is a JSON pointer and a sentence. A manifest is untrusted text until it has passed, so
//! reasons are bounded in number and length and contain no control characters.

use jsonschema::ValidationError;

/// Maximum number of reasons.
const MAX_COUNT: usize = 20;
const MAX_LOCATION_LEN: usize = 200;
const MAX_MESSAGE_LEN: usize = 300;

/// Longer values are not repeated in a reason.
const MAX_VALUE_LEN: usize = 80;

#[derive(Debug, Default)]
pub(super) struct Reasons {
    shown: Vec<String>,
    left_out: usize,
}

impl Reasons {
    pub(super) fn is_empty(&self) -> bool {
        self.shown.is_empty()
    }

    /// `pointer` is empty for the manifest as a whole.
    pub(super) fn add(&mut self, pointer: &str, message: &str) {
        if self.shown.len() == MAX_COUNT {
            self.left_out += 1;
            return;
        }
        let place = if pointer.is_empty() { "the manifest" } else { pointer };
        // Cut separately, so that a long pointer does not hide the message.
        self.shown.push(format!("{}: {}", printable(place, MAX_LOCATION_LEN), printable(message, MAX_MESSAGE_LEN)));
    }

    pub(super) fn add_error(&mut self, prefix: &str, error: &ValidationError<'_>) {
        if self.shown.len() == MAX_COUNT {
            // Formatting a value only to drop it could be repeated thousands of times.
            self.left_out += 1;
            return;
        }
        let pointer = format!("{prefix}{}", error.instance_path());
        let is_short = error.instance().to_string().chars().nth(MAX_VALUE_LEN).is_none();
        let message = if is_short { error.to_string() } else { error.masked_with("this value").to_string() };
        self.add(&pointer, &message);
    }

    pub(super) fn into_list(mut self) -> Vec<String> {
        if self.left_out > 0 {
            self.shown.push(format!("and {} more", self.left_out));
        }
        self.shown
    }
}

/// Escapes control characters and cuts the text at `longest` characters.
pub(super) fn printable(text: &str, longest: usize) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == longest {
            shown.push('…');
            break;
        }
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_few_short_and_printable() {
        let mut reasons = Reasons::default();
        assert!(reasons.is_empty());
        for index in 0..25 {
            reasons.add(&format!("/a/{index}"), "\u{1b}[2J");
        }
        let list = reasons.into_list();
        assert_eq!(list.len(), MAX_COUNT + 1);
        assert_eq!(list[0], "/a/0: \\u{1b}[2J");
        assert_eq!(list[MAX_COUNT], "and 5 more");

        let mut reasons = Reasons::default();
        reasons.add("", &"é".repeat(1000));
        let list = reasons.into_list();
        assert_eq!(list[0], format!("the manifest: {}…", "é".repeat(MAX_MESSAGE_LEN)));

        let mut reasons = Reasons::default();
        reasons.add(&"/x".repeat(1000), "is wrong");
        assert_eq!(reasons.into_list(), [format!("{}…: is wrong", "/x".repeat(MAX_LOCATION_LEN / 2))]);
    }
}
