//! Drives a Chromium over a pair of byte streams, with the DevTools protocol.
//!
//! The crate knows nothing of boxes, policy or HTTP. It opens no file and starts no process: the
//! caller runs [`arguments`] in a box and passes the ends of its streams. It does not decide which
//! page may be visited or what may be typed. Messages from Chromium are untrusted: they are bounded
//! in size and time, and can at worst make an action fail (docs/decisions/0014).

mod action;
mod answer;
mod browser;
mod document;

mod act;
mod capture;
mod keys;
mod navigate;
mod view;

mod connection;
mod event;
mod frames;
mod message;
mod pages;
mod protocol;

mod error;
mod launch;
mod text;

pub use action::{
    Action, DownloadSource, FieldKind, FieldNames, Format, ScreenshotArea, ScrollTarget, Target, WaitCondition,
};
pub use answer::{Answer, Dialog, DialogKind, DownloadEnd, Downloaded, MAX_DOWNLOAD_BYTES};
pub use browser::{Browser, Files};
pub use document::Document;
pub use error::Error;
pub use launch::{Egress, arguments, find_executable};
pub use text::file_name;
