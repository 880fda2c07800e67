//! Formats the report as a table: one row per check, costs and fix below it, and the conclusion last.
//!
//! Output is ASCII unless the locale is UTF-8, and has colours only on a terminal. Control characters in
//! paths and responses are replaced.

use std::fmt::Write as _;
use std::io::IsTerminal;

use super::report::{Check, Report, State};

const MAX_WIDTH: usize = 100;
const MIN_WIDTH: usize = 60;
/// Columns of the mark and the space after it.
const MARGIN: usize = 2;
const INDENT: &str = "    ";

#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    unicode: bool,
    colours: bool,
    width: usize,
}

impl Style {
    /// The style for the standard output and environment of this process.
    pub(crate) fn of_this_process() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let is_terminal = std::io::stdout().is_terminal();
        let columns = rustix::termios::tcgetwinsize(rustix::stdio::stdout()).map(|size| usize::from(size.ws_col)).ok();
        Style::choose(variable, is_terminal, columns)
    }

    fn choose(variable: impl Fn(&str) -> Option<String>, is_terminal: bool, columns: Option<usize>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let colours = is_terminal && set("NO_COLOR").is_none() && set("TERM").is_some_and(|kind| kind != "dumb");
        let width = columns.filter(|columns| *columns > 0).unwrap_or(MAX_WIDTH);
        Style {
            unicode: locale.contains("utf-8") || locale.contains("utf8"),
            colours,
            width: width.clamp(MIN_WIDTH, MAX_WIDTH),
        }
    }

    fn mark(self, state: State) -> &'static str {
        match (state, self.unicode) {
            (State::Ok, true) => "✓",
            (State::Ok, false) => "+",
            (State::Partial, _) => "~",
            (State::Missing, true) => "✗",
            (State::Missing, false) => "x",
            (State::Optional, true) => "–",
            (State::Optional, false) => "-",
        }
    }

    fn paint(self, text: &str, state: State) -> String {
        let colour = match state {
            State::Ok => 32,
            State::Partial => 33,
            State::Missing => 31,
            State::Optional => 90,
        };
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Replaces control characters, and non-ASCII ones if the locale is not UTF-8.
    fn clean(self, text: &str) -> String {
        let is_fine = |character: char| !character.is_control() && (self.unicode || character.is_ascii());
        text.chars().map(|character| if is_fine(character) { character } else { '?' }).collect()
    }
}

pub(crate) fn draw(report: &Report, style: &Style) -> String {
    let column = report.checks.iter().map(|check| check.title().len()).max().unwrap_or(0);
    let mut text = format!("ringwall doctor: {}, Linux {}\n\n", report.mode, style.clean(&report.kernel));
    for check in &report.checks {
        draw_row(&mut text, check, column, *style);
    }
    text.push('\n');
    for line in wrap(&style.clean(&report.conclusion), style.width) {
        let _ = writeln!(text, "{line}");
    }
    text
}

fn draw_row(text: &mut String, check: &Check, column: usize, style: Style) {
    let indent = MARGIN + column + 2;
    let mut lines = wrap(&style.clean(&check.detail), style.width - indent).into_iter();
    let mark = style.paint(style.mark(check.state), check.state);
    let _ = writeln!(text, "{mark} {:column$}  {}", check.title(), lines.next().unwrap_or_default());
    for line in lines {
        let _ = writeln!(text, "{:indent$}{line}", "");
    }
    for (label, explanation) in [("costs: ", &check.costs), ("fix:   ", &check.fix)] {
        let Some(explanation) = explanation else { continue };
        let indent = INDENT.len() + label.len();
        let lines = wrap(&style.clean(explanation), style.width - indent);
        for (index, line) in lines.iter().enumerate() {
            let front = if index == 0 { label } else { "" };
            let _ = writeln!(text, "{INDENT}{front:width$}{line}", width = label.len());
        }
    }
}

