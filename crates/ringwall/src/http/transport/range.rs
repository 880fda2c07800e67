//! Parses `Range: bytes=…` with `If-Range`, for clients that resume a download.
//!
//! Only a single range is supported. A malformed range, another unit, several ranges or an
//! `If-Range` that does not match get the whole file, as RFC 9110 allows.

use std::ops::RangeInclusive;

use axum::http::{HeaderMap, HeaderName, header};
use http_range_header::{
    EndPosition, RangeUnsatisfiableError, StartPosition, SyntacticallyCorrectRange, parse_range_header,
};

use super::body::only_header;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Bytes(RangeInclusive<u64>),
    /// The range lies outside of the file.
    Unsatisfiable,
}

/// The range that the headers request of a file with this size and ETag.
pub(crate) fn requested(headers: &HeaderMap, size: u64, tag: &str) -> Part {
    let Some(range) = only(headers, header::RANGE) else { return Part::Whole };
    // Only an equal strong tag proves that the parts belong to the same version; a date does not.
    let is_same = !headers.contains_key(header::IF_RANGE) || only(headers, header::IF_RANGE) == Some(tag);
    match parse_range_header(range) {
        Ok(parsed) if is_same && parsed.ranges.len() == 1 => {
            parsed.ranges.first().and_then(|range| within(range, size)).map_or(Part::Unsatisfiable, Part::Bytes)
        }
        Err(RangeUnsatisfiableError::ZeroSuffix) if is_same => Part::Unsatisfiable,
        Ok(_) | Err(_) => Part::Whole,
    }
}

/// The bytes of the range that exist. `bytes=-N` of a file with fewer than N bytes is the whole
/// file.
fn within(range: &SyntacticallyCorrectRange, size: u64) -> Option<RangeInclusive<u64>> {
    let last = size.checked_sub(1)?;
    let (start, end) = match (range.start, range.end) {
        (StartPosition::FromLast(count), _) => (size.checked_sub(count.min(size))?, last),
        (StartPosition::Index(start), EndPosition::Index(end)) => (start, end.min(last)),
        (StartPosition::Index(start), EndPosition::LastByte) => (start, last),
    };
    (start <= end).then_some(start..=end)
}

fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    only_header(headers, name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(range: &str, if_range: Option<&str>, size: u64) -> Part {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, range.parse().unwrap());
        if let Some(tag) = if_range {
            headers.insert(header::IF_RANGE, tag.parse().unwrap());
        }
        requested(&headers, size, "\"a\"")
    }

    #[test]
    fn single_range_selects_its_bytes() {
        for (range, bytes) in [
            ("bytes=0-0", 0..=0),
            ("bytes=2-5", 2..=5),
            ("bytes=7-", 7..=9),
            ("bytes=7-99", 7..=9),
            ("bytes=-3", 7..=9),
            ("bytes=-99", 0..=9),
        ] {
            assert_eq!(part(range, None, 10), Part::Bytes(bytes), "{range}");
        }
        for range in ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=5-2"] {
            assert_eq!(part(range, None, 10), Part::Unsatisfiable, "{range}");
        }
        assert_eq!(part("bytes=0-", None, 0), Part::Unsatisfiable);
    }

    #[test]
    fn unsupported_range_selects_the_whole_file() {
        for range in ["", "bytes", "bytes=", "bytes=a-b", "lines=1-2", "bytes=1-2,4-5", "bytes=1-2;3", "bytes=--1"] {
            assert_eq!(part(range, None, 10), Part::Whole, "{range}");
        }
        assert_eq!(requested(&HeaderMap::new(), 10, "\"a\""), Part::Whole);
        let mut twice = HeaderMap::new();
        twice.append(header::RANGE, "bytes=0-1".parse().unwrap());
        twice.append(header::RANGE, "bytes=2-3".parse().unwrap());
        assert_eq!(requested(&twice, 10, "\"a\""), Part::Whole);
    }

    #[test]
    fn changed_file_is_sent_whole() {
        assert_eq!(part("bytes=2-5", Some("\"a\""), 10), Part::Bytes(2..=5));
        for other in ["\"b\"", "W/\"a\"", "Sat, 29 Oct 1994 19:43:31 GMT"] {
            assert_eq!(part("bytes=2-5", Some(other), 10), Part::Whole, "{other}");
        }
    }
}
