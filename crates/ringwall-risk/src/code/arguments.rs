//! The arguments of a call by position. Reading a text counts as work, because it may be long.

use std::rc::Rc;

use super::fold::{MAX_TURNED, character};
use super::value::Value;
use crate::work::Work;

/// The longest path or module name.
const MAX_NAME_LEN: usize = 4096;

pub(crate) struct Arguments<'w> {
    pub(super) values: Vec<Vec<Value>>,
    pub(super) work: &'w Work,
}

impl Arguments<'_> {
    pub(crate) fn count(&self) -> usize {
        self.values.len()
    }

    /// The possible values of an argument.
    pub(crate) fn at(&self, at: usize) -> &[Value] {
        self.values.get(at).map(Vec::as_slice).unwrap_or_default()
    }

    /// The argument's text, if it is a known text.
    pub(crate) fn text(&self, at: usize) -> Option<&str> {
        match self.at(at) {
            [Value::Text(text)] if self.work.spend_text(text.len()) => Some(text),
            _ => None,
        }
    }

    /// A text short enough to be a name.
    pub(crate) fn short_text(&self, at: usize) -> Option<&str> {
        match self.at(at) {
            [Value::Text(text)] if text.len() <= MAX_NAME_LEN && self.work.spend_text(text.len()) => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_text(&self, at: usize) -> bool {
        matches!(self.at(at), [Value::Text(_)])
    }

    pub(crate) fn path(&self, at: usize) -> Option<&str> {
        self.at(at).iter().find_map(|value| match value {
            Value::Path(path) => Some(&**path),
            _ => None,
        })
    }

    /// The texts of a list, or the characters of a short text.
    pub(crate) fn texts(&self, at: usize) -> Option<Rc<Vec<String>>> {
        match self.at(at) {
            [Value::Texts(texts)] if self.work.spend_text(length(texts)) => Some(Rc::clone(texts)),
            [Value::Text(text)] if text.len() <= MAX_TURNED => Some(Rc::new(text.chars().map(String::from).collect())),
            _ => None,
        }
    }

    /// All arguments, if each is a text.
    pub(crate) fn all_texts(&self) -> Option<Vec<String>> {
        (0..self.count()).map(|at| self.text(at).map(str::to_owned)).collect()
    }

    /// The characters whose numbers the arguments are.
    pub(crate) fn characters(&self) -> Option<String> {
        let one = |argument: &Vec<Value>| match argument.as_slice() {
            [Value::Number(number)] => character(*number),
            _ => None,
        };
        self.values.iter().map(one).collect()
    }
}

/// The work to read a list of texts.
pub(super) fn length(texts: &[String]) -> usize {
    texts.iter().map(|text| text.len() + 16).sum()
}
