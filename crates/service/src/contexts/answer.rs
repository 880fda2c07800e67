//! What an interpreter says: lines of JSON on its channel, each of them bounded before it is kept and read strictly.

use std::collections::BTreeMap;

use executor::resident::VisitOutput;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncReadExt;

/// Twice what a runner sends, with room for what JSON makes of it.
const LONGEST_LINE: usize = 20 << 20;
const MOST_RESULTS: usize = 32;
const PORTION: usize = 16 << 10;

/// One value in several forms, by their MIME types.
pub type Bundle = BTreeMap<String, Value>;

/// How a cell ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CellAnswer {
    pub(crate) results: Vec<Bundle>,
    /// What it raised, in a line.
    pub(crate) raised: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: u64,
    results: Vec<Bundle>,
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

/// The next line, without its end; nothing when there is none, or one that nobody has to read.
pub(super) async fn read_line(channel: &mut VisitOutput, held: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut seen = 0;
    loop {
        if let Some(end) = held[seen..].iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = held.drain(..=seen + end).collect();
            line.pop();
            return Some(line);
        }
        seen = held.len();
        if seen > LONGEST_LINE {
            return None;
        }
        let mut portion = [0; PORTION];
        let read = channel.read(&mut portion).await.ok().filter(|read| *read > 0)?;
        held.extend_from_slice(&portion[..read]);
    }
}

/// Nothing where it is not the answer that was asked for.
pub(super) fn read_answer(line: &[u8], id: u64) -> Option<CellAnswer> {
    let mut line: Line = serde_json::from_slice(line).ok().filter(|line: &Line| line.id == id)?;
    line.results.truncate(MOST_RESULTS);
    let raised = line.error.map(|Raised { name, value, .. }| match value.is_empty() {
        true => name,
        false => format!("{name}: {value}"),
    });
    Some(CellAnswer { results: line.results, raised })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_answer_that_was_asked_for_is_one() {
        let said = r#"{"id":3,"results":[{"text/plain":"1"}],"error":null}"#;
        let answer = read_answer(said.as_bytes(), 3).expect("an answer");
        assert_eq!((answer.results.len(), answer.raised), (1, None));
        let raised = r#"{"id":3,"results":[],"error":{"name":"KeyError","value":"'a'","traceback":""}}"#;
        assert_eq!(read_answer(raised.as_bytes(), 3).expect("an answer").raised.as_deref(), Some("KeyError: 'a'"));
        let deep = format!(r#"{{"id":3,"results":[{{"a":{}{}}}],"error":null}}"#, "[".repeat(500), "]".repeat(500));
        for wrong in [said.replace('3', "4"), said.replace("null", "1"), String::new(), "x".to_owned(), deep] {
            assert_eq!(read_answer(wrong.as_bytes(), 3), None, "{wrong}");
        }
        let many = format!(r#"{{"id":3,"results":[{}],"error":null}}"#, vec!["{}"; 99].join(","));
        assert_eq!(read_answer(many.as_bytes(), 3).expect("an answer").results.len(), MOST_RESULTS);
    }
}
