//! The possible values of a word in its spelled form: expands braces, `~` and variables that the
//! line has set, and cuts patterns at their fixed part.
//!
//! All results are limited: a word with too many readings is cut where they begin, and a variable
//! longer than the longest path becomes unknown.

use std::collections::BTreeMap;

use super::grammar::Budget;
use crate::error::Error;

/// Maximum number of readings of a word.
const MAX_COUNT: usize = 32;
/// The longest path.
const MAX_LEN: usize = 4095;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) text: String,
    pub(super) end: End,
}

/// Why the text ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Whole,
    /// A pattern follows; its matches lie in or below the directory before it.
    Pattern,
    /// A part follows that is known only at run time.
    Unknown,
}

/// Variables with their possible values at one point of a line.
#[derive(Debug, Default)]
pub(super) struct Variables {
    values: BTreeMap<String, Vec<Reading>>,
}

impl Variables {
    pub(super) fn get(&self, name: &str) -> Option<&Vec<Reading>> {
        self.values.get(name)
    }

    /// Returns the previous value. Too many, too long or no values make the variable unknown.
    pub(super) fn set(&mut self, name: &str, values: Vec<Reading>) -> Option<Vec<Reading>> {
        let is_known =
            (1..=MAX_COUNT).contains(&values.len()) && values.iter().all(|value| value.text.len() <= MAX_LEN);
        match is_known {
            true => self.values.insert(name.to_owned(), values),
            false => self.values.remove(name),
        }
    }
}

pub(super) fn whole(text: &str) -> Reading {
    Reading { text: text.to_owned(), end: End::Whole }
}

pub(super) fn expand(spelled: &str, variables: &Variables, budget: &mut Budget) -> Result<Vec<Reading>, Error> {
    let mut readings = Vec::new();
    for spelled in open_braces(spelled, budget)? {
        read(&spelled, variables, budget, &mut readings)?;
    }
    Ok(readings)
}

/// Expands `{a,b}c` to `ac` and `bc`. A word with too many readings is returned unchanged and later
/// cut at its brace.
fn open_braces(spelled: &str, budget: &mut Budget) -> Result<Vec<String>, Error> {
    let mut waiting = vec![spelled.to_owned()];
    let mut done = Vec::new();
    while let Some(word) = waiting.pop() {
        budget.read(word.len())?;
        match find_braces(&word) {
            Some(braces) if braces.choices.len() + waiting.len() + done.len() <= MAX_COUNT => {
                let (before, after) = (&word[..braces.start], &word[braces.end..]);
                // The first choice is expanded next.
                waiting.extend(braces.choices.iter().rev().map(|choice| format!("{before}{choice}{after}")));
            }
            Some(_) => return Ok(vec![spelled.to_owned()]),
            None => done.push(word),
        }
    }
    Ok(done)
}

struct Braces<'w> {
    start: usize,
    end: usize,
    choices: Vec<&'w str>,
}

/// The first braces that contain a comma.
fn find_braces(word: &str) -> Option<Braces<'_>> {
    let bytes = word.as_bytes();
    /// Open braces and the commas in them.
    struct Open {
        start: usize,
        commas: Vec<usize>,
    }
    let mut open: Vec<Open> = Vec::new();
    let mut found: Option<Open> = None;
    let mut end = 0;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            // The braces of a variable.
            b'$' => at += word[at..].find([')', '}']).unwrap_or(0),
            b'{' => open.push(Open { start: at, commas: Vec::new() }),
            b',' => {
                if let Some(last) = open.last_mut() {
                    last.commas.push(at);
                }
            }
            b'}' => {
                let closed = open.pop().filter(|closed| !closed.commas.is_empty());
                if let Some(closed) = closed
                    && found.as_ref().is_none_or(|found| closed.start < found.start)
                {
                    found = Some(closed);
                    end = at + 1;
                }
                if open.is_empty() && found.is_some() {
                    break;
                }
            }
            _ => {}
        }
        at += 1;
    }
    let found = found?;
    let mut from = found.start + 1;
    let mut choices = Vec::with_capacity(found.commas.len() + 1);
    for comma in found.commas {
        choices.push(&word[from..comma]);
        from = comma + 1;
    }
    choices.push(&word[from..end - 1]);
    Some(Braces { start: found.start, end, choices })
}

