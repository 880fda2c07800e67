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

/// Conversions of a type and of its `Option`.
macro_rules! into_value {
    ($($type:ty => $variant:ident($convert:expr)),+ $(,)?) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Some(value).into()
            }
        }

        impl From<Option<$type>> for Value {
            fn from(value: Option<$type>) -> Self {
                Value::$variant(value.map($convert))
            }
        }
    )+};
}

into_value! {
    i64 => Integer(|number| number),
    Timestamp => Integer(Timestamp::milliseconds),
    &str => Text(str::to_owned),
    String => Text(|text| text),
    Vec<u8> => Bytes(|bytes| bytes),
    Digest => Bytes(|digest| digest.as_bytes().to_vec()),
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
