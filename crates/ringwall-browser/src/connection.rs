//! The connection to Chromium: calls, answers and events.
//!
//! One task reads and one writes, so that neither stream blocks the other. Every call whose answer
//! is awaited has a time limit. Events are handled by `Pages` in the reading task, and resulting
//! commands are only queued for the writer. The connection ends if that queue overflows or a
//! message is invalid.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::error::Error;
use crate::event::Event;
use crate::frames::{Frame, Frames, MAX_MESSAGE_LEN};
use crate::message::Message;
use crate::pages::{Command, Pages};
use crate::protocol::{
    Call, CancelDownload, CloseTarget, ContinueResponse, EnableInspector, EnableNetwork, EnablePage, HandleDialog,
    Header, InterceptFileChooser, RunIfWaiting, SetLifecycleEvents, TerminateExecution,
};
use crate::text;

const MAX_QUEUED: usize = 256;

type Answer = Result<Box<RawValue>, Error>;

#[derive(Debug)]
pub(crate) struct Connection {
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

#[derive(Debug)]
struct Shared {
    outgoing: mpsc::Sender<Vec<u8>>,
    state: Mutex<State>,
    /// Incremented after each event and at the end.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    pages: Pages,
    last_id: u64,
    waiting: HashMap<u64, Waiting>,
    /// Why the connection has ended.
    ended: Option<String>,
}

#[derive(Debug)]
struct Waiting {
    method: &'static str,
    session: Option<String>,
    answer: oneshot::Sender<Answer>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Outgoing<'a, C> {
    id: u64,
    method: &'static str,
    params: &'a C,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
}

impl Connection {
    pub(crate) fn new(
        from: impl AsyncRead + Send + Unpin + 'static,
        to: impl AsyncWrite + Send + Unpin + 'static,
    ) -> Self {
        let (outgoing, queue) = mpsc::channel(MAX_QUEUED);
        let shared = Arc::new(Shared { outgoing, state: Mutex::default(), changes: watch::Sender::new(0) });
        let tasks =
            [tokio::spawn(read(Arc::clone(&shared), from)), tokio::spawn(write(Arc::clone(&shared), to, queue))];
        Self { shared, tasks }
    }

    /// Sends a call and waits for the answer, up to the limit.
    pub(crate) async fn call<C: Call>(
        &self,
        session: Option<&str>,
        call: &C,
        limit: Duration,
    ) -> Result<C::Answer, Error> {
        let (sender, receiver) = oneshot::channel();
        let id = {
            let mut state = self.shared.lock();
            if let Some(why) = &state.ended {
                return Err(Error::Closed { why: why.clone() });
            }
            state.last_id += 1;
            let id = state.last_id;
            let waiting = Waiting { method: C::METHOD, session: session.map(str::to_owned), answer: sender };
            state.waiting.insert(id, waiting);
            id
        };
        // Removes the entry also if this future is dropped.
        let _waiting = WaitingCall { shared: &self.shared, id };
        let bytes = encode(id, session, call)?;
        let exchange = async {
            let closed = || self.shared.closed_error();
            self.shared.outgoing.send(bytes).await.map_err(|_| closed())?;
            receiver.await.map_err(|_| closed())?
        };
        let limited = tokio::time::timeout(limit, exchange).await;
        let answer = limited.map_err(|_| Error::TimedOut { what: C::METHOD.to_owned(), limit })??;
        serde_json::from_str(answer.get())
            .map_err(|error| Error::Malformed { method: C::METHOD, why: error.to_string() })
    }

    /// Reads or changes the state of the pages.
    pub(crate) fn pages<T>(&self, find: impl FnOnce(&mut Pages) -> T) -> T {
        find(&mut self.shared.lock().pages)
    }

    /// Waits until `find` finds something in the state of the pages. `None` if the limit passes
    /// first.
    pub(crate) async fn watch<T>(
        &self,
        limit: Duration,
        mut find: impl FnMut(&Pages) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let mut changes = self.shared.changes.subscribe();
        let seen = async {
            loop {
                changes.mark_unchanged();
                {
                    let state = self.shared.lock();
                    if let Some(found) = find(&state.pages) {
                        return Ok(found);
                    }
                    if let Some(why) = &state.ended {
                        return Err(Error::Closed { why: why.clone() });
                    }
                }
                if changes.changed().await.is_err() {
                    return Err(self.shared.closed_error());
                }
            }
        };
        tokio::time::timeout(limit, seen).await.map_or(Ok(None), |found| found.map(Some))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.shared.lock().ended.is_none()
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) {
        let mut changes = self.shared.changes.subscribe();
        while self.is_open() {
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Removes a waiting call when dropped.
struct WaitingCall<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.shared.lock().waiting.remove(&self.id);
    }
}

impl Shared {
    /// Critical sections do not panic between related changes, so a poisoned lock is still
    /// consistent.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn closed_error(&self) -> Error {
        let why = self.lock().ended.clone();
        Error::Closed { why: why.unwrap_or_else(|| "it was closed".to_owned()) }
    }