fn read(spelled: &str, variables: &Variables, budget: &mut Budget, done: &mut Vec<Reading>) -> Result<(), Error> {
    let (first, mut rest) = match tilde(spelled, variables) {
        Some((home, rest)) => (home, rest),
        None => (vec![whole("")], spelled),
    };
    let mut open: Vec<String> = Vec::new();
    let mut has_end = true;
    join(first, &mut open, done);
    while let Some(at) = rest.find(['\\', '*', '?', '[', '{', '$']) {
        budget.read((at + 1) * open.len())?;
        let literal = &rest[..at];
        open.iter_mut().for_each(|text| text.push_str(literal));
        let mut after = rest[at + 1..].chars();
        let end = match rest.as_bytes()[at] {
            b'\\' => {
                let next = after.next();
                open.iter_mut().for_each(|text| text.extend(next));
                rest = after.as_str();
                continue;
            }
            b'$' => {
                let name = rest[at + 1..].strip_prefix('{').and_then(|name| name.split_once('}'));
                match name.and_then(|(name, after)| Some((variables.get(name)?, after))) {
                    Some((values, after)) => {
                        multiply(values, budget, &mut open, done)?;
                        rest = after;
                        continue;
                    }
                    None => End::Unknown,
                }
            }
            b'{' => match after.as_str().split_once('}').filter(|_| has_end) {
                // `{}` is the placeholder of `find` and `xargs`; its value is unknown.
                Some(("", _)) => End::Unknown,
                Some((inside, _)) if inside.contains("..") || inside.contains(',') => End::Pattern,
                inside => {
                    // The next brace scans the same text again.
                    budget.read(inside.map_or(0, |(inside, _)| inside.len()))?;
                    has_end = inside.is_some();
                    open.iter_mut().for_each(|text| text.push('{'));
                    rest = after.as_str();
                    continue;
                }
            },
            _ => End::Pattern,
        };
        done.extend(open.into_iter().map(|text| Reading { text, end }));
        return Ok(());
    }
    budget.read((rest.len() + 1) * open.len())?;
    done.extend(open.into_iter().map(|text| whole(&(text + rest))));
    Ok(())
}

/// Combines every open text with every value.
fn multiply(
    values: &[Reading],
    budget: &mut Budget,
    open: &mut Vec<String>,
    done: &mut Vec<Reading>,
) -> Result<(), Error> {
    let before = std::mem::take(open);
    if before.len() * values.len() > MAX_COUNT {
        done.extend(before.into_iter().map(|text| Reading { text, end: End::Unknown }));
        return Ok(());
    }
    let length = |texts: usize, text: usize| texts * (text + 1);
    let old: usize = before.iter().map(|text| length(values.len(), text.len())).sum();
    let new: usize = values.iter().map(|value| length(before.len(), value.text.len())).sum();
    budget.read(old + new)?;
    for text in before {
        let joined = values.iter().map(|value| Reading { text: format!("{text}{}", value.text), end: value.end });
        join(joined.collect(), open, done);
    }
    Ok(())
}

/// Texts that may be continued stay open; the others are done.
fn join(readings: Vec<Reading>, open: &mut Vec<String>, done: &mut Vec<Reading>) {
    for reading in readings {
        match reading.end {
            End::Whole => open.push(reading.text),
            End::Pattern | End::Unknown => done.push(reading),
        }
    }
}

