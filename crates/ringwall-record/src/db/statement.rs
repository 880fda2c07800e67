//! A SQL statement with its values, the same for both databases.
//!
//! Uses only what both support: `$1` parameters, 64-bit integers, text and bytes. JSON is stored as
//! text. Values are bound and never become part of the SQL text, which rules out SQL injection.

use std::borrow::Cow;

use crate::digest::Digest;
use crate::error::Error;
use crate::timestamp::Timestamp;

/// NULL keeps its type, because PostgreSQL requires one for each parameter.
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
    /// Completes the error message "could not …".
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

    /// Binds a value and returns its placeholder `$n`, for SQL that is assembled from parts.
    pub(crate) fn placeholder(&mut self, value: impl Into<Value>) -> String {
        self.values.push(value.into());
        format!("${}", self.values.len())
    }
}

/// Checks text for an indexed column: at most 512 bytes, which a PostgreSQL index entry can hold,
/// and no NUL, which PostgreSQL text cannot. Callers check before they queue an operation, so that
/// both databases refuse the same values and a bad one does not roll back a transaction shared with
/// others.
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

/// Integers of both databases are signed and have 64 bits.
pub(crate) fn check_number(column: &'static str, number: u64) -> Result<i64, Error> {
    i64::try_from(number).map_err(|_| Error::NumberTooLarge { column })
}
