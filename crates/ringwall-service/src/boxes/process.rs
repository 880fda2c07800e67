//! The handle by which the service signals and writes to a process of a session box.

use ringwall_executor::session_box::{SessionProcess, VisitInput};

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
