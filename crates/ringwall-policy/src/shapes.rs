//! Shapes of text that grow, for tests: what takes work out of proportion, if anything does.
//!
//! A line of `tests/shapes.txt` is a language and parts. `rep` repeats its part. `nest` has an opening, what is innermost, and a
//! closing. `two` has a head, a part that is repeated over the first half, what stands between, and a part for the second
//! half. `%` is a running number; `\n`, `\r` and `\\` are what they are elsewhere.

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

    /// Of about so many bytes, and no more.
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
