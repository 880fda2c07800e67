//! Messages of a server as they come in a stream of events, of which only the data counts.

use super::verb::LONGEST_MESSAGE;

/// Events as they come, of which only the data counts.
#[derive(Debug, Default)]
pub(super) struct Events {
    line: Vec<u8>,
    data: String,
}

impl Events {
    /// The data of the events that this piece completes.
    pub(super) fn take(&mut self, piece: &[u8]) -> Result<Vec<String>, String> {
        let mut whole = Vec::new();
        for byte in piece {
            if *byte != b'\n' {
                self.line.push(*byte);
                if self.line.len() + self.data.len() > LONGEST_MESSAGE {
                    return Err("the server said too much at once".to_owned());
                }
                continue;
            }
            let line = String::from_utf8_lossy(&self.line).trim_end_matches('\r').to_owned();
            self.line.clear();
            if line.is_empty() {
                let data = std::mem::take(&mut self.data);
                whole.extend(Some(data).filter(|data| !data.is_empty()));
            } else if let Some(data) = line.strip_prefix("data:") {
                if !self.data.is_empty() {
                    // A message is one line where it goes; in JSON a blank is as good.
                    self.data.push(' ');
                }
                self.data.push_str(data.strip_prefix(' ').unwrap_or(data));
            }
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_put_together_however_they_arrive() {
        let text = ": life\n\nid: 1\ndata: {\"a\":1}\n\ndata:\n\nevent: message\r\ndata: {\"b\":\r\ndata: 2}\r\n\r\n";
        for piece in 1..=text.len() {
            let mut events = Events::default();
            let whole: Vec<String> =
                text.as_bytes().chunks(piece).flat_map(|piece| events.take(piece).unwrap()).collect();
            assert_eq!(whole, ["{\"a\":1}", "{\"b\": 2}"], "in pieces of {piece}");
        }
    }
}