/// The home directory at the start of a word, and the text after it.
fn tilde<'w>(spelled: &'w str, variables: &Variables) -> Option<(Vec<Reading>, &'w str)> {
    let after = spelled.strip_prefix('~')?;
    let end = after.find('/').unwrap_or(after.len());
    let (name, rest) = after.split_at(end);
    let of_shell = |variable: &str| {
        let unknown = || vec![Reading { text: String::new(), end: End::Unknown }];
        variables.get(variable).cloned().unwrap_or_else(unknown)
    };
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    let home = match name {
        "" => of_shell("HOME"),
        "+" => of_shell("PWD"),
        "-" => of_shell("OLDPWD"),
        "root" => vec![whole("/root")],
        name if is_name(name) => vec![whole(&format!("/home/{name}"))],
        _ => return None,
    };
    Some((home, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(spelled: &str) -> Vec<String> {
        let mut variables = Variables::default();
        variables.set("HOME", vec![whole("/h")]);
        variables.set("X", vec![whole("/x")]);
        variables.set("L", vec![whole("/l"), Reading { text: "/g/".to_owned(), end: End::Pattern }]);
        let show = |reading: Reading| match reading.end {
            End::Whole => reading.text,
            End::Pattern => format!("{} pattern", reading.text),
            End::Unknown => format!("{} unknown", reading.text),
        };
        let readings = expand(spelled, &variables, &mut Budget::default()).expect("a short word");
        readings.into_iter().map(show).collect()
    }

    #[test]
    fn word_is_expanded_to_readings() {
        let table: [(&str, &[&str]); 29] = [
            ("/a", &["/a"]),
            (r"/a\*b\~", &["/a*b~"]),
            ("/a/*.c", &["/a/ pattern"]),
            ("/a?/b", &["/a pattern"]),
            ("/a/[bc]", &["/a/ pattern"]),
            ("~", &["/h"]),
            ("~/a", &["/h/a"]),
            ("~root/a", &["/root/a"]),
            ("~me", &["/home/me"]),
            ("~+/a", &[" unknown"]),
            ("~ü", &["~ü"]),
            (r"\~/a", &["~/a"]),
            ("a~", &["a~"]),
            ("${X}/a", &["/x/a"]),
            ("${X}${X}", &["/x/x"]),
            ("a/${Y}/b", &["a/ unknown"]),
            ("a/$()/b", &["a/ unknown"]),
            ("${L}/a", &["/g/ pattern", "/l/a"]),
            ("{a,b}/c", &["a/c", "b/c"]),
            ("/a/{b,c{d,e}}/f", &["/a/b/f", "/a/cd/f", "/a/ce/f"]),
            ("{${X},b}", &["/x", "b"]),
            ("/a/{1..3}", &["/a/ pattern"]),
            ("/a{b}/c", &["/a{b}/c"]),
            ("/a/{}", &["/a/ unknown"]),
            (r"\{a,b\}", &["{a,b}"]),
            ("{a", &["{a"]),
            ("{a,b", &["{a,b"]),
            ("a,b}", &["a,b}"]),
            ("{a{b,c}", &["{ab", "{ac"]),
        ];
        for (spelled, expected) in table {
            assert_eq!(readings(spelled), expected, "{spelled}");
        }
        assert_eq!(readings(&"{a,b}".repeat(20)), [" pattern"]);
        assert_eq!(readings(&"${L}".repeat(20)).len(), 21, "one reading per cut and one complete");
    }

    #[test]
    fn growing_variable_becomes_unknown() {
        let mut variables = Variables::default();
        let mut budget = Budget::default();
        variables.set("X", vec![whole("/aaaa")]);
        for _ in 0..100 {
            let doubled = expand("${X}${X}", &variables, &mut budget).expect("within the budget");
            assert!(doubled.iter().all(|reading| reading.text.len() <= 2 * MAX_LEN));
            variables.set("X", doubled);
        }
        assert_ne!(variables.get("X").map(|values| values[0].end), Some(End::Whole));
    }
}
