//! What a server and the agent in one of its boxes say to one another: frames, each its length and then that many bytes.
//!
//! Both are of one build, so the encoding has no versions. No length is believed: one that is longer than allowed is an
//! error before anything is allocated for it, and what the agent says holds nothing that would have to be allocated.

use serde::{Deserialize, Serialize, Serializer};

use crate::protocol::plan::{Command, WindowSize};
use crate::protocol::report::Ending;

/// Arguments and environment take up to 1 MiB; the rest of the longest frame to the agent is little.
pub const MAX_ORDER: usize = 2 * 1024 * 1024;
/// Nothing that the agent says is longer.
pub const MAX_REPORT: usize = 64 * 1024;
/// How much of a stream goes into one frame.
pub const CHUNK: usize = 32 * 1024;
/// How much may be on its way to a visit that does not read.
pub const INPUT_WINDOW: usize = 64 * 1024;
/// How much of one stream may be on its way to somebody who does not read.
pub const OUTPUT_WINDOW: usize = 256 * 1024;
const LENGTH: usize = size_of::<u32>();

/// One visit of a box, unique in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VisitId(pub u32);

/// What goes into a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Inlet {
    Stdin,
    Channel,
}

/// What comes out of a visit. A terminal's output is its standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outlet {
    Stdout,
    Stderr,
    Channel,
}

/// Whom a signal is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Whom {
    /// The process group of the command.
    Group,
    /// Every process of its session, whatever group it is in.
    Session,
}

/// Whether a visit has something, or has it not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Given {
    Yes,
    No,
}

/// What the environment of a visit begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Base {
    Nothing,
    /// The agent's own: what an image says.
    Agents,
}

/// One command and what it gets.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    pub command: Command,
    pub base: Base,
    /// The name to look for where there is none of the command's own.
    pub otherwise: Option<std::ffi::CString>,
    pub terminal: Option<WindowSize>,
    pub channel: Given,
    pub stdin: Given,
}

/// What a server says.
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
    /// So many bytes of this stream were taken; as many more may come.
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

/// What the agent says. A visit is Started or NotStarted, then Exited, then Ended.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromAgent<'a> {
    Ready {
        /// Whether no visit can look into another.
        apart: Given,
    },
    Started {
        visit: VisitId,
    },
    NotStarted {
        visit: VisitId,
        /// The kernel's error number.
        errno: i32,
        /// The last path that was tried; empty when nothing of the command was.
        tried: &'a str,
    },
    Output {
        visit: VisitId,
        from: Outlet,
        #[serde(borrow, serialize_with = "as_bytes")]
        bytes: &'a [u8],
    },
    /// So many bytes went to the visit; as many more may be sent.
    Taken {
        visit: VisitId,
        to: Inlet,
        bytes: u32,
    },
    /// Nobody reads there any more.
    Closed {
        visit: VisitId,
        to: Inlet,
    },
    /// The command is over; what lies in its pipes is still to come.
    Exited {
        visit: VisitId,
        ending: Ending,
        cpu_microseconds: u64,
        peak_memory_bytes: u64,
    },
    /// Nothing more comes of this visit.
    Ended {
        visit: VisitId,
    },
}

fn as_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

/// Something that is no frame, or not the one that could come now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what was said is no frame")]
pub struct Disorder;

/// Adds a message as a frame.
pub fn append<T: Serialize>(message: &T, to: &mut Vec<u8>) -> Result<(), Disorder> {
    let start = to.len();
    to.extend([0; LENGTH]);
    let encoded = postcard::to_extend(message, std::mem::take(to)).map_err(|_| Disorder)?;
    *to = encoded;
    let length = u32::try_from(to.len() - start - LENGTH).map_err(|_| Disorder)?;
    to[start..start + LENGTH].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Reads a frame's content, all of it.
pub fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Disorder> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(Disorder),
    }
}

/// Bytes as they come, and the frames in them. Never holds more than one frame and one reading.
#[derive(Debug)]
pub struct Frames {
    longest: usize,
    buffer: Vec<u8>,
    /// What of the buffer was not yet given away.
    begin: usize,
    end: usize,
}

impl Frames {
    pub fn new(longest: usize) -> Self {
        Frames { longest, buffer: Vec::new(), begin: 0, end: 0 }
    }

    /// Where to read the next bytes to.
    pub fn space(&mut self) -> &mut [u8] {
        if self.begin > 0 {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        // A frame that was announced was found short enough before.
        let wanted = self.announced().unwrap_or(0).min(self.longest) + LENGTH;
        let wanted = wanted.max(self.end) + CHUNK;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        } else if self.buffer.len() > 2 * wanted {
            // A long frame was an exception.
            self.buffer.truncate(wanted);
            self.buffer.shrink_to_fit();
        }
        &mut self.buffer[self.end..]
    }

    /// So many were read.
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.buffer.len());
    }

    /// The content of the next frame, if it is all there.
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

    /// How much memory it holds.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.buffer.capacity()
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
