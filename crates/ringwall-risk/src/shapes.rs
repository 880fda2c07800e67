//! Texts that repeat one construct, to test that no parser or rule needs more than linear time.
//!
//! A line of `tests/shapes.txt` is a language, a form and its parts. `rep` repeats its part. `nest`
//! has an opening, the innermost text and a closing. `two` has a head, a part repeated over the
//! first half, a separator, and a part for the second half. In a repeated part `%` is a running
//! number; `\n`, `\r` and `\\` are escapes.

#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) language: &'static str,
    form: &'static str,
    parts: Vec<String>,
}

impl Shape {
    pub(crate) fn all() -> Vec<Shape> {
        let read = |line: &'static str| {
            let (head, rest) = line.split_once('¦').expect("a form and its parts");
            let (language, form) = head.split_once(' ').expect("a language and a form");
            Shape { language, form, parts: rest.split('¦').map(unescape).collect() }
        };
        include_str!("../tests/shapes.txt").lines().map(read).collect()
    }

    /// A text of at most `length` bytes, and not much less.
    pub(crate) fn text(&self, length: usize) -> String {
        match (self.form, self.parts.as_slice()) {
            ("rep", [part]) => repeated(part, length),
            ("nest", [open, inner, close]) => {
                let count = (length - inner.len()) / (open.len() + close.len());
                format!("{}{inner}{}", open.repeat(count), close.repeat(count))
            }
            ("two", [head, first, between, second]) => {
                let begin = format!("{head}{}{between}", repeated(first, length / 2 - head.len() - between.len()));
                let rest = repeated(second, length - begin.len());
                begin + &rest
            }
            _ => unreachable!("{self:?}"),
        }
    }
}

fn repeated(part: &str, length: usize) -> String {
    if !part.contains('%') {
        return part.repeat(length / part.len());
    }
    let mut text = String::new();
    for number in 0.. {
        let next = part.replace('%', &number.to_string());
        if text.len() + next.len() > length {
            break;
        }
        text.push_str(&next);
    }
    text
}

fn unescape(part: &str) -> String {
    part.replace(r"\\", "\0").replace(r"\n", "\n").replace(r"\r", "\r").replace('\0', r"\")
}
