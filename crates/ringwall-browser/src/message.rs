//! One DevTools message: an answer to a call, or an event.
//!
//! Only the envelope is parsed here; the content stays text. A page can make Chromium send strings
//! with unpaired surrogates. These are replaced, so that a page title cannot make the connection
//! fail.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Debug)]
pub(crate) enum Message {
    Answer { id: u64, result: Result<Box<RawValue>, String> },
    Event { method: String, session: Option<String>, params: Box<RawValue> },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    id: Option<u64>,
    method: Option<String>,
    session_id: Option<String>,
    params: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    error: Option<ErrorObject>,
}

#[derive(Deserialize)]
struct ErrorObject {
    message: String,
    data: Option<String>,
}

impl Message {
    /// `None` if it is not a DevTools message.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let text = replace_unpaired_surrogates(&text);
        let envelope: Envelope = serde_json::from_str(&text).ok()?;
        match (envelope.id, envelope.method) {
            (Some(id), _) => {
                let result = match (envelope.result, envelope.error) {
                    (_, Some(ErrorObject { message, data: Some(data) })) => Err(format!("{message} {data}")),
                    (_, Some(ErrorObject { message, data: None })) => Err(message),
                    (Some(result), None) => Ok(result),
                    (None, None) => Ok(RawValue::NULL.to_owned()),
                };
                Some(Self::Answer { id, result })
            }
            (None, Some(method)) => {
                let params = envelope.params.unwrap_or_else(|| RawValue::NULL.to_owned());
                Some(Self::Event { method, session: envelope.session_id, params })
            }
            (None, None) => None,
        }
    }

    /// Id of the answered call, from the beginning of the message only.
    pub(crate) fn id_of(beginning: &[u8]) -> Option<u64> {
        let digits = beginning.strip_prefix(b"{\"id\":")?;
        let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&digits[..length]).ok()?.parse().ok()
    }
}

/// Replaces escapes of unpaired surrogates by U+FFFD, which has the same length.
fn replace_unpaired_surrogates(text: &str) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let mut replaced = text.to_owned().into_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'u')) => match (unit(bytes, at), unit(bytes, at + 6)) {
                (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => at += 12,
                (Some(0xD800..=0xDFFF), _) => {
                    replaced[at..at + 6].copy_from_slice(b"\\ufffd");
                    at += 6;
                }
                (_, _) => at += 2,
            },
            (b'\\', _) => at += 2,
            (_, _) => at += 1,
        }
    }
    Cow::Owned(String::from_utf8_lossy(&replaced).into_owned())
}

/// The escape `\uXXXX` at this index, if there is one.
fn unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = escape.strip_prefix(b"\\u")?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> String {
        match Message::read(text.as_bytes()) {
            Some(Message::Answer { result: Ok(value), .. }) => {
                serde_json::from_str::<serde_json::Value>(value.get()).unwrap().to_string()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn unpaired_surrogate_is_replaced_and_pair_is_kept() {
        assert_eq!(answer(r#"{"id":1,"result":"a\ud83d\ude00b"}"#), "\"a😀b\"");
        assert_eq!(answer(r#"{"id":1,"result":"a\ud83d"}"#), "\"a\u{fffd}\"");
        assert_eq!(answer(r#"{"id":1,"result":"\ude00\ud83dx"}"#), "\"\u{fffd}\u{fffd}x\"");
        assert_eq!(answer(r#"{"id":1,"result":"\\ud83d"}"#), r#""\\ud83d""#, "an escaped backslash");
    }

    #[test]
    fn invalid_message_is_rejected() {
        for text in ["", "null", "[]", "{}", "{\"id\":-1}", "{\"id\":\"1\"}", "{\"method\":3}", "\u{0}", "{\"id\":1"] {
            assert!(Message::read(text.as_bytes()).is_none(), "{text}");
        }
        assert!(Message::read(&[0xff, 0xfe]).is_none());
        let deep = format!("{{\"id\":1,\"result\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(Message::read(deep.as_bytes()), Some(Message::Answer { .. }) | None), "no overflow");
    }

    #[test]
    fn id_is_read_from_beginning() {
        assert_eq!(Message::id_of(b"{\"id\":42,\"result\":{"), Some(42));
        assert_eq!(Message::id_of(b"{\"method\":\"Page.x\""), None);
        assert_eq!(Message::id_of(b"{\"id\":99999999999999999999999"), None);
    }
}
