//! NUL-terminated strings of plans.

use std::ffi::CString;

use crate::error::Error;

/// Text as a NUL-terminated string of a plan. `what` names the text in the error.
pub(crate) fn c_string(what: &'static str, bytes: &[u8]) -> Result<CString, Error> {
    CString::new(bytes).map_err(|_| Error::NulByte(what))
}

/// The same for constants of this crate, none of which contains a NUL byte.
pub(crate) fn literal(text: &str) -> CString {
    CString::new(text).unwrap_or_default()
}
