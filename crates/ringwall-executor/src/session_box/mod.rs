//! Session boxes: a box with our agent inside, which starts one *session process* after another.
//!
//! A session box is made like any other box, with the agent as its command, so all protections
//! apply and whatever ends the box ends its processes. The agent is not trusted (`listen`): code in
//! the box can end it and write in its place. Its messages are bounded, must be possible in the
//! current state, and affect only its own box; any other message ends the box.

mod admit;
mod agent;
mod clock;
mod input;
mod keep;
mod listen;
mod lower;
mod output;
mod pause;
mod process;
mod register;
mod writer;

pub(crate) use lower::Wardrobe;

pub use input::ProcessInput;
pub use keep::SessionBox;
pub use output::ProcessOutput;
pub use process::{Channel, ProcessOptions, ProcessStreams, SessionProcess, StartedProcess};
pub use register::Death;
pub use ringwall_jail::agent::frame::Enabled;
