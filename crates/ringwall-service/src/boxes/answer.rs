//! What an interpreter says: lines of JSON on its channel, each of them bounded before it is kept and read strictly.
//!
//! The code that runs there can write such lines itself. So values are kept as the text that came, which takes no more room
//! than it had, and not more of them than were ever asked for; a long line is read where nobody waits for the thread.

use std::collections::BTreeMap;
use std::fmt;

use ringwall_executor::session_box::VisitOutput;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt;

use crate::blocking::detached;

/// What a runner sends at most, and a little.
const MAX_LINE_LEN: usize = 10 << 20;
/// So much is read in less time than it takes to tell another thread of it.
const SHORT_LINE: usize = 64 << 10;
/// Whoever reads an answer of ours goes only so deep.
const DEEPEST: usize = 100;
const MAX_RESULTS: usize = 32;
const MAX_FORMS: usize = 32;
const MAX_ERROR: usize = 64 << 10;
const PORTION: usize = 16 << 10;

/// One value in several forms, by their MIME types. Each is the JSON text that came.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Bundle(BTreeMap<String, Box<RawValue>>);

impl Bundle {
    /// The text of each form.
    pub fn forms(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(mime, form)| (mime.as_str(), form.get()))
    }

    /// A form that is text.
    pub fn text(&self, mime: &str) -> Option<String> {
        serde_json::from_str(self.0.get(mime)?.get()).ok()
    }
}

/// How a cell ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct CellAnswer {
    pub(crate) results: Vec<Bundle>,
    /// What it raised, in a line.
    pub(crate) raised: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: u64,
    results: Results,
    error: Option<Raised>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Raised {
    name: String,
    value: String,
    #[serde(rename = "traceback")]
    _traceback: String,
}

/// As many as a cell may show; what is beyond is read past.
#[derive(Debug)]
struct Results(Vec<Bundle>);

impl<'de> Deserialize<'de> for Results {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counting;
        impl<'de> Visitor<'de> for Counting {
            type Value = Results;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of results")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Results, A::Error> {
                let mut results = Vec::new();
                while results.len() < MAX_RESULTS {
                    let Some(bundle) = list.next_element()? else { return Ok(Results(results)) };
                    results.push(bundle);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Results(results))
            }
        }
        deserializer.deserialize_seq(Counting)
    }
}

impl<'de> Deserialize<'de> for Bundle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Counting;
        impl<'de> Visitor<'de> for Counting {
            type Value = Bundle;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the forms of a result")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Bundle, A::Error> {
                let mut forms = BTreeMap::new();
                while forms.len() < MAX_FORMS {
                    let Some((mime, form)) = map.next_entry()? else { return Ok(Bundle(forms)) };
                    forms.insert(mime, form);
                }
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Bundle(forms))
            }
        }
        deserializer.deserialize_map(Counting)
    }
}

/// The next line, without its end; nothing when there is none, or one that nobody has to read.
pub(crate) async fn read_line(channel: &mut VisitOutput, held: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut seen = 0;
    loop {
        if let Some(end) = held[seen..].iter().position(|byte| *byte == b'\n') {
            let rest = held.split_off(seen + end + 1);
            let mut line = std::mem::replace(held, rest);
            line.pop();
            return Some(line);
        }
        seen = held.len();
        if seen > MAX_LINE_LEN {
            return None;
        }
        let mut portion = [0; PORTION];
        let read = channel.read(&mut portion).await.ok().filter(|read| *read > 0)?;
        held.extend_from_slice(&portion[..read]);
    }
}

/// Nothing where it is not the answer that was asked for.
pub(crate) async fn read_answer(line: Vec<u8>, id: u64) -> Option<CellAnswer> {
    match line.len() <= SHORT_LINE {
        true => parse(&line, id),
        false => detached(move || Ok(parse(&line, id))).await.ok().flatten(),
    }
}

fn parse(line: &[u8], id: u64) -> Option<CellAnswer> {
    if depth(line) > DEEPEST {
        return None;
    }
    let line: Line = serde_json::from_slice(line).ok().filter(|line: &Line| line.id == id)?;
    let raised = line.error.map(|Raised { name, value, .. }| match value.is_empty() {
        true => name,
        false => format!("{name}: {value}"),
    });
    let raised = raised.map(|mut raised| {
        raised.truncate(raised.floor_char_boundary(MAX_ERROR));
        raised
    });
    Some(CellAnswer { results: line.results.0, raised })
}

/// How deep lists and objects lie in each other, in what may or may not be JSON.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_text) = (0_usize, 0, false);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match (in_text, byte) {
            (true, b'\\') => drop(bytes.next()),
            (_, b'"') => in_text = !in_text,
            (false, b'[' | b'{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_that_was_asked_for_is_one() {
        let said = r#"{"id":3,"results":[{"text/plain":"1","application/json":[ 1 ]}],"error":null}"#;
        let answer = parse(said.as_bytes(), 3).expect("an answer");
        assert_eq!((answer.results.len(), answer.raised), (1, None));
        assert_eq!(answer.results[0].text("text/plain").as_deref(), Some("1"));
        assert_eq!(answer.results[0].text("application/json"), None);
        let forms: Vec<_> = answer.results[0].forms().collect();
        assert_eq!(forms, [("application/json", "[ 1 ]"), ("text/plain", "\"1\"")]);
        let raised = r#"{"id":3,"results":[],"error":{"name":"KeyError","value":"'a'","traceback":""}}"#;
        assert_eq!(parse(raised.as_bytes(), 3).expect("an answer").raised.as_deref(), Some("KeyError: 'a'"));
        let nested = |depth: usize| {
            format!(r#"{{"id":3,"results":[{{"a":{}{}}}],"error":null}}"#, "[".repeat(depth), "]".repeat(depth))
        };
        assert!(parse(nested(DEEPEST - 3).as_bytes(), 3).is_some());
        for wrong in [said.replace('3', "4"), said.replace("null", "1"), String::new(), "x".to_owned(), nested(500)] {
            assert!(parse(wrong.as_bytes(), 3).is_none(), "{wrong}");
        }
        assert_eq!(depth(br#"["[[[\"[[",{"a":"\\"}]"#), 2, "brackets in a text are none");
    }

    /// Counted while it is read: a list that nobody asked for takes no room.
    #[test]
    fn no_more_is_kept_than_a_cell_may_show() {
        let many = format!(r#"{{"id":3,"results":[{}],"error":null}}"#, vec!["{}"; 99].join(","));
        assert_eq!(parse(many.as_bytes(), 3).expect("an answer").results.len(), MAX_RESULTS);
        let forms: Vec<String> = (0..99).map(|number| format!(r#""{number}":[]"#)).collect();
        let wide = format!(r#"{{"id":3,"results":[{{{}}}],"error":null}}"#, forms.join(","));
        assert_eq!(parse(wide.as_bytes(), 3).expect("an answer").results[0].forms().count(), MAX_FORMS);
        let loud =
            format!(r#"{{"id":3,"results":[],"error":{{"name":"{}","value":"","traceback":""}}}}"#, "é".repeat(99_999));
        assert_eq!(parse(loud.as_bytes(), 3).expect("an answer").raised.map(|raised| raised.len()), Some(MAX_ERROR));
    }
}
