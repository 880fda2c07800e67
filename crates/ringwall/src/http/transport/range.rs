//! Which part of a file a request asks for: `Range: bytes=…`, for whoever goes on with a download that broke off.
//!
//! One part, or the whole: what is malformed, in another unit, of several parts, or for another state of the file than the
//! one there is (`If-Range`) is answered with everything, as HTTP allows. Nothing is opened or read here.

use std::ops::RangeInclusive;

use axum::http::{HeaderMap, HeaderName, header};
use http_range_header::{
    EndPosition, RangeUnsatisfiableError, StartPosition, SyntacticallyCorrectRange, parse_range_header,
};

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Whole,
    Bytes(RangeInclusive<u64>),
    /// It lies outside of the file.
    Nowhere,
}

/// The part that these headers ask for, of a file of this size with this entity tag.
pub(crate) fn asked(headers: &HeaderMap, size: u64, tag: &str) -> Part {
    let Some(range) = only(headers, header::RANGE) else { return Part::Whole };
    // Only a strong tag that is the same says that the parts fit together; a date cannot.
    let is_same = !headers.contains_key(header::IF_RANGE) || only(headers, header::IF_RANGE) == Some(tag);
    match parse_range_header(range) {
        Ok(parsed) if is_same && parsed.ranges.len() == 1 => {
            parsed.ranges.first().and_then(|range| within(range, size)).map_or(Part::Nowhere, Part::Bytes)
        }
        Err(RangeUnsatisfiableError::ZeroSuffix) if is_same => Part::Nowhere,
        Ok(_) | Err(_) => Part::Whole,
    }
}

/// As much of a range as lies within a file. Of a file's last bytes there may be fewer than were asked for.
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
    let mut values = headers.get_all(name).iter();
    let (value, another) = (values.next()?, values.next());
    value.to_str().ok().filter(|_| another.is_none())
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
        asked(&headers, size, "\"a\"")
    }

    #[test]
    fn one_part_is_understood() {
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
            assert_eq!(part(range, None, 10), Part::Nowhere, "{range}");
        }
        assert_eq!(part("bytes=0-", None, 0), Part::Nowhere);
    }

    #[test]
    fn whatever_else_is_asked_is_the_whole() {
        for range in ["", "bytes", "bytes=", "bytes=a-b", "lines=1-2", "bytes=1-2,4-5", "bytes=1-2;3", "bytes=--1"] {
            assert_eq!(part(range, None, 10), Part::Whole, "{range}");
        }
        assert_eq!(asked(&HeaderMap::new(), 10, "\"a\""), Part::Whole);
        let mut twice = HeaderMap::new();
        twice.append(header::RANGE, "bytes=0-1".parse().unwrap());
        twice.append(header::RANGE, "bytes=2-3".parse().unwrap());
        assert_eq!(asked(&twice, 10, "\"a\""), Part::Whole);
    }

    #[test]
    fn another_state_of_the_file_is_sent_whole() {
        assert_eq!(part("bytes=2-5", Some("\"a\""), 10), Part::Bytes(2..=5));
        for other in ["\"b\"", "W/\"a\"", "Sat, 29 Oct 1994 19:43:31 GMT"] {
            assert_eq!(part("bytes=2-5", Some(other), 10), Part::Whole, "{other}");
        }
    }
}