/// Breaks lines at spaces. A word that is longer than a line is split.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let mut rest: Vec<char> = word.chars().collect();
        if length > 0 && length + 1 + rest.len() > width {
            lines.push(std::mem::take(&mut line));
            length = 0;
        }
        while rest.len() > width {
            lines.push(rest.drain(..width).collect());
        }
        if length > 0 {
            line.push(' ');
            length += 1;
        }
        length += rest.len();
        line.extend(rest);
    }
    if !line.is_empty() || lines.is_empty() {
        lines.push(line);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Style = Style { unicode: false, colours: false, width: MAX_WIDTH };

    fn report(checks: Vec<Check>) -> Report {
        Report {
            can_make_boxes: true,
            mode: "root",
            kernel: "6.18.5".into(),
            checks,
            conclusion: "Boxes can be made here, as root.".into(),
        }
    }

    fn four() -> Vec<Check> {
        vec![
            Check::new("trial_box", State::Ok, "made"),
            Check::new("landlock", State::Partial, "old").costs("gaps").fix("a new kernel"),
            Check::new("cgroups", State::Missing, "none"),
            Check::new("docker", State::Optional, "optional: not found"),
        ]
    }

    #[test]
    fn table_is_aligned() {
        let plain = "ringwall doctor: root, Linux 6.18.5\n\
                     \n\
                     + probe box  made\n\
                     ~ landlock   old\n    \
                     costs: gaps\n    \
                     fix:   a new kernel\n\
                     x cgroups    none\n\
                     - docker     optional: not found\n\
                     \n\
                     Boxes can be made here, as root.\n";
        assert_eq!(draw(&report(four()), &PLAIN), plain);
        let pretty = draw(&report(four()), &Style { unicode: true, ..PLAIN });
        for line in ["✓ probe box  made", "~ landlock   old", "✗ cgroups    none", "– docker     optional: not found"]
        {
            assert!(pretty.lines().any(|drawn| drawn == line), "{pretty}");
        }
    }

    #[test]
    fn long_texts_wrap_within_the_width() {
        let long = "word ".repeat(60) + &"x".repeat(250);
        let check = Check::new("cgroups", State::Missing, long.clone()).costs(long.clone()).fix(long);
        for width in [MIN_WIDTH, 80, MAX_WIDTH] {
            let text = draw(&report(vec![check.clone()]), &Style { width, ..PLAIN });
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
            assert_eq!(text.matches("word").count(), 180);
            assert_eq!(
                text.matches('x').count(),
                3 * 250 + "fix".matches('x').count() + "Linux".matches('x').count() + 2
            );
        }
    }

    #[test]
    fn control_characters_are_replaced() {
        let check = Check::new("docker", State::Optional, "at /tmp/\x1b[31mred\u{7}\n\r\u{9b}…");
        for unicode in [true, false] {
            let text = draw(&report(vec![check.clone()]), &Style { unicode, ..PLAIN });
            assert!(!text.contains(|character: char| character.is_control() && character != '\n'), "{text:?}");
            assert_eq!(text.is_ascii(), !unicode || !text.contains('…'));
            assert_eq!(text.contains("/tmp/?[31mred????…"), unicode, "{text}");
        }
    }

    #[test]
    fn marks_follow_the_locale_and_colours_the_terminal() {
        type Variables = &'static [(&'static str, &'static str)];
        let table: [(Variables, bool, bool, bool); 9] = [
            (&[], false, false, false),
            (&[("LANG", "de_DE.UTF-8"), ("TERM", "xterm")], true, true, true),
            (&[("LANG", "C.utf8"), ("TERM", "xterm")], false, true, false),
            (&[("LANG", "C.UTF-8"), ("LC_ALL", "C")], false, false, false),
            (&[("LC_CTYPE", "en_US.UTF-8"), ("LC_ALL", "")], false, true, false),
            (&[("TERM", "xterm"), ("NO_COLOR", "1")], true, false, false),
            (&[("TERM", "xterm"), ("NO_COLOR", "")], true, false, true),
            (&[("TERM", "dumb")], true, false, false),
            (&[], true, false, false),
        ];
        for (variables, is_terminal, unicode, colours) in table {
            let variable =
                |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            let style = Style::choose(variable, is_terminal, None);
            assert_eq!((style.unicode, style.colours), (unicode, colours), "{variables:?}");
        }
    }

    #[test]
    fn width_follows_the_terminal_within_bounds() {
        for (columns, width) in [(None, 100), (Some(0), 100), (Some(80), 80), (Some(200), 100), (Some(10), 60)] {
            assert_eq!(Style::choose(|_| None, true, columns).width, width);
        }
    }

    #[test]
    fn only_the_mark_is_coloured() {
        let text = draw(&report(four()), &Style { colours: true, ..PLAIN });
        assert!(text.contains("\x1b[32m+\x1b[0m probe box  made\n"), "{text:?}");
        assert!(text.contains("\x1b[31mx\x1b[0m cgroups    none\n"), "{text:?}");
    }
}