    /// Ends the connection and fails all waiting calls. The first reason is kept.
    fn end(&self, why: &str) {
        let mut state = self.lock();
        let why = state.ended.get_or_insert_with(|| why.to_owned()).clone();
        for (_, waiting) in state.waiting.drain() {
            // The caller may have stopped waiting.
            let _ = waiting.answer.send(Err(Error::Closed { why: why.clone() }));
        }
        drop(state);
        self.changes.send_modify(|version| *version = version.wrapping_add(1));
    }

    fn answer(&self, id: u64, result: impl FnOnce(&Waiting) -> Answer) {
        let waiting = self.lock().waiting.remove(&id);
        if let Some(waiting) = waiting {
            let result = result(&waiting);
            let _ = waiting.answer.send(result);
        }
    }

    /// Handles one message; the error is the reason to end the connection.
    fn handle(&self, frame: Frame) -> Result<(), &'static str> {
        let bytes = match frame {
            Frame::End => return Err("it ended or closed its streams"),
            Frame::Oversized(beginning) => {
                // An oversized event is ignored.
                if let Some(id) = Message::id_of(&beginning) {
                    self.answer(id, |waiting| Err(Error::TooLarge { what: waiting.method.to_owned() }));
                }
                return Ok(());
            }
            Frame::Whole(bytes) => bytes,
        };
        match Message::read(&bytes).ok_or("it sent an invalid message")? {
            Message::Answer { id, result } => self.answer(id, |waiting| {
                let method = waiting.method;
                result.map_err(|message| Error::Refused { method, message: text::cut(&message, 500) })
            }),
            Message::Event { method, session, params } => {
                if let Some(event) = Event::read(&method, &params) {
                    let commands = self.lock().pages.apply(session.as_deref(), event);
                    for order in commands {
                        self.run_command(order)?;
                    }
                    self.changes.send_modify(|version| *version = version.wrapping_add(1));
                }
            }
        }
        Ok(())
    }

    fn run_command(&self, order: Command) -> Result<(), &'static str> {
        match order {
            Command::Prepare { session } => {
                let session = Some(session.as_str());
                self.send(session, &EnablePage {})?;
                self.send(session, &SetLifecycleEvents { enabled: true })?;
                self.send(session, &EnableInspector {})?;
                self.send(session, &EnableNetwork { max_total_buffer_size: 1, max_resource_buffer_size: 1 })?;
                self.send(session, &InterceptFileChooser { enabled: true })?;
                self.send(session, &RunIfWaiting {})
            }
            Command::Refuse { session, target } => {
                self.send(Some(&session), &RunIfWaiting {})?;
                self.send(None, &CloseTarget { target_id: &target })
            }
            Command::AnswerDialog { session, accept } => self.send(Some(&session), &HandleDialog { accept }),
            Command::EndScript { session } => self.send(Some(&session), &TerminateExecution {}),
            Command::CancelDownload { guid } => self.send(None, &CancelDownload { guid: &guid }),
            Command::Continue { session, request, changed } => {
                let (response_code, response_headers) = changed.unzip();
                let headers = |all: Vec<_>| all.into_iter().map(|(name, value)| Header { name, value }).collect();
                let response_headers = response_headers.map(headers);
                self.send(Some(&session), &ContinueResponse { request_id: &request, response_code, response_headers })
            }
            Command::Forget { session, is_crash } => {
                let mut state = self.lock();
                let lost = |waiting: &mut Waiting| waiting.session.as_deref() == Some(&session);
                let lost: Vec<_> = state.waiting.extract_if(|_, waiting| lost(waiting)).collect();
                for (_, waiting) in lost {
                    let error = if is_crash { Error::Crashed } else { Error::PageGone };
                    let _ = waiting.answer.send(Err(error));
                }
                Ok(())
            }
        }
    }

    /// Queues a call whose answer is ignored.
    fn send<C: Call>(&self, session: Option<&str>, call: &C) -> Result<(), &'static str> {
        let id = {
            let mut state = self.lock();
            state.last_id += 1;
            state.last_id
        };
        let bytes = encode(id, session, call).map_err(|_| "a command could not be encoded")?;
        self.outgoing.try_send(bytes).map_err(|_| "it does not read its commands")
    }
}

fn encode<C: Call>(id: u64, session_id: Option<&str>, params: &C) -> Result<Vec<u8>, Error> {
    let message = Outgoing { id, method: C::METHOD, params, session_id };
    let mut bytes =
        serde_json::to_vec(&message).map_err(|error| Error::Malformed { method: C::METHOD, why: error.to_string() })?;
    bytes.push(0);
    Ok(bytes)
}

async fn read(shared: Arc<Shared>, from: impl AsyncRead + Unpin) {
    let mut frames = Frames::new(from, MAX_MESSAGE_LEN);
    loop {
        let taken = match frames.next().await {
            Ok(frame) => shared.handle(frame),
            Err(_) => Err("reading its stream failed"),
        };
        if let Err(why) = taken {
            return shared.end(why);
        }
    }
}

async fn write(shared: Arc<Shared>, mut to: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = queue.recv().await {
        let written = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        if written.await.is_err() {
            return shared.end("it closed its streams");
        }
    }
}
