//! Parses pax extended headers: a sequence of records `LENGTH KEY=VALUE\n`.
//!
//! A record ends at its stated length, not at a newline, which a value may contain. Other keys
//! (owners, extended attributes, comments) are ignored.

/// Values of a pax header for the entry that follows it.
#[derive(Debug, Default)]
pub(super) struct PaxRecords {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link_path: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) mtime: Option<i64>,
    /// Whether there are `GNU.sparse.*` records, as in format versions 0.0, 0.1 and 1.0.
    pub(super) is_sparse: bool,
    /// The file's name in versions 0.1 and 1.0, which replace `path` by a name of their own.
    pub(super) sparse_name: Option<Vec<u8>>,
}

const NOT_A_NUMBER: &str = "its pax header contains text where a number belongs";

impl PaxRecords {
    pub(super) fn parse(mut rest: &[u8]) -> Result<Self, &'static str> {
        let mut records = Self::default();
        // Some writers pad the header with NULs.
        while rest.first().is_some_and(|byte| *byte != 0) {
            let (record, after) = cut_record(rest).ok_or("a record of its pax header has a wrong length")?;
            let (key, value) = split_at_byte(record, b'=').ok_or("a record of its pax header has no `=`")?;
            records.take(key, value)?;
            rest = after;
        }
        Ok(records)
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), &'static str> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link_path = Some(value.to_vec()),
            b"size" => self.size = Some(number(value)?),
            b"mtime" => self.mtime = Some(seconds(value)?),
            _ if key.starts_with(b"GNU.sparse.") => {
                self.is_sparse = true;
                if key == b"GNU.sparse.name" {
                    self.sparse_name = Some(value.to_vec());
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The first record without its length and newline, and the remaining bytes.
fn cut_record(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (digits, _) = split_at_byte(rest, b' ')?;
    let length = usize::try_from(number(digits).ok()?).ok()?;
    if length > rest.len() {
        return None;
    }
    let (record, after) = rest.split_at(length);
    let record = record.get(digits.len() + 1..)?;
    Some((record.strip_suffix(b"\n")?, after))
}

fn split_at_byte(bytes: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == separator)?;
    Some((&bytes[..at], &bytes[at + 1..]))
}

/// A decimal number without sign or spaces that fits into 64 bits.
fn number(digits: &[u8]) -> Result<u64, &'static str> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NOT_A_NUMBER);
    }
    str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(NOT_A_NUMBER)
}

/// The whole seconds of a time such as `1700000000.25` or `-1.5`.
fn seconds(value: &[u8]) -> Result<i64, &'static str> {
    let whole = value.split(|byte| *byte == b'.').next().unwrap_or_default();
    let (sign, digits) = match whole.strip_prefix(b"-") {
        Some(digits) => (-1, digits),
        None => (1, whole),
    };
    i64::try_from(number(digits)?).map(|seconds| sign * seconds).map_err(|_| NOT_A_NUMBER)
}
