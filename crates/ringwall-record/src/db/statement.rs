//! One statement with its values, said once for both databases.
//!
//! Both understand `$1`, whole numbers of 64 bits, text and bytes, and nothing else is used; JSON is text. A value is
//! always bound and never part of the text, so text from outside cannot become SQL.

use std::borrow::Cow;

use crate::digest::Digest;
use crate::error::Error;
use crate::timestamp::Timestamp;

/// A missing value keeps its type, because PostgreSQL asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Value {
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

impl Value {
    #[cfg(test)]
    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Value::Integer(None) | Value::Text(None) | Value::Bytes(None))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Integer(Some(number))
    }
}

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        Value::Integer(number)
    }
}

impl From<Timestamp> for Value {
    fn from(at: Timestamp) -> Self {
        Value::Integer(Some(at.milliseconds()))
    }
}

impl From<Option<Timestamp>> for Value {
    fn from(at: Option<Timestamp>) -> Self {
        Value::Integer(at.map(Timestamp::milliseconds))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(Some(text.to_owned()))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(Some(text))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Value::Text(text.map(str::to_owned))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        Value::Text(text)
    }
}

impl From<Digest> for Value {
    fn from(digest: Digest) -> Self {
        Value::Bytes(Some(digest.as_bytes().to_vec()))
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Value::Bytes(Some(bytes))
    }
}

impl From<Option<Digest>> for Value {
    fn from(digest: Option<Digest>) -> Self {
        Value::Bytes(digest.map(|digest| digest.as_bytes().to_vec()))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Statement {
    /// What it is for, as an error says it: "could not …".
    pub(crate) purpose: &'static str,
    pub(crate) text: Cow<'static, str>,
    pub(crate) values: Vec<Value>,
}

impl Statement {
    pub(crate) fn new(purpose: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        Self { purpose, text: text.into(), values: Vec::new() }
    }

    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    pub(crate) fn bind_all(mut self, values: impl IntoIterator<Item = Value>) -> Self {
        self.values.extend(values);
        self
    }

    /// Binds a value and gives back its place, `$n`, for a text that is put together from parts.
    pub(crate) fn place(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }
}

/// Text that goes into an index: short enough for PostgreSQL's, and without the NUL that its text cannot hold. Checked
/// before a statement is queued, so that both databases refuse alike and one bad value costs nobody else anything.
pub(crate) fn check_indexed(column: &'static str, text: &str) -> Result<(), Error> {
    const MAX_LEN: usize = 512;
    if text.len() > MAX_LEN {
        return Err(Error::TextTooLong { column, longest: MAX_LEN });
    }
    check_text(column, text)
}

pub(crate) fn check_text(column: &'static str, text: &str) -> Result<(), Error> {
    if text.contains('\0') { Err(Error::NulByte { column }) } else { Ok(()) }
}

/// Both databases count in 64 bits with a sign.
pub(crate) fn check_number(column: &'static str, number: u64) -> Result<i64, Error> {
    i64::try_from(number).map_err(|_| Error::NumberTooLarge { column })
}
