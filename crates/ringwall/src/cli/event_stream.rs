//! A stream of server-sent events, read as its standard says, in whatever pieces it arrives (WHATWG HTML, 9.2.6).
//!
//! Lines end with LF, CR or both; the data of several lines is joined by line feeds; an event without data is none. The name
//! counts for one event, the id until another one comes. Nobody is asked to connect again here.

/// One event. The id is the last one that was said, here or before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SentEvent {
    pub(crate) id: String,
    /// Empty where none was said.
    pub(crate) name: String,
    pub(crate) data: String,
}

/// More than a server says in one event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

#[derive(Debug)]
pub(crate) struct Events {
    longest: usize,
    line: Vec<u8>,
    /// Whether the last byte was a CR, of which a LF may be the other half.
    after_return: bool,
    is_begun: bool,
    event: SentEvent,
    has_data: bool,
}

impl Events {
    /// Of one event at most so many bytes are kept.
    pub(crate) fn new(longest: usize) -> Self {
        let (line, event) = Default::default();
        Self { longest, line, after_return: false, is_begun: false, event, has_data: false }
    }

    /// The events that this piece completes.
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<Vec<SentEvent>, TooLong> {
        let mut whole = Vec::new();
        for byte in piece {
            let is_second_half = std::mem::take(&mut self.after_return) && *byte == b'\n';
            match byte {
                b'\n' if is_second_half => {}
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    whole.extend(self.read(&line));
                }
                _ => {
                    self.line.push(*byte);
                    if self.line.len() + self.event.data.len() > self.longest {
                        return Err(TooLong);
                    }
                }
            }
        }
        Ok(whole)
    }

    /// One line; the event, where it is the empty one that ends it.
    fn read(&mut self, line: &[u8]) -> Option<SentEvent> {
        let text = String::from_utf8_lossy(line);
        let line = match std::mem::replace(&mut self.is_begun, true) {
            true => text.as_ref(),
            false => text.strip_prefix('\u{feff}').unwrap_or(&text),
        };
        if line.is_empty() {
            let event = self.event.clone();
            self.event = SentEvent { id: event.id.clone(), ..SentEvent::default() };
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.name),
            "id" if !value.contains('\0') => value.clone_into(&mut self.event.id),
            // A comment, or nothing that means anything here.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, piece: usize) -> Vec<SentEvent> {
        let mut events = Events::new(1000);
        text.as_bytes().chunks(piece).flat_map(|piece| events.take(piece).expect("not too long")).collect()
    }

    #[test]
    fn events_are_put_together_however_they_arrive() {
        let text = "\u{feff}: life\n\nid: 1\nevent: stdout\ndata: {\"a\":\ndata:1}\n\nevent: gone\n\ndata\r\n\r\n\
                    id: 2\r\ndata: b\rdata:  c\r\runknown: x\ndata: d\n\n";
        let event = |id: &str, name: &str, data: &str| SentEvent {
            id: id.to_owned(),
            name: name.to_owned(),
            data: data.to_owned(),
        };
        let all =
            [event("1", "stdout", "{\"a\":\n1}"), event("1", "", ""), event("2", "", "b\n c"), event("2", "", "d")];
        for piece in 1..=text.len() {
            assert_eq!(read(text, piece), all, "in pieces of {piece}");
        }
    }

    #[test]
    fn nothing_grows_without_end() {
        let mut events = Events::new(10);
        assert_eq!(events.take(b"data: x\n"), Ok(vec![]));
        assert_eq!(events.take(b"data: and more"), Err(TooLong));
        assert_eq!(Events::new(10).take(&[b'x'; 11]), Err(TooLong));
    }
}
