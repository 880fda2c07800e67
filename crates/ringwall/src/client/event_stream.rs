//! Parses a stream of server-sent events that arrives in arbitrary pieces (WHATWG HTML, 9.2.6).
//!
//! Lines end with LF, CR or CRLF. Several data lines are joined with LF, and an event without data is
//! dropped. The name applies to one event; the id applies until the next id.

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SentEvent {
    /// The last id so far, of this or an earlier event.
    pub(crate) id: String,
    /// Empty if the event has none.
    pub(crate) name: String,
    pub(crate) data: String,
}

/// An event exceeded the limit of [`Events::new`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

#[derive(Debug)]
pub(crate) struct Events {
    max_bytes: usize,
    line: Vec<u8>,
    /// The last byte was a CR, so a following LF belongs to the same line end.
    after_return: bool,
    is_begun: bool,
    event: SentEvent,
    has_data: bool,
}

impl Events {
    /// `max_bytes` limits the bytes of one event.
    pub(crate) fn new(max_bytes: usize) -> Self {
        let (line, event) = Default::default();
        Self { max_bytes, line, after_return: false, is_begun: false, event, has_data: false }
    }

    /// Returns the events that this piece completes.
    pub(crate) fn take(&mut self, chunk: &[u8]) -> Result<Vec<SentEvent>, TooLong> {
        let mut whole = Vec::new();
        for byte in chunk {
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
                    if self.line.len() + self.event.data.len() > self.max_bytes {
                        return Err(TooLong);
                    }
                }
            }
        }
        Ok(whole)
    }

    /// Reads one line. An empty line ends the event and returns it.
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
            // A comment (empty field name) or an unknown field.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, chunk: usize) -> Vec<SentEvent> {
        let mut events = Events::new(1000);
        text.as_bytes().chunks(chunk).flat_map(|chunk| events.take(chunk).expect("not too long")).collect()
    }

    #[test]
    fn events_do_not_depend_on_the_pieces() {
        let text = "\u{feff}: life\n\nid: 1\nevent: stdout\ndata: {\"a\":\ndata:1}\n\nevent: gone\n\ndata\r\n\r\n\
                    id: 2\r\ndata: b\rdata:  c\r\runknown: x\ndata: d\n\n";
        let event = |id: &str, name: &str, data: &str| SentEvent {
            id: id.to_owned(),
            name: name.to_owned(),
            data: data.to_owned(),
        };
        let all =
            [event("1", "stdout", "{\"a\":\n1}"), event("1", "", ""), event("2", "", "b\n c"), event("2", "", "d")];
        for chunk in 1..=text.len() {
            assert_eq!(read(text, chunk), all, "in pieces of {chunk}");
        }
    }

    #[test]
    fn too_long_event_is_an_error() {
        let mut events = Events::new(10);
        assert_eq!(events.take(b"data: x\n"), Ok(vec![]));
        assert_eq!(events.take(b"data: and more"), Err(TooLong));
        assert_eq!(Events::new(10).take(&[b'x'; 11]), Err(TooLong));
    }
}
