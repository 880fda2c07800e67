//! Streams the events of an exec: status changes, output as it is written, and the end.
//!
//! Output is read from its files, and a cursor counts the delivered bytes of each stream. So a
//! client that reconnects with its last cursor gets exactly the rest, whether the exec runs or has
//! ended, and a slow client uses no memory.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use futures::Stream as Events;
use ringwall_ids::ExecId;
use ringwall_record::{Exec, Status};
use ringwall_workspace::Stream;
use tokio::sync::watch;

use crate::auth::principal::Principal;
use crate::error::Error;
use crate::exec::registry::{EndedExec, ExecState, RunningExec};
use crate::exec::view::ExecView;
use crate::service::Service;

/// Most bytes of a stream in one event.
const CHUNK: usize = 64 * 1024;

/// The number of delivered bytes of each stream. Written as `o123-e45`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EventCursor {
    pub stdout: u64,
    pub stderr: u64,
}

impl EventCursor {
    fn of(&mut self, stream: Stream) -> &mut u64 {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

impl fmt::Display for EventCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "o{}-e{}", self.stdout, self.stderr)
    }
}

impl FromStr for EventCursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let number = |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let parts = text.strip_prefix('o').and_then(|rest| rest.split_once("-e"));
        let cursor = parts.and_then(|(stdout, stderr)| Some(Self { stdout: number(stdout)?, stderr: number(stderr)? }));
        cursor.ok_or_else(|| Error::invalid("that is not a cursor that an event has given; it looks like o123-e45"))
    }
}

#[derive(Debug, Clone)]
pub struct Event {
    /// Pass this cursor to continue after this event.
    pub cursor: EventCursor,
    pub kind: EventKind,
}

#[derive(Debug, Clone)]
pub enum EventKind {
    Status(Status),
    Output {
        stream: Stream,
        offset: u64,
        bytes: Vec<u8>,
    },
    /// The last event.
    End(Arc<ExecView>),
}

impl Service {
    /// The events of an exec after the cursor, up to its end.
    pub async fn events(
        &self,
        by: &Principal,
        exec_id: &ExecId,
        after: Option<EventCursor>,
    ) -> Result<impl Events<Item = Result<Event, Error>> + Send + use<>, Error> {
        let running = self.find_running(by, exec_id).map(|running| {
            let state = running.watch();
            (running, state)
        });
        let exec = self.recorded(by, exec_id).await?;
        let source = match running {
            Some((running, state)) => Source::RunningExec { running, state },
            None => Source::Ended,
        };
        let follower = Follower {
            service: self.clone(),
            exec,
            source,
            cursor: after.unwrap_or_default(),
            said: None,
            state: State::Following,
        };
        Ok(futures::stream::unfold(follower, |mut follower| async move {
            let event = follower.next().await?;
            if event.is_err() {
                follower.state = State::Done;
            }
            Some((event, follower))
        }))
    }
}

struct Follower {
    service: Service,
    exec: Exec,
    source: Source,
    cursor: EventCursor,
    said: Option<Status>,
    state: State,
}

enum Source {
    RunningExec { running: Arc<RunningExec>, state: watch::Receiver<ExecState> },
    Ended,
}

#[derive(PartialEq, Eq)]
enum State {
    Following,
    Done,
}

impl Follower {
    async fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if self.state == State::Done {
                return None;
            }
            // Read the state before the output, so that all output is delivered before the end.
            let state = match &mut self.source {
                Source::RunningExec { state, .. } => state.borrow_and_update().clone(),
                Source::Ended => ExecState::Over(None),
            };
            if let ExecState::At(status) = state
                && self.said != Some(status)
            {
                self.said = Some(status);
                return Some(Ok(self.event(EventKind::Status(status))));
            }
            for stream in [Stream::Stdout, Stream::Stderr] {
                match self.read(stream).await {
                    Ok(bytes) if bytes.is_empty() => {}
                    Ok(bytes) => {
                        let place = self.cursor.of(stream);
                        let offset = *place;
                        *place += bytes.len() as u64;
                        return Some(Ok(self.event(EventKind::Output { stream, offset, bytes })));
                    }
                    Err(error) => return Some(Err(error)),
                }
            }
            if let ExecState::Over(ended) = state {
                self.state = State::Done;
                return Some(self.ending(ended).await.map(|view| self.event(EventKind::End(view))));
            }
            if let Source::RunningExec { state, .. } = &mut self.source
                && state.changed().await.is_err()
            {
                self.source = Source::Ended;
            }
        }
    }

    fn event(&self, kind: EventKind) -> Event {
        Event { cursor: self.cursor, kind }
    }

    async fn read(&mut self, stream: Stream) -> Result<Vec<u8>, Error> {
        let offset = *self.cursor.of(stream);
        match &self.source {
            Source::RunningExec { running, .. } => match running.output(stream) {
                None => Ok(Vec::new()),
                Some(file) => {
                    file.read(offset, CHUNK).map_err(|error| Error::runtime("read what the exec printed", &error))
                }
            },
            Source::Ended => {
                let part = self.service.with_project(&self.exec.summary, move |project, exec| {
                    project.read_output(exec, stream, offset, CHUNK)
                });
                Ok(part.await?.map(|part| part.bytes).unwrap_or_default())
            }
        }
    }

    /// The final view from the exec's task, or from the database if the task left none.
    async fn ending(&self, ended: Option<Arc<EndedExec>>) -> Result<Arc<ExecView>, Error> {
        if let Some(ended) = ended {
            return Ok(Arc::new(ended.view.clone()));
        }
        let exec_id = &self.exec.summary.exec_id;
        let exec = self.service.inner.store.exec(exec_id, &ringwall_record::Scope::All).await?;
        exec.map(|exec| Arc::new(exec.into())).ok_or_else(|| crate::service::no_exec(exec_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_cursor_is_read_as_it_is_written(stdout: u64, stderr: u64) {
            let cursor = EventCursor { stdout, stderr };
            prop_assert_eq!(cursor.to_string().parse::<EventCursor>().ok(), Some(cursor));
        }
    }

    #[test]
    fn invalid_cursor_is_refused() {
        for text in ["", "o1", "o1-e", "o-e1", "e1-o1", "o+1-e1", "o1-e-1", "o1-e1 ", "o99999999999999999999-e0"] {
            assert!(text.parse::<EventCursor>().is_err(), "{text}");
        }
    }
}
