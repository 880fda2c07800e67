//! Boxes that stay: one session's, with our agent inside, which starts one command after another (a *visit*).
//!
//! A box that stays is made like any other, with the agent as its command, so everything that holds a box holds it, and
//! whatever ends a box ends it with all visits. The agent is believed nothing (`listen`): code of the box can end it and
//! speak in its place. What it says is bounded, must be what could come now, and goes to the visits of its own box alone;
//! anything else ends the box.

mod admit;
mod awake;
mod clock;
mod input;
mod keep;
mod listen;
mod lower;
mod mouth;
mod output;
mod pause;
mod process;
mod register;

pub(crate) use awake::Awake;
pub(crate) use lower::Wardrobe;

pub use input::VisitInput;
pub use keep::Resident;
pub use output::VisitOutput;
pub use process::{Channel, SessionProcess, StartedProcess, VisitOptions, VisitStreams};
pub use register::Death;
pub use ringwall_jail::agent::frame::Enabled;
