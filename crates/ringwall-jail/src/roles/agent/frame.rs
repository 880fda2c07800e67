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
pub const MAX_TO_AGENT: usize = 2 * 1024 * 1024;
/// Longest frame from the agent.
pub const MAX_FROM_AGENT: usize = 64 * 1024;
/// Bytes of a stream per frame.
pub const CHUNK: usize = 32 * 1024;
/// Flow control: unread input per stream.
pub const INPUT_WINDOW: usize = 64 * 1024;
/// Flow control: unread output per stream.
pub const OUTPUT_WINDOW: usize = 256 * 1024;
const LENGTH: usize = size_of::<u32>();

/// A process of the box. Ids are not reused while the box lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(pub u32);

/// An input stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InputStream {
    Stdin,
    Channel,
}

/// An output stream of a process. The output of a terminal is `Stdout`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OutputStream {
    Stdout,
    Stderr,
    Channel,
}

/// Recipients of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum SignalTarget {
    /// The process group of the command.
    Group,
    /// Every process of the command's session, in any process group.
    Session,
}

/// Presence of an optional stream or feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Enabled {
    Yes,
    No,
}

/// The environment to which a command's own is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum BaseEnvironment {
    Empty,
    /// The agent's own environment, which in a container is the image's.
    Agent,
}

/// A command and its streams.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProcessSpec {
    pub command: Command,
    pub base: BaseEnvironment,
    /// Another `argv[0]`, tried if the command's own is not found.
    pub fallback: Option<std::ffi::CString>,
    pub terminal: Option<WindowSize>,
    pub channel: Enabled,
    pub stdin: Enabled,
}

/// A message from the server.
#[derive(Debug, Serialize, Deserialize)]
pub enum ToAgent<'a> {
    Start {
        process: ProcessId,
        spec: Box<ProcessSpec>,
    },
    Input {
        process: ProcessId,
        to: InputStream,
        #[serde(borrow, serialize_with = "as_bytes")]
        bytes: &'a [u8],
    },
    CloseInput {
        process: ProcessId,
        to: InputStream,
    },
    /// Flow control: the server consumed this many bytes; as many more may be sent.
    OutputConsumed {
        process: ProcessId,
        from: OutputStream,
        bytes: u32,
    },
    Signal {
        process: ProcessId,
        number: i32,
        target: SignalTarget,
    },
    Resize {
        process: ProcessId,
        size: WindowSize,
    },
}

/// A message from the agent. Each process gets `NotStarted`, or `Started`, `Exited` and `Ended` in
/// this order.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent<'a> {
    Ready {
        /// `Yes` if processes cannot inspect each other.
        isolated: Enabled,
    },
    Started {
        process: ProcessId,
    },
    NotStarted {
        process: ProcessId,
        /// Errno of the failed call.
        errno: i32,
        /// `argv[0]` of the command; empty if the failure preceded execve.
        tried: &'a str,
    },
    Output {
        process: ProcessId,
        from: OutputStream,
        #[serde(borrow, serialize_with = "as_bytes")]
        bytes: &'a [u8],
    },
    /// Flow control: this many bytes were written to the process; as many more may be sent.
    InputConsumed {
        process: ProcessId,
        to: InputStream,
        bytes: u32,
    },
    /// The process has closed this stream, or has ended.
    InputClosed {
        process: ProcessId,
        to: InputStream,
    },
    /// The command has ended. Output in its pipes is still to come.
    Exited {
        process: ProcessId,
        ending: Ending,
        cpu_microseconds: u64,
        peak_memory_bytes: u64,
    },
    /// No output follows.
    Ended {
        process: ProcessId,
    },
}

fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// A malformed or unexpected frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid frame")]
pub struct FrameError;

/// Appends a message as a frame.
pub fn append<T: Serialize>(message: &T, to: &mut Vec<u8>) -> Result<(), FrameError> {
    let start = to.len();
    to.extend([0; LENGTH]);
    let encoded = postcard::to_extend(message, std::mem::take(to)).map_err(|_| FrameError)?;
    *to = encoded;
    let length = u32::try_from(to.len() - start - LENGTH).map_err(|_| FrameError)?;
    to[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Decodes a message that fills the whole frame.
pub fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(FrameError),
    }
}

/// Splits incoming bytes into frames. Buffers at most one frame and one read.
#[derive(Debug)]
pub struct FrameReader {
    max_len: usize,
    buffer: Vec<u8>,
    /// Start of the bytes that were not returned yet.
    start: usize,
    end: usize,
}

impl FrameReader {
    pub fn new(max_len: usize) -> Self {
        FrameReader { max_len, buffer: Vec::new(), start: 0, end: 0 }
    }

    /// Where to store the next bytes.
    pub fn space(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // `take` has rejected a length above the limit; `min` bounds it also if the caller ignored
        // that.
        let wanted = self.announced().unwrap_or(0).min(self.max_len) + LENGTH;
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
    pub fn take(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let Some(length) = self.announced() else { return Ok(None) };
        if length > self.max_len {
            return Err(FrameError);
        }
        let body = self.start + LENGTH;
        if self.end - body < length {
            return Ok(None);
        }
        self.start = body + length;
        Ok(Some(&self.buffer[body..body + length]))
    }

    fn announced(&self) -> Option<usize> {
        let length = self.buffer.get(self.start..self.end)?.first_chunk::<LENGTH>()?;
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
