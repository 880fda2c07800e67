//! A running process of a session box, as far as it is reached from outside.

use ringwall_executor::session_box::{SessionProcess, VisitInput};

/// By what a running process is reached.
#[derive(Debug)]
pub(crate) struct ProcessReins {
    pub(crate) handle: SessionProcess,
    pub(crate) stdin: tokio::sync::Mutex<Option<VisitInput>>,
}

impl ProcessReins {
    pub(crate) fn new(handle: SessionProcess, stdin: Option<VisitInput>) -> Self {
        ProcessReins { handle, stdin: tokio::sync::Mutex::new(stdin) }
    }
}
