//! Reads an interpreter's answers: lines of JSON on its channel, each with a limited length and
//! parsed strictly.
//!
//! The code in the interpreter can forge such lines. So values are kept as the JSON text that
//! arrived, which needs no more memory than the line, and at most 32 of them with 32 forms each.
//! Long lines are parsed on a blocking thread.

use std::collections::BTreeMap;
use std::fmt;

use ringwall_executor::session_box::ProcessOutput;
use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt;

use crate::blocking::detached;

/// More than the 8 MiB of results that a runner sends, with room for the error.
const MAX_LINE_LEN: usize = 10 << 20;
/// Parsing a shorter line takes less time than handing it to another thread.
const SHORT_LINE: usize = 64 << 10;
/// Maximum nesting of lists and objects. Parsers of our own answers have such a limit too.
const DEEPEST: usize = 100;
const MAX_RESULTS: usize = 32;
const MAX_FORMS: usize = 32;
const MAX_ERROR: usize = 64 << 10;
const PORTION: usize = 16 << 10;

/// One value in several forms, keyed by MIME type. Each form is the JSON text that arrived.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(transparent)]
pub struct Bundle(BTreeMap<String, Box<RawValue>>);

impl Bundle {
    /// The JSON text of each form.
    pub fn forms(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(mime, form)| (mime.as_str(), form.get()))
    }

    /// The form of this MIME type, if it is a JSON string.
    pub fn text(&self, mime: &str) -> Option<String> {
        serde_json::from_str(self.0.get(mime)?.get()).ok()
    }
}

/// The results and the error of a cell.
#[derive(Debug, Clone, Default)]
pub(crate) struct CellAnswer {
    pub(crate) results: Vec<Bundle>,
    /// The raised exception, as `name: value`.
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

/// At most `MAX_RESULTS` results; further ones are skipped without storing them.
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

/// The next line without its newline. `None` at the end of the channel or if the line is too long.
pub(crate) async fn read_line(channel: &mut ProcessOutput, held: &mut Vec<u8>) -> Option<Vec<u8>> {
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

/// Parses an answer. `None` if it is invalid or has another id.
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

/// The nesting depth of lists and objects in text that may not be valid JSON.
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
    fn answer_with_wrong_id_or_form_is_rejected() {
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

    /// Limits apply during parsing, so that a long list takes no memory.
    #[test]
    fn results_beyond_the_limit_are_dropped() {
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
