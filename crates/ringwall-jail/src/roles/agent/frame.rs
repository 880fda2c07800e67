//! Frames between the server and the agent in a session box: a 32-bit little-endian length, then a
//! message.
//!
//! Both sides are the same build, so the encoding has no version. A length above the limit is an
//! error before memory is allocated for it. Messages from the agent borrow from the frame, so
//! decoding them allocates nothing.

use serde::{Deserialize, Serialize, Serializer};

use crate::protocol::plan::{Command, WindowSize};
use crate::protocol::report::Ending;

/// Longest frame to the agent: up to 1 MiB of arguments and environment, and little else.
pub const MAX_ORDER: usize = 2 * 1024 * 1024;
/// Longest frame from the agent.
pub const MAX_REPORT: usize = 64 * 1024;
/// Bytes of a stream per frame.
pub const CHUNK: usize = 32 * 1024;
/// Flow control: unread input per stream.
pub const INPUT_WINDOW: usize = 64 * 1024;
/// Flow control: unread output per stream.
pub const OUTPUT_WINDOW: usize = 256 * 1024;
const LENGTH: usize = size_of::<u32>();

/// A process of the box. Ids are not reused while the box lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VisitId(pub u32);

/// An input stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inlet {
    Stdin,
    Channel,
}

/// An output stream of a process. The output of a terminal is `Stdout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outlet {
    Stdout,
    Stderr,
    Channel,
}

/// Recipients of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whom {
    /// The process group of the command.
    Group,
    /// Every process of the command's session, in any process group.
    Session,
}

/// Presence of an optional stream or feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Given {
    Yes,
    No,
}

/// The environment to which a command's own is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    Nothing,
    /// The agent's own environment, which in a container is the image's.
    Agents,
}

/// A command and its streams.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    pub command: Command,
    pub base: Base,
    /// Another `argv[0]`, tried if the command's own is not found.
    pub otherwise: Option<std::ffi::CString>,
    pub terminal: Option<WindowSize>,
    pub channel: Given,
    pub stdin: Given,
}

/// A message from the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToAgent<'a> {
    Start {
        visit: VisitId,
        start: Box<Start>,
    },
    Input {
        visit: VisitId,
        to: Inlet,
        #[serde(borrow, serialize_with = "as_bytes")]
        bytes: &'a [u8],
    },
    CloseInput {
        visit: VisitId,
        to: Inlet,
    },
    /// Flow control: the server consumed this many bytes; as many more may be sent.
    Room {
        visit: VisitId,
        from: Outlet,
        bytes: u32,
    },
    Signal {
        visit: VisitId,
        number: i32,
        whom: Whom,
    },
    Resize {
        visit: VisitId,
        size: WindowSize,
    },
}

/// A message from the agent. Each process gets `NotStarted`, or `Started`, `Exited` and `Ended` in
/// this order.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent<'a> {
    Ready {
        /// `Yes` if processes cannot inspect each other.
        apart: Given,
    },
    Started {
        visit: VisitId,
    },
    NotStarted {
        visit: VisitId,
        /// Errno of the failed call.
        errno: i32,
        /// The last path that was tried; empty if the failure preceded execve.
        tried: &'a str,
    },
    Output {
        visit: VisitId,
        from: Outlet,
        #[serde(borrow, serialize_with = "as_bytes")]
        bytes: &'a [u8],
    },
    /// Flow control: this many bytes were written to the process; as many more may be sent.
    Taken {
        visit: VisitId,
        to: Inlet,
        bytes: u32,
    },
    /// The process has closed this stream, or has ended.
    Closed {
        visit: VisitId,
        to: Inlet,
    },
    /// The command has ended. Output in its pipes is still to come.
    Exited {
        visit: VisitId,
        ending: Ending,
        cpu_microseconds: u64,
        peak_memory_bytes: u64,
    },
    /// No output follows.
    Ended {
        visit: VisitId,
    },
}

fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// A malformed or unexpected frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid frame")]
pub struct Disorder;

/// Appends a message as a frame.
pub fn append<T: Serialize>(message: &T, to: &mut Vec<u8>) -> Result<(), Disorder> {
    let start = to.len();
    to.extend([0; LENGTH]);
    let encoded = postcard::to_extend(message, std::mem::take(to)).map_err(|_| Disorder)?;
    *to = encoded;
    let length = u32::try_from(to.len() - start - LENGTH).map_err(|_| Disorder)?;
    to[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Decodes a message that fills the whole frame.
pub fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Disorder> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(Disorder),
    }
}

/// Splits incoming bytes into frames. Buffers at most one frame and one read.
#[derive(Debug)]
pub struct Frames {
    longest: usize,
    buffer: Vec<u8>,
    /// Start of the bytes that were not returned yet.
    begin: usize,
    end: usize,
}

impl Frames {
    pub fn new(longest: usize) -> Self {
        Frames { longest, buffer: Vec::new(), begin: 0, end: 0 }
    }

    /// Where to store the next bytes.
    pub fn space(&mut self) -> &mut [u8] {
        if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        // `take` has rejected a length above the limit; `min` bounds it also if the caller ignored
        // that.
        let wanted = self.announced().unwrap_or(0).min(self.longest) + LENGTH;
        let wanted = wanted.max(self.end) + CHUNK;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        } else if self.buffer.len() > 2 * wanted {
            // Free the memory of a long frame.
            self.buffer.truncate(wanted);
            self.buffer.shrink_to_fit();
        }
        &mut self.buffer[self.end..]
    }

    /// Call after `count` bytes were stored in [`space`](Self::space).
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// Content of the next frame, if it is complete.
    pub fn take(&mut self) -> Result<Option<&[u8]>, Disorder> {
        let Some(length) = self.announced() else { return Ok(None) };
        if length > self.longest {
            return Err(Disorder);
        }
        let body = self.begin + LENGTH;
        if self.end - body < length {
            return Ok(None);
        }
        self.begin = body + length;
        Ok(Some(&self.buffer[body..body + length]))
    }

    fn announced(&self) -> Option<usize> {
        let length = self.buffer.get(self.begin..self.end)?.first_chunk::<LENGTH>()?;
        usize::try_from(u32::from_le_bytes(*length)).ok()
    }

    /// Allocated memory in bytes.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.buffer.capacity()
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
