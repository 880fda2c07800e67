//! THE WINDOW: drives a Chromium over two byte streams that somebody else gives it.
//!
//! It speaks the DevTools protocol, and knows nothing of boxes, policy or doors. It never decides what may be visited or
//! typed, never opens a file, and never makes a process: whoever uses it starts `arguments` in a box and keeps the ends of
//! its streams. What comes back from Chromium is a stranger's word: it is bounded in size and in time, and can make an
//! action fail, but nothing else (docs/decisions/0014).

mod action;
mod answer;
mod browser;
mod document;

mod act;
mod capture;
mod keys;
mod travel;
mod view;

mod connection;
mod event;
mod frames;
mod message;
mod protocol;
mod scene;

mod error;
mod launch;
mod words;

pub use action::{Action, Extent, FieldKind, FieldNames, Format, Origin, Target, Travel, Until};
pub use answer::{Answer, Dialog, DialogKind, DownloadEnd, Downloaded, MAX_DOWNLOAD_BYTES};
pub use browser::{Browser, Files};
pub use document::Document;
pub use error::Error;
pub use launch::{WayOut, arguments, find_executable};
pub use words::file_name;
